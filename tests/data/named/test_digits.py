"""scikit-learn's digits."""

import torch

from imix.data import load


def test_the_split_of_digits_is_fixed():
    data = load("digits")
    assert (len(data.train), len(data.test), data.train.shape, data.train.n_classes) == (1297, 500, (1, 8, 8), 10)
    assert torch.equal(data.train.inputs, load("digits").train.inputs)
    assert data.train.inputs.min() >= 0 and data.train.inputs.max() <= 1
