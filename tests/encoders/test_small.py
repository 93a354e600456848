"""The default encoders."""

import pytest
import torch
from torch.testing import assert_close

from imix.encoders import build, infer_width
from imix.encoders.small import SmallConvNet
from tests.encoders.helpers import layer_names


@pytest.mark.parametrize("size", [1, 2, 3, 7, 16])
def test_conv_net_accepts_sequences_of_any_length(size):
    encoder = SmallConvNet(2, axes=1)
    assert encoder.width == infer_width(encoder) == 128
    features = encoder(torch.randn(3, 2, size))
    assert features.shape == (3, 128)
    assert features.isfinite().all()


@pytest.mark.parametrize("size", [(1, 1), (2, 1), (1, 5), (3, 3), (8, 8), (9, 4)])
def test_conv_net_accepts_images_of_any_size(size):
    features = SmallConvNet(5, axes=2, widths=(4, 6))(torch.randn(3, 5, *size))
    assert features.shape == (3, 6)
    assert features.isfinite().all()


@pytest.mark.parametrize(("axes", "names"), [(1, ("Conv1d", "BatchNorm1d")), (2, ("Conv2d", "BatchNorm2d"))])
def test_conv_net_halves_the_sides_after_the_first_layer_and_averages(axes, names):
    encoder = SmallConvNet(3, axes=axes, widths=(4, 6, 8)).eval()
    assert layer_names(encoder.layers) == 3 * [*names, "ReLU"]
    assert [encoder.layers[i].stride for i in (0, 3, 6)] == [(1,) * axes, (2,) * axes, (2,) * axes]
    x = torch.randn(2, 3, *[8] * axes)
    maps = encoder.layers(x)
    assert maps.shape == (2, 8, *[2] * axes)
    assert_close(encoder(x), maps.mean(tuple(range(2, 2 + axes))))


def test_small_mlp_has_256_features():
    encoder = build("small", (20,))
    assert encoder.width == 256
    assert encoder(torch.randn(3, 20)).shape == (3, 256)
