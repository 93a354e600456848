"""Encoders in other libraries: the same features from torchvision, timm, detectron2's names and ONNX."""

import json
import pickle
from dataclasses import asdict

import numpy as np
import pytest
import timm
import torch
import torchvision
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

import imix
from imix import InputError, encoders
from imix.data.mel import Clip
from imix.data.standardise import Standardise
from imix.encoders.stored import assemble, save_encoder
from imix.exports import detectron2_name, export, traced
from imix.run import Run


def run_of(name: str, shape: tuple[int, ...] = (3, 32, 32), standardise: bool = True) -> Run:
    """A run with an encoder whose weights and statistics are all of them different from those of a new one."""
    torch.manual_seed(0)
    first = Standardise(shape[0]) if standardise else nn.Identity()
    if standardise:
        first.mean.copy_(torch.linspace(0.4, 0.5, shape[0]))
        first.deviation.copy_(torch.linspace(0.2, 0.3, shape[0]))
    encoder = nn.Sequential()
    encoder.add_module("standardise", first)
    encoder.add_module("encoder", encoders.build(name, shape))
    for part in encoder.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.uniform_(-0.1, 0.1)
            part.running_var.uniform_(0.5, 1.5)
            part.weight.data.uniform_(0.5, 1.5)
    architecture = {"encoder": name, "shape": list(shape), "groups": [], "standardise": standardise, "clip": None}
    return Run(encoder.eval(), {"architecture": architecture})


def run_of_sounds() -> Run:
    torch.manual_seed(0)
    clip = asdict(Clip(samples=4000))
    architecture = {"encoder": "small", "shape": [1, 4000], "groups": [], "standardise": False, "clip": clip}
    return Run(assemble(architecture).eval(), {"architecture": architecture})


def prepared(run: Run, x: torch.Tensor) -> torch.Tensor:
    """Inputs as the other library must be given them."""
    mean, deviation = run.encoder[0].mean, run.encoder[0].deviation
    return (x - mean.view(1, -1, 1, 1)) / deviation.view(1, -1, 1, 1)


@pytest.mark.parametrize(("depth", "end"), [(18, "safetensors"), (50, "safetensors"), (50, "pth")])
def test_torchvision_gives_the_same_features(tmp_path, depth, end):
    run, out = run_of(f"resnet{depth}:standard"), tmp_path / f"x.{end}"
    how = export(run, "torchvision", out)
    state = load_file(out) if end == "safetensors" else torch.load(out, weights_only=True)
    model = getattr(torchvision.models, f"resnet{depth}")()
    model.fc = nn.Identity()
    model.load_state_dict(state)
    x = torch.rand(2, 3, 64, 64)
    assert torch.equal(model.eval()(prepared(run, x)), run.encoder(x))
    assert f"torchvision.models.resnet{depth}()" in how
    assert "mean [0.40000, 0.45000, 0.50000]" in how and "std [0.20000, 0.25000, 0.30000]" in how


def test_timm_gives_the_same_features_with_as_many_channels(tmp_path):
    run, out = run_of("resnet50:standard", (1, 32, 32)), tmp_path / "x.safetensors"
    how = export(run, "timm", out)
    model = timm.create_model("resnet50", num_classes=0, in_chans=1)
    model.load_state_dict(load_file(out))
    x = torch.rand(2, 1, 64, 64)
    assert torch.equal(model.eval()(prepared(run, x)), run.encoder(x))
    assert "timm.create_model('resnet50', num_classes=0, in_chans=1)" in how
    with safe_open(out, "pt") as file:
        assert file.metadata()["in_chans"] == "1"
        assert json.loads(file.metadata()["mean"]) == pytest.approx([0.4])


@pytest.mark.parametrize("depth", [18, 34, 50, 101, 152])
def test_timms_names_are_torchvisions(depth):
    with torch.device("meta"):
        ours = encoders.resnet(depth, stem="standard").state_dict()
        theirs = timm.create_model(f"resnet{depth}", num_classes=0).state_dict()
    assert {name: value.shape for name, value in ours.items()} == {name: value.shape for name, value in theirs.items()}


def test_the_small_stem_is_said(tmp_path):
    run = run_of("resnet18:small", standardise=False)
    how = export(run, "torchvision", tmp_path / "x.pth")
    assert "set conv1 to a 3x3 convolution of stride 1 and maxpool to nn.Identity() before" in how
    assert "mean [0.00000, 0.00000, 0.00000]" in how
    model = torchvision.models.resnet18()
    model.conv1, model.maxpool, model.fc = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.Identity(), nn.Identity()
    model.load_state_dict(torch.load(tmp_path / "x.pth", weights_only=True))
    x = torch.rand(2, 3, 16, 16)
    assert torch.equal(model.eval()(x), run.encoder(x))


