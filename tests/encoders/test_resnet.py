"""ResNets: stems, widths and initialization, against torchvision."""

import math
from functools import cache

import pytest
import torch
import torchvision
from torch import nn

import imix
from imix.encoders import infer_width, resnet
from imix.encoders.resnet import DEPTHS
from tests.encoders.helpers import on_meta


@cache
def meta_resnet(depth: int, stem: str) -> nn.Module:
    return on_meta(lambda: resnet(depth, stem=stem))


@pytest.mark.slow
@pytest.mark.parametrize(("depth", "width"), [(18, 512), (34, 512), (50, 2048), (101, 2048), (152, 2048)])
@pytest.mark.parametrize("stem", ["small", "standard"])
def test_resnet_width_is_its_output_dimension(depth, width, stem):
    model = meta_resnet(depth, stem)
    assert model.width == infer_width(model) == width
    assert isinstance(model.fc, nn.Identity)
    assert model(torch.empty(2, 3, 32, 32, device="meta")).shape == (2, width)


@pytest.mark.parametrize("stem", ["small", "standard"])
@pytest.mark.parametrize("channels", [1, 3, 5])
def test_resnet_accepts_any_number_of_channels(stem, channels):
    model = on_meta(lambda: resnet(18, channels=channels, stem=stem))
    assert model.conv1.in_channels == channels
    assert model(torch.empty(2, channels, 32, 32, device="meta")).shape == (2, 512)


@pytest.mark.parametrize("depth", DEPTHS)
def test_small_stem_is_one_3x3_convolution_without_pooling(depth):
    model = meta_resnet(depth, "small")
    assert model.conv1.kernel_size == (3, 3)
    assert model.conv1.stride == (1, 1)
    assert model.conv1.padding == (1, 1)
    assert model.conv1.bias is None
    assert isinstance(model.maxpool, nn.Identity)


@pytest.mark.parametrize("depth", DEPTHS)
def test_standard_stem_matches_torchvision(depth):
    model = meta_resnet(depth, "standard")
    assert model.conv1.kernel_size == (7, 7)
    assert model.conv1.stride == (2, 2)
    assert model.conv1.padding == (3, 3)
    assert model.conv1.bias is None
    assert isinstance(model.maxpool, nn.MaxPool2d)


@pytest.mark.parametrize("depth", DEPTHS)
def test_standard_resnet_matches_torchvision_without_its_classifier(depth):
    ours = meta_resnet(depth, "standard")
    theirs = on_meta(getattr(torchvision.models, f"resnet{depth}"))
    expected = {name: p.shape for name, p in theirs.named_parameters() if not name.startswith("fc.")}
    assert {name: p.shape for name, p in ours.named_parameters()} == expected


@pytest.mark.parametrize("depth", [50, 101, 152])
def test_bottleneck_stride_is_in_the_3x3_convolution(depth):
    block = meta_resnet(depth, "small").layer2[0]
    assert block.conv1.stride == (1, 1)
    assert block.conv2.stride == (2, 2)


def test_small_stem_keeps_the_resolution():
    model = meta_resnet(18, "small")
    x = torch.empty(2, 3, 32, 32, device="meta")
    assert model.maxpool(model.relu(model.bn1(model.conv1(x)))).shape == (2, 64, 32, 32)
    standard = meta_resnet(18, "standard")
    assert standard.maxpool(standard.conv1(x)).shape == (2, 64, 8, 8)


def test_resnet_initialization_matches_the_authors():
    """Kaiming fan-out for convolutions, including the replaced stem; residual batch normalization starts at one."""
    torch.manual_seed(0)
    model = resnet(18, channels=3)
    for conv in (model.conv1, model.layer1[0].conv1):
        expected = math.sqrt(2 / (conv.out_channels * 9))
        assert conv.weight.std().item() == pytest.approx(expected, rel=0.05)
    assert all((norm.weight == 1).all() for norm in model.modules() if isinstance(norm, nn.BatchNorm2d))


def test_resnet_runs_on_small_images():
    torch.manual_seed(0)
    model = resnet(18, channels=1)
    features = model(torch.randn(2, 1, 8, 8))
    assert features.shape == (2, 512)
    assert features.isfinite().all()
    features.sum().backward()
    assert model.conv1.weight.grad.any()


def test_unknown_depth_is_rejected():
    with pytest.raises(imix.InputError, match=r"depth 20; choose from 18, 34, 50, 101, 152"):
        resnet(20)
