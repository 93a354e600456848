"""Fake data for the smoke budget."""

import pytest

from imix.data.named import DATASETS
from imix.reproduce.fake_data import fake_data


@pytest.mark.parametrize("name", [name for name, dataset in DATASETS.items() if dataset.recipe])
def test_fake_data_has_the_shape_of_the_real_data(name):
    data = fake_data(name)
    assert data.name == name and data.test is not None and data.train.labels is not None
    shape = {"speech_commands": (1, 16000), "covtype": (54,)}.get(name, (28,) if "higgs" in name else (3, 32, 32))
    assert data.train.shape == shape
    assert (data.table is not None) == (len(shape) == 1)