@pytest.mark.parametrize("depth", [18, 50])
def test_detectron2_has_every_weight_under_its_own_name(tmp_path, depth):
    run = run_of(f"resnet{depth}:standard")
    how = export(run, "detectron2", tmp_path / "x.pkl")
    stored = pickle.loads((tmp_path / "x.pkl").read_bytes())
    assert stored["matching_heuristics"] is True and stored["__author__"] == "imix"
    assert all(isinstance(value, np.ndarray) for value in stored["model"].values())
    state = run.encoder[1].state_dict()
    convolutions = [name for name in state if state[name].dim() == 4]
    assert len(stored["model"]) == 5 * len(convolutions)  # each with its normalisation's four
    for name, value in state.items():
        if "num_batches" not in name:
            assert np.array_equal(stored["model"][detectron2_name(name)], value.numpy())
    for name, shape in {
        "stem.conv1.weight": (64, 3, 7, 7),
        "stem.conv1.norm.running_var": (64,),
        "res2.0.conv1.norm.bias": (64,),
        "res3.0.shortcut.weight": (512, 256, 1, 1) if depth == 50 else (128, 64, 1, 1),
        "res3.0.shortcut.norm.weight": (512,) if depth == 50 else (128,),
        "res5.1.conv2.weight": (512, 512, 3, 3),
    }.items():
        assert stored["model"][name].shape == shape
    assert "  PIXEL_MEAN: [102.000, 114.750, 127.500]" in how and "  PIXEL_STD: [51.000, 63.750, 76.500]" in how
    assert f"    DEPTH: {depth}" in how and '  FORMAT: "RGB"' in how


def test_onnx_is_traced_for_batches_of_any_size_with_its_standardisation():
    for run in (run_of("resnet18"), run_of("small", (5,)), run_of_sounds()):
        shape = run.config["architecture"]["shape"]
        program = traced(run.encoder, shape).module()
        for n in (1, 5):
            x = torch.rand(n, *shape)
            torch.testing.assert_close(program(x), run.encoder(x))


@pytest.mark.parametrize(
    "make", [lambda: run_of("resnet18"), lambda: run_of("small", (5,)), run_of_sounds], ids=["image", "row", "sound"]
)
def test_onnx_gives_the_same_features(tmp_path, make):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    run = make()
    shape = run.config["architecture"]["shape"]
    save_encoder(tmp_path / "encoder.safetensors", run.encoder, run.config["architecture"])
    assert "float32 (N, " in export(tmp_path / "encoder.safetensors", "onnx", tmp_path / "x.onnx")
    session = runtime.InferenceSession(tmp_path / "x.onnx")
    for n in (1, 3):
        x = torch.rand(n, *shape)
        (features,) = session.run(["features"], {"inputs": x.numpy()})
        np.testing.assert_allclose(features, run.encoder(x).detach().numpy(), rtol=1e-3, atol=1e-4)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["encoder.safetensors", "x.onnx"]


def test_onnx_without_its_packages_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match="needs the extra"):
        export(run_of("small", (5,)), "onnx", tmp_path / "x.onnx")


def test_a_run_folder_and_its_file_are_exported_alike(tmp_path):
    x = np.random.default_rng(0).integers(0, 256, (16, 3, 8, 8), dtype=np.uint8)
    settings = imix.Settings(epochs=1, batch_size=8, encoder="resnet18", device="cpu")
    run = imix.pretrain(x, settings, out=tmp_path / "run", progress=False)
    sources = (run, tmp_path / "run", str(tmp_path / "run" / "encoder.safetensors"))
    states = []
    for at, source in enumerate(sources):
        export(source, "torchvision", tmp_path / f"{at}.safetensors")
        states.append(load_file(tmp_path / f"{at}.safetensors"))
    for state in states[1:]:
        assert all(torch.equal(value, states[0][name]) for name, value in state.items())


@pytest.mark.parametrize(
    ("name", "shape", "format", "out", "message"),
    [
        ("small", (3, 8, 8), "torchvision", "x.pth", "is for ResNets; the encoder is a Convolutions"),
        ("small", (5,), "timm", "x.pth", "is for ResNets; the encoder is a"),
        ("small", (5,), "detectron2", "x.pkl", "is for ResNets; the encoder is a"),
        ("resnet18:small", (3, 8, 8), "detectron2", "x.pkl", "have the standard stem"),
        ("resnet18:standard", (1, 8, 8), "detectron2", "x.pkl", "take three channels"),
        ("resnet18", (3, 8, 8), "keras", "x.h5", "unknown format 'keras'; choose from torchvision, timm"),
        (
            "resnet18",
            (3, 8, 8),
            "timm",
            "x.pkl",
            r"for timm to .* ends in \.safetensors or \.pth",
        ),
        ("resnet18", (3, 8, 8), "timm", "no/x.pth", "no folder"),
    ],
)
def test_what_cannot_be_exported_is_refused(tmp_path, name, shape, format, out, message):
    with pytest.raises(InputError, match=message):
        export(run_of(name, shape), format, tmp_path / out)
    assert not list(tmp_path.iterdir())
