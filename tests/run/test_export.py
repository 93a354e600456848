"""Exported encoders give the same features in torchvision, timm and ONNX; detectron2 gets every weight."""

import json
import pickle
from collections import OrderedDict

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
from imix.encoders.mel import Clip
from imix.encoders.standardize import Standardize
from imix.run import Run
from imix.run.config import Architecture, DataConfig, RunConfig
from imix.run.export import detectron2_name, export, trace
from imix.run.stored_encoder import assemble, save_encoder

pytestmark = pytest.mark.slow


def build_run(name: str, shape: tuple[int, ...] = (3, 32, 32), standardize: bool = True) -> Run:
    """A run whose weights and statistics all differ from those of a newly built encoder."""
    torch.manual_seed(0)
    preprocess = Standardize(shape[0]) if standardize else nn.Identity()
    if standardize:
        preprocess.mean.copy_(torch.linspace(0.4, 0.5, shape[0]))
        preprocess.std.copy_(torch.linspace(0.2, 0.3, shape[0]))
    encoder = nn.Sequential(OrderedDict(preprocess=preprocess, encoder=encoders.build(name, shape)))
    for part in encoder.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.uniform_(-0.1, 0.1)
            part.running_var.uniform_(0.5, 1.5)
            part.weight.data.uniform_(0.5, 1.5)
    return as_run(encoder.eval(), Architecture(name, shape, (), standardize, None))


def audio_run() -> Run:
    torch.manual_seed(0)
    architecture = Architecture("small", (1, 4000), (), False, Clip(samples=4000))
    return as_run(assemble(architecture).eval(), architecture)


def as_run(encoder: nn.Sequential, architecture: Architecture) -> Run:
    data = DataConfig("arrays", 8, architecture.shape, imix.DataSettings(), None, None)
    return Run(encoder, RunConfig(imix.Settings(), data, architecture, 1, {}, {}))


def standardized(run: Run, x: torch.Tensor) -> torch.Tensor:
    """Inputs as the other library must get them."""
    mean, std = run.encoder[0].mean, run.encoder[0].std
    return (x - mean.view(1, -1, 1, 1)) / std.view(1, -1, 1, 1)


@pytest.mark.parametrize(("depth", "suffix"), [(18, "safetensors"), (50, "safetensors"), (50, "pth")])
def test_torchvision_gives_the_same_features(tmp_path, depth, suffix):
    run, out = build_run(f"resnet{depth}:standard"), tmp_path / f"x.{suffix}"
    instructions = export(run, "torchvision", out)
    state = load_file(out) if suffix == "safetensors" else torch.load(out, weights_only=True)
    model = getattr(torchvision.models, f"resnet{depth}")()
    model.fc = nn.Identity()
    model.load_state_dict(state)
    x = torch.rand(2, 3, 64, 64)
    assert torch.equal(model.eval()(standardized(run, x)), run.encoder(x))
    assert f"torchvision.models.resnet{depth}()" in instructions
    assert "mean [0.40000, 0.45000, 0.50000]" in instructions and "std [0.20000, 0.25000, 0.30000]" in instructions


def test_timm_gives_the_same_features_with_one_channel(tmp_path):
    run, out = build_run("resnet50:standard", (1, 32, 32)), tmp_path / "x.safetensors"
    instructions = export(run, "timm", out)
    model = timm.create_model("resnet50", num_classes=0, in_chans=1)
    model.load_state_dict(load_file(out))
    x = torch.rand(2, 1, 64, 64)
    assert torch.equal(model.eval()(standardized(run, x)), run.encoder(x))
    assert "timm.create_model('resnet50', num_classes=0, in_chans=1)" in instructions
    with safe_open(out, "pt") as file:
        assert file.metadata()["in_chans"] == "1"
        assert json.loads(file.metadata()["mean"]) == pytest.approx([0.4])


@pytest.mark.parametrize("depth", [18, 34, 50, 101, 152])
def test_timm_and_torchvision_use_the_same_parameter_names(depth):
    with torch.device("meta"):
        ours = encoders.resnet(depth, stem="standard").state_dict()
        theirs = timm.create_model(f"resnet{depth}", num_classes=0).state_dict()
    assert {name: value.shape for name, value in ours.items()} == {name: value.shape for name, value in theirs.items()}


def test_instructions_describe_the_small_stem(tmp_path):
    run = build_run("resnet18:small", standardize=False)
    instructions = export(run, "torchvision", tmp_path / "x.pth")
    assert "set conv1 to a 3x3 convolution with stride 1 and maxpool to nn.Identity()" in instructions
    assert "mean [0.00000, 0.00000, 0.00000]" in instructions
    model = torchvision.models.resnet18()
    model.conv1, model.maxpool, model.fc = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.Identity(), nn.Identity()
    model.load_state_dict(torch.load(tmp_path / "x.pth", weights_only=True))
    x = torch.rand(2, 3, 16, 16)
    assert torch.equal(model.eval()(x), run.encoder(x))


