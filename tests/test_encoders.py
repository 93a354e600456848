"""Encoders and heads: their shapes, their layers, and the names they are built by."""

import math
import sys
from functools import cache

import pytest
import torch
import torchvision
from torch import nn
from torch.testing import assert_close

import imix
from imix.encoders import MLP, build, head, lent_to, resnet, width_of
from imix.encoders.heads import HEADS
from imix.encoders.mlp import ColumnEmbedding, Maxout
from imix.encoders.small import Convolutions, small_mlp

DEPTHS = (18, 34, 50, 101, 152)


def on_meta(make) -> nn.Module:
    with torch.device("meta"):
        return make()


def layers_of(module: nn.Module) -> list[str]:
    return [type(layer).__name__ for layer in module]


# The tabular network.


@pytest.mark.parametrize("pieces", [1, 2, 4])
def test_maxout_is_the_maximum_over_consecutive_units(pieces):
    x = torch.randn(5, 12)
    expected = [[max(row[at : at + pieces]) for at in range(0, 12, pieces)] for row in x.tolist()]
    assert_close(Maxout(pieces)(x), torch.tensor(expected), rtol=0, atol=0)


def test_maxout_sends_its_gradient_to_the_largest_unit():
    x = torch.tensor([[1.0, 3.0, 2.0, 0.0, -4.0, -1.0, -2.0, -3.0]], requires_grad=True)
    Maxout(4)(x).sum().backward()
    assert x.grad.tolist() == [[0, 1, 0, 0, 0, 1, 0, 0]]


def test_mlp_has_the_papers_layers():
    mlp = on_meta(lambda: MLP(54))
    hidden = ["Linear", "BatchNorm1d", "ReLU"]
    assert layers_of(mlp.layers) == ["Flatten", *4 * hidden, "Linear", "Maxout"]
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


def test_mlp_is_its_layers_one_after_the_other():
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
def test_mlp_takes_any_widths(widths, maxout, width):
    mlp = MLP(9, widths=widths, maxout=maxout)
    assert mlp.width == width_of(mlp) == width
    assert mlp(torch.randn(5, 9)).shape == (5, width)
    assert sum(isinstance(layer, nn.Linear) for layer in mlp.layers) == len(widths)
    assert sum(isinstance(layer, nn.BatchNorm1d) for layer in mlp.layers) == len(widths) - 1


def test_mlp_flattens_samples_of_any_shape():
    mlp = MLP(24, widths=(8, 8)).eval()
    x = torch.randn(5, 2, 3, 4)
    assert_close(mlp(x), mlp(x.flatten(1)), rtol=0, atol=0)


def test_mlp_with_the_papers_column_groups():
    mlp = on_meta(lambda: MLP(54, groups=(10, 4, 40)))
    assert layers_of(mlp.layers)[:3] == ["Flatten", "ColumnEmbedding", "Linear"]
    assert [(e.in_features, e.out_features) for e in mlp.layers[1].embeddings] == [(10, 64), (4, 64), (40, 64)]
    assert mlp.layers[2].in_features == 192
    assert mlp(torch.empty(6, 54, device="meta")).shape == (6, 2048)


def test_each_column_group_has_a_linear_layer_of_its_own():
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


def test_columns_reach_their_own_group_only():
    embedding = ColumnEmbedding((2, 3))
    x = torch.randn(1, 5)
    moved = x.clone()
    moved[0, 3] += 1
    same = embedding(x)[0] == embedding(moved)[0]
    assert same[:64].all()
    assert not same[64:].any()


def test_last_width_must_be_a_multiple_of_maxout():
    with pytest.raises(imix.InputError, match=r"multiple of maxout=4; got 10"):
        MLP(5, widths=(8, 10))


@pytest.mark.parametrize("groups", [(10, 4), (10, 4, 41)])
def test_column_groups_must_cover_the_table(groups):
    with pytest.raises(imix.InputError, match=r"column groups .* must sum to the 54 columns"):
        MLP(54, widths=(8, 8), groups=groups)


