"""Higgs with 1,000,000 training rows, from the UCI repository: 28 numeric columns, 2 classes."""

from typing import TYPE_CHECKING

from imix.data.named._higgs import AVAILABILITY, FILES, build_recipe, load_higgs
from imix.data.named.record import NamedDataset
from imix.settings import DataSettings

if TYPE_CHECKING:
    from imix.data.arrays import RawData

N_TRAIN = 1_000_000


def load(data_settings: DataSettings) -> "RawData":
    """1,000,000 training rows, drawn with a fixed seed, and 500,000 test rows."""
    return load_higgs(data_settings, N_TRAIN)


DATASET = NamedDataset(
    name="higgs1m",
    title="Higgs1M",
    kind="table",
    summary="1,000,000 training and 500,000 test rows of 28 columns, 2 classes",
    availability=AVAILABILITY,
    options=("data_dir", "columns"),
    n_train=N_TRAIN,
    n_classes=2,
    marker_files=FILES,
    load=load,
    recipe=build_recipe(short_epochs=20),
)
