"""Higgs from the UCI repository, 28 numeric columns, 2 classes: 1,000,000 random training rows, 500,000 test rows."""

from functools import partial

from imix.data.named._higgs import AVAILABILITY, FILES, build_recipe, load_higgs
from imix.data.named.record import NamedDataset

N_TRAIN = 1_000_000

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
    load=partial(load_higgs, n_train=N_TRAIN),
    recipe=build_recipe(short_epochs=20),
)
