"""Encoders built by name, their widths, and devices."""

import shutil
import sys

import pytest
import torch
import torchvision
from safetensors.torch import save_file
from torch import nn

import imix
from imix.encoders import MLP, build, infer_width, temporarily_on
from imix.encoders.small import SmallConvNet
from tests.encoders.helpers import on_meta


@pytest.mark.parametrize(
    ("name", "shape", "encoder_type", "width"),
    [
        ("small", (20,), MLP, 256),
        ("small", (2, 16), SmallConvNet, 128),
        ("small", (3, 8, 8), SmallConvNet, 128),
        ("small", (2, 2, 3, 2), MLP, 256),
        ("mlp", (20,), MLP, 2048),
        ("mlp", (3, 4, 4), MLP, 2048),
        ("mlp:32-64", (20,), MLP, 16),
        ("mlp:32-16-8", (2, 10), MLP, 2),
        ("mlp:8", (20,), MLP, 2),
        *[(f"resnet{depth}", (3, 32, 32), torchvision.models.ResNet, 512) for depth in (18, 34)],
        *[
            pytest.param(f"resnet{depth}", (3, 32, 32), torchvision.models.ResNet, 2048, marks=pytest.mark.slow)
            for depth in (50, 101, 152)
        ],
    ],
)
def test_build_returns_an_encoder_that_fits_the_shape(name, shape, encoder_type, width):
    encoder = on_meta(lambda: build(name, shape))
    assert isinstance(encoder, encoder_type)
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
def test_stem_depends_on_the_image_side_unless_the_name_sets_it(name, shape, kernel):
    model = on_meta(lambda: build(name, shape))
    assert model.conv1.kernel_size == (kernel, kernel)
    assert isinstance(model.maxpool, nn.Identity if kernel == 3 else nn.MaxPool2d)
    assert model.conv1.in_channels == shape[0]


@pytest.mark.parametrize(
    "name", ["vgg16", "", "mlp:", "mlp:12-", "mlp:a", "resnet", "resnet18:tiny", "Small", "small "]
)
def test_unknown_encoder_error_lists_the_valid_names(name):
    with pytest.raises(imix.InputError, match=r"choose from .*small.*mlp.*resnet18.*resnet152") as error:
        build(name, (3, 32, 32))
    assert repr(name) in str(error.value)


def test_unknown_resnet_depth_error_names_the_depth():
    for shape in ((3, 32, 32), (20,)):
        with pytest.raises(imix.InputError, match=r"depth 19; choose from 18, 34, 50, 101, 152"):
            build("resnet19", shape)


@pytest.mark.parametrize("shape", [(20,), (1, 32)])
def test_resnet_rejects_samples_that_are_not_images(shape):
    with pytest.raises(imix.InputError, match=r"'resnet18' takes images \(C, H, W\)") as error:
        build("resnet18", shape)
    assert str(shape) in str(error.value)


def test_timm_models_can_be_trained_and_loaded_as_encoders(tmp_path):
    encoder = build("timm:resnet10t", (1, 32, 32))
    assert infer_width(encoder) == encoder(torch.rand(2, 1, 32, 32)).shape[1] == 512
    settings = imix.Settings(encoder="timm:resnet10t", epochs=1, batch_size=4, device="cpu")
    run = imix.pretrain(torch.rand(8, 3, 32, 32), settings, out=tmp_path / "run", progress=False)
    x = torch.rand(2, 3, 32, 32)
    assert torch.equal(imix.load_encoder(tmp_path / "run")(x), run.encoder(x))
    with pytest.raises(imix.InputError, match="timm cannot build 'nosuch'"):
        build("timm:nosuch", (3, 32, 32))
    with pytest.raises(
        imix.InputError, match=r"'timm:resnet10t' takes images \(C, H, W\); got samples of shape \(7,\)"
    ):
        build("timm:resnet10t", (7,))


