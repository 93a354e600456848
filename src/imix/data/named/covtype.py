"""Forest CoverType from the UCI repository: 10 numeric and 2 categorical columns, 7 classes."""

from pathlib import Path
from typing import TYPE_CHECKING

from imix.data.named._uci import TABLE_SETTINGS, find_file, int_labels, read_uci_file
from imix.data.named.record import NamedDataset, PaperRecipe
from imix.errors import InputError
from imix.output import print_message
from imix.settings import DataSettings

if TYPE_CHECKING:
    import numpy as np

    from imix.data.arrays import RawData

FILES = ("covtype.data.gz", "covtype.data", "covtype.csv")
N_TRAIN = 15_120  # the first rows; all others are test rows
NUMERIC_COLUMNS = (
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
CATEGORICAL_COLUMNS = {"Wilderness_Area": 4, "Soil_Type": 40}  # number of categories; one-hot in the file


def load(data_settings: DataSettings) -> "RawData":
    """15,120 training and 565,892 test rows, from UCI's file in `data_dir` or downloaded by scikit-learn."""
    import pyarrow as pa

    from imix.data.arrays import RawData
    from imix.data.tables.frame import as_frame

    x, y = _read_file(data_settings.data_dir) if data_settings.data_dir else _download()
    columns = {name: pa.array(x[:, i]) for i, name in enumerate(NUMERIC_COLUMNS)}
    start = len(NUMERIC_COLUMNS)
    for name, n_categories in CATEGORICAL_COLUMNS.items():
        codes = x[:, start : start + n_categories].argmax(1)  # exactly one of the columns is 1 in every row
        categories = [str(i + 1) for i in range(n_categories)]  # includes those that no training row has
        columns[name] = pa.DictionaryArray.from_arrays(codes, categories)
        start += n_categories
    frame = as_frame(pa.table(columns), "covtype")
    return RawData(frame.slice(0, N_TRAIN), y[:N_TRAIN], frame.slice(N_TRAIN, len(x)), y[N_TRAIN:])


def _read_file(data_dir: str) -> "tuple[np.ndarray, np.ndarray]":
    import numpy as np

    path = find_file(data_dir, FILES)
    n_columns = len(NUMERIC_COLUMNS) + sum(CATEGORICAL_COLUMNS.values()) + 1
    frame = read_uci_file(path, n_columns, min_rows=N_TRAIN + 1)
    *columns, labels = [frame.column(name).to_numpy() for name in frame.columns]
    return np.column_stack(columns), int_labels(labels, path)


def _download() -> "tuple[np.ndarray, np.ndarray]":
    from sklearn.datasets import fetch_covtype, get_data_home

    from imix.runtime.distributed import rank_0_first

    try:
        with rank_0_first():  # it downloads the data for all ranks
            if not (Path(get_data_home()) / "covertype").exists():
                print_message("downloading covtype (11 MB)")
            x, y = fetch_covtype(return_X_y=True)
    except OSError as error:
        raise InputError(
            f"cannot download covtype ({error}); download {FILES[0]} of UCI's data set 31 and pass its folder as "
            "`data_dir`"
        ) from error
    return x, y


DATASETS = [
    NamedDataset(
        name="covtype",
        title="CovType",
        kind="table",
        summary="581,012 rows of 12 columns, 7 classes",
        options=("data_dir", "columns"),
        n_train=N_TRAIN,
        n_classes=7,
        marker_files=FILES,
        load=load,
        recipe=PaperRecipe(
            settings=TABLE_SETTINGS | {"alpha": 2.0, "augment_columns": ("numeric",)},
            standardize="all",
        ),
    )
]