# ResNets. Those without data are made once: tests only look at them.


@cache
def meta_resnet(depth: int, stem: str) -> nn.Module:
    return on_meta(lambda: resnet(depth, stem=stem))


@pytest.mark.parametrize(("depth", "width"), [(18, 512), (34, 512), (50, 2048), (101, 2048), (152, 2048)])
@pytest.mark.parametrize("stem", ["small", "standard"])
def test_resnet_gives_its_width(depth, width, stem):
    model = meta_resnet(depth, stem)
    assert model.width == width_of(model) == width
    assert isinstance(model.fc, nn.Identity)
    assert model(torch.empty(2, 3, 32, 32, device="meta")).shape == (2, width)


@pytest.mark.parametrize("stem", ["small", "standard"])
@pytest.mark.parametrize("channels", [1, 3, 5])
def test_resnet_takes_any_channels(stem, channels):
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
def test_standard_stem_is_torchvisions(depth):
    model = meta_resnet(depth, "standard")
    assert model.conv1.kernel_size == (7, 7)
    assert model.conv1.stride == (2, 2)
    assert model.conv1.padding == (3, 3)
    assert model.conv1.bias is None
    assert isinstance(model.maxpool, nn.MaxPool2d)


@pytest.mark.parametrize("depth", DEPTHS)
def test_standard_resnet_is_torchvisions_without_the_classifier(depth):
    ours = meta_resnet(depth, "standard")
    theirs = on_meta(getattr(torchvision.models, f"resnet{depth}"))
    expected = {name: p.shape for name, p in theirs.named_parameters() if not name.startswith("fc.")}
    assert {name: p.shape for name, p in ours.named_parameters()} == expected


@pytest.mark.parametrize("depth", [50, 101, 152])
def test_stride_is_in_the_3x3_of_a_bottleneck(depth):
    block = meta_resnet(depth, "small").layer2[0]
    assert block.conv1.stride == (1, 1)
    assert block.conv2.stride == (2, 2)


def test_small_stem_keeps_the_resolution():
    model = meta_resnet(18, "small")
    x = torch.empty(2, 3, 32, 32, device="meta")
    assert model.maxpool(model.relu(model.bn1(model.conv1(x)))).shape == (2, 64, 32, 32)
    standard = meta_resnet(18, "standard")
    assert standard.maxpool(standard.conv1(x)).shape == (2, 64, 8, 8)


def test_resnet_is_initialised_as_the_authors_did():
    """Convolutions kaiming fan-out, the replaced stem among them; residual batch normalisation not at zero."""
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


def test_unknown_depth_is_refused():
    with pytest.raises(imix.InputError, match=r"depth 20; choose from 18, 34, 50, 101, 152"):
        resnet(20)


# The small encoders.


@pytest.mark.parametrize("size", [1, 2, 3, 7, 16])
def test_convolutions_take_sequences_of_any_length(size):
    encoder = Convolutions(2, axes=1)
    assert encoder.width == width_of(encoder) == 128
    features = encoder(torch.randn(3, 2, size))
    assert features.shape == (3, 128)
    assert features.isfinite().all()


@pytest.mark.parametrize("size", [(1, 1), (2, 1), (1, 5), (3, 3), (8, 8), (9, 4)])
def test_convolutions_take_images_of_any_size(size):
    features = Convolutions(5, axes=2, widths=(4, 6))(torch.randn(3, 5, *size))
    assert features.shape == (3, 6)
    assert features.isfinite().all()


@pytest.mark.parametrize(("axes", "names"), [(1, ("Conv1d", "BatchNorm1d")), (2, ("Conv2d", "BatchNorm2d"))])
def test_convolutions_halve_after_the_first_layer_and_average(axes, names):
    encoder = Convolutions(3, axes=axes, widths=(4, 6, 8)).eval()
    assert layers_of(encoder.layers) == 3 * [*names, "ReLU"]
    assert [encoder.layers[i].stride for i in (0, 3, 6)] == [(1,) * axes, (2,) * axes, (2,) * axes]
    x = torch.randn(2, 3, *[8] * axes)
    maps = encoder.layers(x)
    assert maps.shape == (2, 8, *[2] * axes)
    assert_close(encoder(x), maps.mean(tuple(range(2, 2 + axes))))