@pytest.mark.parametrize("depth", [18, 50])
def test_detectron2_file_has_every_weight_under_detectron2s_name(tmp_path, depth):
    run = build_run(f"resnet{depth}:standard")
    instructions = export(run, "detectron2", tmp_path / "x.pkl")
    stored = pickle.loads((tmp_path / "x.pkl").read_bytes())
    assert stored["matching_heuristics"] is True and stored["__author__"] == "imix"
    assert all(isinstance(value, np.ndarray) for value in stored["model"].values())
    state = run.encoder[1].state_dict()
    convolutions = [name for name in state if state[name].dim() == 4]
    assert len(stored["model"]) == 5 * len(convolutions)  # each with four batch norm tensors
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
    assert (
        "  PIXEL_MEAN: [102.000, 114.750, 127.500]" in instructions
        and "  PIXEL_STD: [51.000, 63.750, 76.500]" in instructions
    )
    assert f"    DEPTH: {depth}" in instructions and '  FORMAT: "RGB"' in instructions


def test_the_traced_graph_takes_any_batch_size_and_includes_preprocessing():
    for run in (build_run("resnet18"), build_run("small", (5,)), audio_run()):
        shape = run.config.architecture.shape
        program = trace(run.encoder, shape).module()
        for n in (1, 5):
            x = torch.rand(n, *shape)
            torch.testing.assert_close(program(x), run.encoder(x))


@pytest.mark.parametrize(
    "make_run",
    [lambda: build_run("resnet18"), lambda: build_run("small", (5,)), audio_run],
    ids=["image", "row", "audio"],
)
def test_onnx_gives_the_same_features(tmp_path, make_run):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    run = make_run()
    shape = run.config.architecture.shape
    save_encoder(tmp_path / "encoder.safetensors", run.encoder.state_dict(), run.config.architecture)
    assert "float32 (N, " in export(tmp_path / "encoder.safetensors", "onnx", tmp_path / "x.onnx")
    session = runtime.InferenceSession(tmp_path / "x.onnx")
    for n in (1, 3):
        x = torch.rand(n, *shape)
        (features,) = session.run(["features"], {"inputs": x.numpy()})
        np.testing.assert_allclose(features, run.encoder(x).detach().numpy(), rtol=1e-3, atol=1e-4)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["encoder.safetensors", "x.onnx"]


def test_onnx_without_its_packages_is_rejected(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match="needs the extra"):
        export(build_run("small", (5,)), "onnx", tmp_path / "x.onnx")


def test_a_run_its_folder_and_its_encoder_file_export_the_same_weights(tmp_path):
    x = np.random.default_rng(0).integers(0, 256, (16, 3, 8, 8), dtype=np.uint8)
    settings = imix.Settings(epochs=1, batch_size=8, encoder="resnet18", device="cpu")
    run = imix.pretrain(x, settings, out=tmp_path / "run", progress=False)
    sources = (run, tmp_path / "run", str(tmp_path / "run" / "encoder.safetensors"))
    states = []
    for i, source in enumerate(sources):
        export(source, "torchvision", tmp_path / f"{i}.safetensors")
        states.append(load_file(tmp_path / f"{i}.safetensors"))
    for state in states[1:]:
        assert all(torch.equal(value, states[0][name]) for name, value in state.items())


@pytest.mark.parametrize(
    ("name", "shape", "format", "out", "message"),
    [
        ("small", (3, 8, 8), "torchvision", "x.pth", "is for ResNets; the encoder is a SmallConvNet"),
        ("small", (5,), "timm", "x.pth", "is for ResNets; the encoder is a"),
        ("small", (5,), "detectron2", "x.pkl", "is for ResNets; the encoder is a"),
        ("resnet18:small", (3, 8, 8), "detectron2", "x.pkl", "standard stem"),
        ("resnet18:standard", (1, 8, 8), "detectron2", "x.pkl", "three channels"),
        ("resnet18", (3, 8, 8), "keras", "x.h5", "unknown format 'keras'; choose from torchvision, timm"),
        (
            "resnet18",
            (3, 8, 8),
            "timm",
            "x.pkl",
            r"for timm to .* ends in \.safetensors or \.pth",
        ),
        ("resnet18", (3, 8, 8), "timm", "no/x.pth", r"folder .* does not exist"),
    ],
)
def test_unsupported_exports_are_rejected_and_write_nothing(tmp_path, name, shape, format, out, message):
    with pytest.raises(InputError, match=message):
        export(build_run(name, shape), format, tmp_path / out)
    assert not list(tmp_path.iterdir())