@pytest.fixture
def hub_cache(tmp_path, monkeypatch):
    """An empty cache of the Hugging Face hub, without network."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    return tmp_path


def store_in_hub(cache, name, state):
    folder = cache / f"models--timm--{name}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs/main").write_text("0" * 40)
    (folder / "snapshots" / ("0" * 40)).mkdir(parents=True)
    save_file(state, folder / "snapshots" / ("0" * 40) / "model.safetensors")


def test_a_timm_name_with_a_tag_loads_its_weights(hub_cache, tmp_path):
    import timm

    model = timm.create_model("resnet10t")
    store_in_hub(hub_cache, "resnet10t.c3_in1k", model.state_dict())
    encoder = build("timm:resnet10t.c3_in1k", (3, 32, 32))
    assert encoder.width == 512
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in encoder.state_dict().items())
    gray = build("timm:resnet10t.c3_in1k", (1, 32, 32))
    torch.testing.assert_close(gray.conv1[0].weight, model.conv1[0].weight.sum(1, keepdim=True))
    assert not torch.equal(build("timm:resnet10t", (3, 32, 32)).layer1[0].conv1.weight, model.layer1[0].conv1.weight)


def test_a_timm_name_with_a_source_or_too_many_channels_is_rejected():
    with pytest.raises(
        imix.InputError, match="'timm:hf-hub:timm/resnet18' must name a model of timm, without a source"
    ):
        build("timm:hf-hub:timm/resnet18", (3, 32, 32))
    with pytest.raises(imix.InputError, match="'timm:resnet10t' takes up to 1024 channels; got samples of shape"):
        build("timm:resnet10t", (2000, 32, 32))


def test_a_timm_name_with_a_tag_never_gives_random_weights(hub_cache):
    with pytest.raises(
        imix.InputError, match=r"^cannot load the weights of encoder 'timm:resnet10t\.c3_in1k': .*cache"
    ):
        build("timm:resnet10t.c3_in1k", (3, 32, 32))
    store_in_hub(hub_cache, "resnet10t.c3_in1k", {"conv1.0.weight": torch.ones(24, 3, 3, 3)})
    with pytest.raises(imix.InputError, match=r"^cannot load the weights of encoder 'timm:resnet10t\.c3_in1k': "):
        build("timm:resnet10t.c3_in1k", (3, 32, 32))
    with pytest.raises(imix.InputError, match="Invalid pretrained tag"):
        build("timm:resnet10t.nosuch", (3, 32, 32))


def test_a_run_with_pretrained_weights_is_loaded_and_resumed_without_them(hub_cache, tmp_path):
    import timm

    store_in_hub(hub_cache, "resnet10t.c3_in1k", timm.create_model("resnet10t").state_dict())
    options = {"encoder": "timm:resnet10t.c3_in1k", "epochs": 1, "batch_size": 4, "device": "cpu", "progress": False}
    images, out = torch.rand(8, 3, 32, 32), tmp_path / "run"
    run = imix.pretrain(images, out=out, **options)
    shutil.rmtree(hub_cache / "models--timm--resnet10t.c3_in1k")
    assert torch.equal(imix.load_encoder(out)(images), run.encoder(images))
    assert torch.equal(imix.pretrain(images, out=out, resume=True, **options).encoder(images), run.encoder(images))
    assert imix.pretrain(images, init=out, **options | {"encoder": "small"}).settings.encoder == options["encoder"]


@pytest.mark.parametrize("name", ["mobilenetv3_small_050", "ghostnet_050", "resnet10t"])
def test_width_of_a_timm_model_is_its_output_dimension(name):
    encoder = build(f"timm:{name}", (3, 32, 32)).eval()
    assert encoder(torch.randn(2, 3, 32, 32)).shape == (2, infer_width(encoder))


def test_missing_timm_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(imix.InputError, match=r"pip install 'imix-ssl\[timm\]'"):
        build("timm:resnet10t", (3, 32, 32))


def test_temporarily_on_moves_a_module_back():
    devices = []

    class RecordsMoves(torch.nn.Linear):
        def to(self, device):
            devices.append(device.type)
            return self

    with temporarily_on(torch.device("cuda"), RecordsMoves(2, 2)):
        assert devices == ["cuda"]
    assert devices == ["cuda", "cpu"]
