"""The pseudoinverse classifier against least squares."""

import numpy as np
import pytest
from torch import nn

from imix import InputError
from imix.evaluation import PInv
from imix.probes.pinv import pinv
from tests.probes.helpers import blobs, encoded


def test_pinv_is_least_squares_onto_one_hot_labels():
    train, test = blobs(90, noise=3), blobs(60, seed=1, noise=3)
    weight = np.linalg.lstsq(train.inputs.double().numpy(), np.eye(3)[train.labels], rcond=None)[0]
    expected = ((test.inputs.double().numpy() @ weight).argmax(1) == test.labels.numpy()).mean()
    assert pinv(encoded(train), encoded(test), 3) == pytest.approx(expected)


def test_pinv_is_stable_with_rank_deficient_features():
    train, test = blobs(90), blobs(60, seed=1)
    widen = nn.Sequential(nn.Linear(5, 64, bias=False))
    plain, wide = pinv(encoded(train), encoded(test), 3), pinv(encoded(train, widen), encoded(test, widen), 3)
    assert plain == wide > 0.9
    assert PInv().cutoff > 0


def test_invalid_cutoff_is_rejected():
    with pytest.raises(InputError, match=r"cutoff must be at least 0 and less than 1; got -1\.0"):
        PInv(cutoff=-1.0)
