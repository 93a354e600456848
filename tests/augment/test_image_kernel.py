"""The kernel for small images: in Triton's interpreter on a CPU, against plain torch for the same random numbers."""

import json
import os
import subprocess
import sys

import pytest
import torch

import imix
from imix.augment.image import cifar
from imix.data import Data, TensorSource
from imix.runtime import kernels
from imix.train.setup import build_setup
from imix.train.step import build_optimizer, prepare, training_step

# Number of images, their shape, the size of the views, and the scale of the crop (5: no box fits).
CASES = [
    (48, (32, 32), (32, 32), 1),
    (24, (40, 48), (24, 33), 1),
    (24, (17, 9), (20, 20), 1),
    (8, (10, 64), (8, 8), 5),
]
PROGRAM = """
import json, sys, torch
from imix.augment.image import ColorJitter, CropAndColorJitter, Grayscale, RandomResizedCrop
from imix.augment.image_kernel import crop_and_color_jitter
results = []
for n, shape, size, scale in json.loads(sys.argv[1]):
    torch.manual_seed(n)
    x = torch.rand(n, 3, *shape).contiguous(memory_format=torch.channels_last)
    x[0], x[1, 1:] = 0.5, 0  # a gray image and a pure color
    views = CropAndColorJitter(RandomResizedCrop(tuple(size), scale=(0.2 * scale, scale)), ColorJitter(), Grayscale())
    uniforms = torch.rand(n, views.n_draws)
    ours = crop_and_color_jitter(x, uniforms, views.crop, views.colors, views.grayscale)
    results.append([float((ours - views.transform(x, uniforms)).abs().max()), float((ours - ours[:1]).abs().max())])
print(json.dumps(results))
"""


def test_the_kernel_matches_plain_torch():
    pytest.importorskip("triton")
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, json.dumps(CASES)]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert process.returncode == 0, process.stderr
    for case, (difference, spread) in zip(CASES, json.loads(process.stdout), strict=True):
        assert difference < 1e-5 < spread, case


@pytest.mark.parametrize(("usable", "side", "n_compiled"), [(True, 32, 1), (True, 72, 2), (False, 32, 2)])
def test_views_computed_by_the_kernel_are_not_compiled(monkeypatch, usable, side, n_compiled):
    compiled = []
    monkeypatch.setattr(torch, "compile", lambda function, **options: compiled.append(function) or function)
    monkeypatch.setattr(kernels, "usable", lambda device: usable)
    data = Data("pixels", TensorSource(torch.zeros(8, 3, side, side, dtype=torch.uint8)), augment="cifar")
    setup = build_setup(data, imix.Settings(encoder="small", batch_size=4, device="cpu", compile=True))
    optimizer = build_optimizer(setup.learner, setup.settings, setup.device)
    with training_step(prepare(setup), setup.learner, optimizer, setup):
        assert len(compiled) == n_compiled


def test_inputs_that_the_kernel_does_not_support_use_plain_torch(monkeypatch):
    monkeypatch.setattr(kernels, "usable", lambda device: True)
    for x in (torch.zeros(2, 3, 8, 65), torch.zeros(2, 3, 8, 8, requires_grad=True)):
        assert cifar(8)(x).shape == (2, 3, 8, 8)
    with pytest.raises(ValueError, match="unpack"):
        cifar(8)(torch.zeros(2, 4, 8, 8))