def test_small_mlp_gives_256_features():
    encoder = small_mlp(20)
    assert encoder.width == 256
    assert encoder(torch.randn(3, 20)).shape == (3, 256)


# By name.


@pytest.mark.parametrize(
    ("name", "shape", "kind", "width"),
    [
        ("small", (20,), MLP, 256),
        ("small", (2, 16), Convolutions, 128),
        ("small", (3, 8, 8), Convolutions, 128),
        ("small", (2, 2, 3, 2), MLP, 256),
        ("mlp", (20,), MLP, 2048),
        ("mlp", (3, 4, 4), MLP, 2048),
        ("mlp:32-64", (20,), MLP, 16),
        ("mlp:32-16-8", (2, 10), MLP, 2),
        ("mlp:8", (20,), MLP, 2),
        *[(f"resnet{depth}", (3, 32, 32), torchvision.models.ResNet, 512 if depth < 50 else 2048) for depth in DEPTHS],
    ],
)
def test_build_gives_an_encoder_that_suits_the_shape(name, shape, kind, width):
    encoder = on_meta(lambda: build(name, shape))
    assert isinstance(encoder, kind)
    assert encoder.width == width
    assert encoder(torch.empty(4, *shape, device="meta")).shape == (4, width)


def test_build_reads_widths_from_the_name():
    linear = [layer for layer in build("mlp:32-16-8", (20,)).layers if isinstance(layer, nn.Linear)]
    assert [(layer.in_features, layer.out_features) for layer in linear] == [(20, 32), (32, 16), (16, 8)]


@pytest.mark.parametrize(
    ("name", "shape", "kernel"),
    [
        ("resnet18", (3, 32, 32), 3),
        ("resnet18", (3, 64, 64), 3),
        ("resnet18", (3, 65, 65), 7),
        ("resnet18", (3, 32, 65), 7),
        ("resnet50", (1, 224, 224), 7),
        ("resnet50:small", (3, 224, 224), 3),
        ("resnet50:standard", (3, 32, 32), 7),
    ],
)
def test_stem_follows_the_image_side_unless_the_name_says(name, shape, kernel):
    model = on_meta(lambda: build(name, shape))
    assert model.conv1.kernel_size == (kernel, kernel)
    assert isinstance(model.maxpool, nn.Identity if kernel == 3 else nn.MaxPool2d)
    assert model.conv1.in_channels == shape[0]


@pytest.mark.parametrize(
    "name", ["vgg16", "", "mlp:", "mlp:12-", "mlp:a", "resnet", "resnet18:tiny", "Small", "small "]
)
def test_unknown_encoder_is_refused_with_the_names_there_are(name):
    with pytest.raises(imix.InputError, match=r"choose from .*small.*mlp.*resnet18.*resnet152") as error:
        build(name, (3, 32, 32))
    assert repr(name) in str(error.value)


def test_unknown_resnet_depth_is_refused_by_name():
    for shape in ((3, 32, 32), (20,)):
        with pytest.raises(imix.InputError, match=r"depth 19; choose from 18, 34, 50, 101, 152"):
            build("resnet19", shape)


@pytest.mark.parametrize("shape", [(20,), (1, 32)])
def test_resnet_needs_images(shape):
    with pytest.raises(imix.InputError, match=r"'resnet18' takes images \(C, H, W\)") as error:
        build("resnet18", shape)
    assert str(shape) in str(error.value)


# Heads.


