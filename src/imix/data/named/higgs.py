"""Higgs from the UCI repository, 28 numeric columns, 2 classes: random training rows and UCI's 500,000 test rows."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from imix.data.named._uci import TABLE_SETTINGS, find_file, int_labels, read_uci_file
from imix.data.named.record import NamedDataset, PaperRecipe
from imix.errors import InputError
from imix.settings import DataSettings

if TYPE_CHECKING:
    from imix.data.arrays import RawData

FILES = ("HIGGS.csv.gz", "HIGGS.csv")
N_TEST = 500_000  # the last rows
N_FEATURES = 28
SEED = 0  # for the choice of training rows


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


def _record(title: str, n_train: int, short_epochs: int) -> NamedDataset:
    return NamedDataset(
        name=title.lower(),
        title=title,
        kind="table",
        summary=f"{n_train:,} training and 500,000 test rows of 28 columns, 2 classes",
        availability="read from `data_dir`, which must contain HIGGS.csv.gz",
        options=("data_dir", "columns"),
        n_train=n_train,
        n_classes=2,
        marker_files=FILES,
        load=partial(load_higgs, n_train=n_train),
        recipe=PaperRecipe(
            settings=TABLE_SETTINGS | {"encoder": "mlp:bn"},
            short_settings={"epochs": short_epochs},
            protocol="pinv",
            standardize="all",
        ),
    )


DATASETS = [_record("Higgs100k", 100_000, short_epochs=100), _record("Higgs1M", 1_000_000, short_epochs=20)]
