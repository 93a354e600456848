"""The tabular network: its layers, column groups and maxout."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import imix
from imix.encoders import MLP, infer_width
from imix.encoders.mlp import ColumnEmbedding, Maxout
from tests.encoders.helpers import layer_names, on_meta


@pytest.mark.parametrize("pieces", [1, 2, 4])
def test_maxout_is_the_maximum_over_consecutive_units(pieces):
    x = torch.randn(5, 12)
    expected = [[max(row[i : i + pieces]) for i in range(0, 12, pieces)] for row in x.tolist()]
    assert_close(Maxout(pieces)(x), torch.tensor(expected), rtol=0, atol=0)


def test_maxout_sends_its_gradient_to_the_largest_unit():
    x = torch.tensor([[1.0, 3.0, 2.0, 0.0, -4.0, -1.0, -2.0, -3.0]], requires_grad=True)
    Maxout(4)(x).sum().backward()
    assert x.grad.tolist() == [[0, 1, 0, 0, 0, 1, 0, 0]]


def test_mlp_has_the_layers_of_the_paper():
    mlp = on_meta(lambda: MLP(54))
    hidden = ["Linear", "BatchNorm1d", "ReLU"]
    assert layer_names(mlp.layers) == ["Flatten", *4 * hidden, "Linear", "Maxout"]
    linear = [layer for layer in mlp.layers if isinstance(layer, nn.Linear)]
    assert [(layer.in_features, layer.out_features) for layer in linear] == [
        (54, 2048),
        (2048, 2048),
        (2048, 4096),
        (4096, 4096),
        (4096, 8192),
    ]
    assert mlp.layers[-1].pieces == 4
    assert mlp.width == 2048
    assert mlp(torch.empty(6, 54, device="meta")).shape == (6, 2048)


def test_mlp_matches_its_layers_computed_by_hand():
    torch.manual_seed(0)
    mlp = MLP(7, widths=(6, 5, 8), maxout=2)
    x = torch.randn(10, 7)
    h = x
    for linear, norm in ((mlp.layers[1], mlp.layers[2]), (mlp.layers[4], mlp.layers[5])):
        h = h @ linear.weight.T + linear.bias
        h = (h - h.mean(0)) / (h.var(0, unbiased=False) + norm.eps).sqrt() * norm.weight + norm.bias
        h = h.clamp(min=0)
    h = h @ mlp.layers[7].weight.T + mlp.layers[7].bias
    expected = torch.maximum(h[:, 0::2], h[:, 1::2])
    assert_close(mlp(x), expected, rtol=1e-5, atol=1e-5)
    assert mlp.width == 4


@pytest.mark.parametrize(("widths", "maxout", "width"), [((8,), 4, 2), ((16, 12), 3, 4), ((4, 4, 4, 4), 1, 4)])
def test_mlp_accepts_any_widths(widths, maxout, width):
    mlp = MLP(9, widths=widths, maxout=maxout)
    assert mlp.width == infer_width(mlp) == width
    assert mlp(torch.randn(5, 9)).shape == (5, width)
    assert sum(isinstance(layer, nn.Linear) for layer in mlp.layers) == len(widths)
    assert sum(isinstance(layer, nn.BatchNorm1d) for layer in mlp.layers) == len(widths) - 1


def test_mlp_flattens_samples_of_any_shape():
    mlp = MLP(24, widths=(8, 8)).eval()
    x = torch.randn(5, 2, 3, 4)
    assert_close(mlp(x), mlp(x.flatten(1)), rtol=0, atol=0)


def test_mlp_embeds_the_column_groups_of_the_paper():
    mlp = on_meta(lambda: MLP(54, groups=(10, 4, 40)))
    assert layer_names(mlp.layers)[:3] == ["Flatten", "ColumnEmbedding", "Linear"]
    assert [(e.in_features, e.out_features) for e in mlp.layers[1].embeddings] == [(10, 64), (4, 64), (40, 64)]
    assert mlp.layers[2].in_features == 192
    assert mlp(torch.empty(6, 54, device="meta")).shape == (6, 2048)


def test_column_embedding_matches_a_plain_loop():
    torch.manual_seed(0)
    embedding = ColumnEmbedding((3, 1, 70))
    x = torch.randn(4, 74)
    expected = torch.empty(4, 64 + 64 + 70)
    for row in range(4):
        for group, (start, stop) in enumerate([(0, 3), (3, 4), (4, 74)]):
            layer = embedding.embeddings[group]
            for unit in range(len(layer.weight)):
                value = sum(layer.weight[unit, c - start] * x[row, c] for c in range(start, stop)) + layer.bias[unit]
                expected[row, 64 * group + unit] = value.detach()
    assert_close(embedding(x).detach(), expected)


def test_a_column_affects_only_the_embedding_of_its_group():
    embedding = ColumnEmbedding((2, 3))
    x = torch.randn(1, 5)
    changed = x.clone()
    changed[0, 3] += 1
    same = embedding(x)[0] == embedding(changed)[0]
    assert same[:64].all()
    assert not same[64:].any()


def test_last_width_must_be_a_multiple_of_maxout():
    with pytest.raises(imix.InputError, match=r"multiple of maxout=4; got 10"):
        MLP(5, widths=(8, 10))


@pytest.mark.parametrize("groups", [(10, 4), (10, 4, 41)])
def test_column_groups_must_sum_to_the_inputs(groups):
    with pytest.raises(
        imix.InputError, match=rf"groups must sum to the number of inputs, 54; got \({groups[0]}, {groups[1]}"
    ):
        MLP(54, widths=(8, 8), groups=groups)
