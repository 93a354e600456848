"""Exported weights give the same features in torchvision and timm; detectron2 gets every weight."""

import json
import pickle

import numpy as np
import pytest
import timm
import torch
import torchvision
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

from imix import encoders
from imix.run import Run
from imix.run.export import export
from imix.run.export.weights import detectron2_name
from tests.run.export.runs import build_run

pytestmark = pytest.mark.slow


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
