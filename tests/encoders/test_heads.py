"""Projection heads."""

import pytest
import torch
from torch import nn

import imix
from imix.encoders import build_head
from imix.encoders.heads import HEADS
from tests.encoders.helpers import layer_names


@pytest.mark.parametrize(
    ("name", "layers"),
    [
        ("mlpbn", ["Linear", "BatchNorm1d", "ReLU", "Linear", "BatchNorm1d"]),
        ("mlpbn1", ["Linear", "BatchNorm1d", "ReLU", "Linear"]),
        ("mlp", ["Linear", "ReLU", "Linear"]),
        ("linear", ["Linear"]),
    ],
)
def test_head_has_the_layers_that_its_name_says(name, layers):
    head = build_head(name, inputs=10, hidden=6, outputs=4)
    assert layer_names(head) == layers
    linear = [layer for layer in head if isinstance(layer, nn.Linear)]
    sizes = [(10, 4)] if name == "linear" else [(10, 6), (6, 4)]
    assert [(layer.in_features, layer.out_features) for layer in linear] == sizes
    norms = [layer for layer in head if isinstance(layer, nn.BatchNorm1d)]
    assert [norm.num_features for norm in norms] == [6, 4][: len(norms)]
    assert head(torch.randn(5, 10)).shape == (5, 4)


def test_every_head_in_the_list_can_be_built():
    assert {name: build_head(name, 4, 4, 4)(torch.randn(3, 4)).shape for name in HEADS} == dict.fromkeys(HEADS, (3, 4))


@pytest.mark.parametrize("name", ["", "MLP", "mlpbn2", "bn"])
def test_unknown_head_error_lists_the_valid_names(name):
    with pytest.raises(imix.InputError, match=r"choose from mlpbn, mlpbn1, mlp, linear") as error:
        build_head(name, 4, 4, 4)
    assert repr(name) in str(error.value)


@pytest.mark.parametrize(
    ("method", "layers"),
    [
        (imix.NPair, ["Linear", "BatchNorm1d", "ReLU", "Linear", "BatchNorm1d"]),
        (imix.SimCLR, ["Linear", "BatchNorm1d", "ReLU", "Linear", "BatchNorm1d"]),
        (imix.MoCo, ["Linear", "BatchNorm1d", "ReLU", "Linear"]),
        (imix.BYOL, ["Linear", "BatchNorm1d", "ReLU", "Linear"]),
    ],
)
def test_default_heads_match_the_paper(method, layers):
    """As in the CIFAR experiments: a hidden layer with the width of the encoder, 128 outputs."""
    head = method(nn.Linear(5, 20)).head
    assert layer_names(head) == layers
    assert head[0].weight.shape == (20, 20)
    assert head[3].weight.shape == (128, 20)
