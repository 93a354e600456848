"""The paper's tables, from the UCI repository: Forest CoverType and Higgs, with the paper's splits."""

import sys
from pathlib import Path

import numpy as np

from imix.data.arrays import Parts
from imix.data.csv_file import read_csv
from imix.data.frame import Frame
from imix.errors import InputError
from imix.settings import Reading

COVTYPE_FILES = ("covtype.data.gz", "covtype.data", "covtype.csv")
COVTYPE_TRAIN = 15_120  # the first rows; all others test
COVTYPE_NUMERIC = (
    "Elevation",
    "Aspect",
    "Slope",
    "Horizontal_Distance_To_Hydrology",
    "Vertical_Distance_To_Hydrology",
    "Horizontal_Distance_To_Roadways",
    "Hillshade_9am",
    "Hillshade_Noon",
    "Hillshade_3pm",
    "Horizontal_Distance_To_Fire_Points",
)
COVTYPE_FLAGS = {"Wilderness_Area": 4, "Soil_Type": 40}  # categories, as that many columns of 0 and 1

HIGGS_FILES = ("HIGGS.csv.gz", "HIGGS.csv")
HIGGS_ROWS = {"higgs100k": 100_000, "higgs1m": 1_000_000}  # drawn for training
HIGGS_TEST = 500_000  # the last rows
HIGGS_FEATURES = 28
HIGGS_SEED = 0  # of the rows that are drawn


def read_covtype(reading: Reading) -> Parts:
    """Forest CoverType: 15,120 training and 565,892 test rows, 7 classes, 10 numeric and 2 categorical columns.

    The file is UCI's, in the folder `reading.data_dir`, or else what scikit-learn fetches.
    """
    import pyarrow as pa

    x, y = _covtype_file(reading.data_dir) if reading.data_dir else _covtype_fetched()
    columns = {name: pa.chunked_array([x[:, at]]) for at, name in enumerate(COVTYPE_NUMERIC)}
    at = len(COVTYPE_NUMERIC)
    for name, categories in COVTYPE_FLAGS.items():
        numbers = x[:, at : at + categories].argmax(1)  # one flag is set in every row
        names = [str(number + 1) for number in range(categories)]  # all of them, also those no training row has
        columns[name] = pa.chunked_array([pa.DictionaryArray.from_arrays(numbers, names)])
        at += categories
    frame = Frame("covtype", tuple(columns), len(x), columns.__getitem__)
    cut = COVTYPE_TRAIN
    return Parts(frame.part(0, cut), y[:cut], frame.part(cut, len(x)), y[cut:])


def read_higgs100k(reading: Reading) -> Parts:
    """Higgs: 100,000 rows drawn from the training part, the last 500,000 rows for testing, 2 classes, 28 columns."""
    return _higgs(reading.data_dir, HIGGS_ROWS["higgs100k"])


def read_higgs1m(reading: Reading) -> Parts:
    """Higgs: 1,000,000 rows drawn from the training part, the last 500,000 rows for testing, 2 classes, 28 columns."""
    return _higgs(reading.data_dir, HIGGS_ROWS["higgs1m"])


def _covtype_file(folder: str) -> tuple[np.ndarray, np.ndarray]:
    path = _find(folder, COVTYPE_FILES)
    frame = _read(path, len(COVTYPE_NUMERIC) + sum(COVTYPE_FLAGS.values()) + 1, COVTYPE_TRAIN + 1)
    *columns, y = [frame.column(name).to_numpy() for name in frame.columns]
    return np.column_stack(columns), _whole(y, path)


def _covtype_fetched() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import fetch_covtype, get_data_home

    if not (Path(get_data_home()) / "covertype").exists():
        print("fetching covtype (11 MB)", file=sys.stderr, flush=True)
    try:
        x, y = fetch_covtype(return_X_y=True)
    except OSError as error:
        raise InputError(
            f"cannot fetch covtype ({error}); download {COVTYPE_FILES[0]} of UCI's data set 31 and give its folder "
            "with --data-dir"
        ) from error
    return x, y


def _higgs(folder: str | None, rows: int) -> Parts:
    if folder is None:
        raise InputError(
            f"download {HIGGS_FILES[0]} of UCI's data set 280 (2.6 GB) and give its folder with --data-dir"
        )
    frame = _read(_find(folder, HIGGS_FILES), HIGGS_FEATURES + 1, HIGGS_TEST + rows)
    label, *features = frame.columns
    cut = frame.rows - HIGGS_TEST
    drawn = np.sort(np.random.default_rng(HIGGS_SEED).choice(cut, rows, replace=False))
    y = _whole(frame.column(label).to_numpy(), Path(frame.name))
    x = Frame(frame.name, tuple(features), frame.rows, frame.read, numbers=True)
    return Parts(x.take(drawn), y[drawn], x.part(cut, frame.rows), y[cut:])


def _whole(labels: np.ndarray, path: Path) -> np.ndarray:
    if np.isnan(labels).any():
        raise InputError(f"{path} has no label in row {int(np.isnan(labels).argmax())}")
    return labels.astype(int)


def _find(folder: str, names: tuple[str, ...]) -> Path:
    for path in (Path(folder), *(Path(folder) / name for name in names)):
        if path.is_file():
            return path
    raise InputError(f"there is none of {', '.join(names)} in {folder!r}")


def _read(path: Path, columns: int, rows: int) -> Frame:
    frame = read_csv(path)
    if len(frame.columns) != columns or frame.rows < rows:
        raise InputError(
            f"{path} is not UCI's file: it has {frame.rows:,} rows of {len(frame.columns)} columns; {columns} columns "
            f"and at least {rows:,} rows were expected"
        )
    return frame
