"""Code and settings shared by the tables from the UCI repository: Forest CoverType and Higgs."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from imix.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from imix.data.tables.frame import Frame

TABLE_SETTINGS: dict[str, Any] = {
    "encoder": "mlp",
    "head": "mlpbn",
    "temperature": 0.1,
    "batch_size": 512,
    "epochs": 500,
    "masking": 0.2,
    "resampling": 0.0,
}


def find_file(data_dir: str, names: tuple[str, ...]) -> Path:
    """`data_dir` if it is a file, or the first of the named files in it."""
    for path in (Path(data_dir), *(Path(data_dir) / name for name in names)):
        if path.is_file():
            return path
    raise InputError(f"`data_dir` {data_dir!r} contains none of {', '.join(names)}")


def read_uci_file(path: Path, n_columns: int, min_rows: int) -> "Frame":
    """Read a CSV file without a header and check its size."""
    from imix.data.tables.csv_file import read_csv

    frame = read_csv(path)
    if len(frame.columns) != n_columns or frame.rows < min_rows:
        raise InputError(
            f"{path} is not the file from UCI: it has {frame.rows:,} rows and {len(frame.columns)} columns; expected "
            f"at least {min_rows:,} rows and {n_columns} columns"
        )
    return frame


def int_labels(labels: "np.ndarray", path: Path) -> "np.ndarray":
    """Labels as integers; a missing label is an error."""
    import numpy as np

    if np.isnan(labels).any():
        raise InputError(f"{path} has no label in row {int(np.isnan(labels).argmax())}")
    return labels.astype(int)
