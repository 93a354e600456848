"""What all formats of `imix.export` have in common."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import imix
from imix import InputError
from imix.run.export import export
from tests.run.export.runs import build_run

pytestmark = pytest.mark.slow


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