@pytest.mark.parametrize(
    ("kind", "layers"),
    [
        ("mlpbn", ["Linear", "BatchNorm1d", "ReLU", "Linear", "BatchNorm1d"]),
        ("mlpbn1", ["Linear", "BatchNorm1d", "ReLU", "Linear"]),
        ("mlp", ["Linear", "ReLU", "Linear"]),
        ("linear", ["Linear"]),
    ],
)
def test_head_has_the_layers_of_its_name(kind, layers):
    made = head(kind, inputs=10, hidden=6, outputs=4)
    assert layers_of(made) == layers
    linear = [layer for layer in made if isinstance(layer, nn.Linear)]
    sizes = [(10, 4)] if kind == "linear" else [(10, 6), (6, 4)]
    assert [(layer.in_features, layer.out_features) for layer in linear] == sizes
    norms = [layer for layer in made if isinstance(layer, nn.BatchNorm1d)]
    assert [norm.num_features for norm in norms] == [6, 4][: len(norms)]
    assert made(torch.randn(5, 10)).shape == (5, 4)


def test_every_head_named_can_be_made():
    assert {kind: head(kind, 4, 4, 4)(torch.randn(3, 4)).shape for kind in HEADS} == dict.fromkeys(HEADS, (3, 4))


@pytest.mark.parametrize("kind", ["", "MLP", "mlpbn2", "bn"])
def test_unknown_head_is_refused_with_the_names_there_are(kind):
    with pytest.raises(imix.InputError, match=r"choose from mlpbn, mlpbn1, mlp, linear") as error:
        head(kind, 4, 4, 4)
    assert repr(kind) in str(error.value)


@pytest.mark.parametrize(
    ("method", "layers"),
    [
        (imix.NPair, ["Linear", "BatchNorm1d", "ReLU", "Linear", "BatchNorm1d"]),
        (imix.SimCLR, ["Linear", "BatchNorm1d", "ReLU", "Linear", "BatchNorm1d"]),
        (imix.MoCo, ["Linear", "BatchNorm1d", "ReLU", "Linear"]),
        (imix.BYOL, ["Linear", "BatchNorm1d", "ReLU", "Linear"]),
    ],
)
def test_methods_have_the_papers_heads(method, layers):
    """As in the CIFAR experiments: hidden layer of the encoder's width, 128 out."""
    made = method(nn.Linear(5, 20)).head
    assert layers_of(made) == layers
    assert made[0].weight.shape == (20, 20)
    assert made[3].weight.shape == (128, 20)


def test_models_of_timm_are_encoders_without_their_classifier(tmp_path):
    encoder = build("timm:resnet10t", (1, 32, 32))
    assert width_of(encoder) == encoder(torch.rand(2, 1, 32, 32)).shape[1] == 512
    settings = imix.Settings(encoder="timm:resnet10t", epochs=1, batch_size=4, device="cpu")
    run = imix.pretrain(torch.rand(8, 3, 32, 32), settings, out=tmp_path / "run", progress=False)
    x = torch.rand(2, 3, 32, 32)
    assert torch.equal(imix.load_encoder(tmp_path / "run")(x), run.encoder(x))
    with pytest.raises(imix.InputError, match="timm cannot make 'nosuch'"):
        build("timm:nosuch", (3, 32, 32))
    with pytest.raises(imix.InputError, match=r"take images \(C, H, W\)"):
        build("timm:resnet10t", (7,))


@pytest.mark.parametrize("name", ["mobilenetv3_small_050", "ghostnet_050", "resnet10t"])
def test_the_width_of_a_model_of_timm_is_what_it_gives(name):
    encoder = build(f"timm:{name}", (3, 32, 32)).eval()
    assert encoder(torch.randn(2, 3, 32, 32)).shape == (2, width_of(encoder))


def test_timm_that_is_not_installed_is_asked_for(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(imix.InputError, match=r"pip install 'imix-ssl\[timm\]'"):
        build("timm:resnet10t", (3, 32, 32))


def test_a_module_that_was_lent_is_where_it_was_afterwards():
    seen = []

    class Moved(torch.nn.Linear):
        def to(self, device):
            seen.append(device.type)
            return self

    with lent_to(torch.device("cuda"), Moved(2, 2)):
        assert seen == ["cuda"]
    assert seen == ["cuda", "cpu"]
