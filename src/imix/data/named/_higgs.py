"""Code shared by the Higgs subsets: random training rows, and UCI's test split (the last 500,000 rows)."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from imix.data.named._uci import TABLE_SETTINGS, find_file, int_labels, read_uci_file
from imix.data.named.record import PaperRecipe
from imix.errors import InputError
from imix.settings import DataSettings

if TYPE_CHECKING:
    from imix.data.arrays import RawData

FILES = ("HIGGS.csv.gz", "HIGGS.csv")
AVAILABILITY = "read from `data_dir`, which must contain HIGGS.csv.gz"
N_TEST = 500_000  # the last rows
N_FEATURES = 28
SEED = 0  # for the choice of training rows


def build_recipe(short_epochs: int) -> PaperRecipe:
    """The paper's recipe for Higgs."""
    return PaperRecipe(
        settings=TABLE_SETTINGS | {"encoder": "mlp:bn"},
        short_settings={"epochs": short_epochs},
        protocol="pinv",
        standardize="all",
    )


def load_higgs(data_settings: DataSettings, n_train: int) -> "RawData":
    """Draw `n_train` training rows; the test rows are always the same."""
    import numpy as np

    from imix.data.arrays import RawData

    if data_settings.data_dir is None:
        raise InputError(f"download {FILES[0]} of UCI's data set 280 (2.6 GB) and pass its folder as `data_dir`")
    frame = read_uci_file(find_file(data_settings.data_dir, FILES), N_FEATURES + 1, min_rows=N_TEST + n_train)
    first_test_row = frame.rows - N_TEST
    rows = np.sort(np.random.default_rng(SEED).choice(first_test_row, n_train, replace=False))
    y = int_labels(frame.column("0").to_numpy(), Path(frame.name))
    x = replace(frame, data=frame.data.drop_columns("0"), all_numeric=True)
    return RawData(x.take(rows), y[rows], x.slice(first_test_row, frame.rows), y[first_test_row:])
