"""Standardization of channels and columns."""

import pytest
import torch
from torch.testing import assert_close

from imix.encoders.standardize import Standardize
from tests.augment.helpers import byte_images


def test_bytes_are_standardized_by_the_mean_and_std_of_their_float_values():
    x = torch.from_numpy(byte_images(50)) // 3
    standardize = Standardize(3).fit(x)
    floats = (x / 255).double().transpose(0, 1).flatten(1)
    assert_close(standardize.mean.double(), floats.mean(1), rtol=1e-5, atol=0)
    assert_close(standardize.std.double(), floats.std(1, unbiased=False), rtol=1e-5, atol=0)


@pytest.mark.parametrize("scale", [1e25, 1e-25])
def test_extreme_scales_neither_overflow_nor_underflow(scale):
    x = torch.randn(200, 2) * scale
    y = Standardize(2).fit(x)(x)
    assert y.std(0, correction=0).tolist() == pytest.approx([1, 1], rel=1e-3)


@pytest.mark.parametrize("shape", [(50, 3), (50, 3, 7), (50, 3, 4, 5)])
def test_each_channel_gets_mean_0_and_standard_deviation_1(shape):
    x = torch.randn(shape) * torch.tensor([1e-3, 1.0, 1e4]).view(1, 3, *[1] * (len(shape) - 2)) + 5
    y = Standardize(3).fit(x)(x).double()
    axes = [axis for axis in range(y.dim()) if axis != 1]
    assert y.mean(axes).abs().max() < 1e-3
    assert (y.std(axes, correction=0) - 1).abs().max() < 1e-3


def test_a_constant_column_stays_finite():
    x = torch.full((10, 2), 1e7) + torch.tensor([0.0, 1.0]) * torch.randn(10, 1) * 100
    y = Standardize(2).fit(x)(x)
    assert torch.isfinite(y).all()
    assert y[:, 0].abs().max() == 0
