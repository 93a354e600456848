"""Kernels, through Triton's interpreter on a CPU: softmax against the dense form in float64, views against torch."""

import json
import os
import subprocess
import sys

import pytest
import torch

import imix
from imix import kernels
from imix.augment.image import cifar
from imix.data import Data, Tensors
from imix.train.build import make_all
from imix.train.step import make_optimizer, make_ready, taking_steps

SIZES = [(70, 130, 20), (64, 64, 128), (100, 1, 3), (5, 300, 16), (129, 200, 33), (1, 65, 256)]
CASES = [(*sizes, own, scale) for sizes in SIZES for own in (False, True) for scale in (0.1, 3.0) if sizes[1] > own]
PROGRAM = """
import json, sys, torch
from imix.kernels.log_sum_exp import LogSumExp
found = []
for n, columns, dim, own, scale in json.loads(sys.argv[1]):
    torch.manual_seed(n)
    q, k, grad = scale * torch.randn(n, dim), torch.randn(columns, dim), torch.randn(n)
    own = torch.arange(n) % columns if own else None
    results = []
    for dtype in (torch.float32, torch.float64):
        a, b = (x.detach().to(dtype, copy=True).requires_grad_() for x in (q, k))
        if dtype == torch.float32:
            value = LogSumExp.apply(a, b, own)
        else:
            logits = a @ b.T
            value = (logits if own is None else logits.scatter(1, own[:, None], float("-inf"))).logsumexp(1)
        (value * grad.to(dtype)).sum().backward()
        results.append((value.detach(), a.grad, b.grad))
    found.append([float((x - y).abs().max() / y.abs().max()) for x, y in zip(*results)])
alone = torch.randn(9, 8)
keys = LogSumExp.apply(alone.requires_grad_(), torch.randn(7, 8), None)
keys.sum().backward()  # keys without a gradient, as those of a queue
print(json.dumps(found))
"""


IMAGES = [
    (48, (32, 32), (32, 32), 1),
    (24, (40, 48), (24, 33), 1),
    (24, (17, 9), (20, 20), 1),
    (8, (10, 64), (8, 8), 5),
]
VIEWS = """
import json, sys, torch
from imix.augment.image import ColourJitter, CropAndColours, Greyscale, RandomResizedCrop
from imix.kernels import small_views
found = []
for n, shape, size, scale in json.loads(sys.argv[1]):
    torch.manual_seed(n)
    x = torch.rand(n, 3, *shape).contiguous(memory_format=torch.channels_last)
    x[0], x[1, 1:] = 0.5, 0  # grey, and one pure colour
    views = CropAndColours(RandomResizedCrop(tuple(size), scale=(0.2 * scale, scale)), ColourJitter(), Greyscale())
    drawn = torch.rand(n, views.draws)
    ours = small_views.view(x, drawn, views.crop, views.colours, views.greyscale)
    found.append([float((ours - views.view(x, drawn)).abs().max()), float((ours - ours[:1]).abs().max())])
print(json.dumps(found))
"""


def interpreted(program, cases):
    """What a program prints for each case."""
    pytest.importorskip("triton")
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    command = [sys.executable, "-W", "ignore", "-c", program, json.dumps(cases)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return dict(zip(cases, json.loads(done.stdout), strict=True))


@pytest.fixture(scope="module")
def differences():
    return interpreted(PROGRAM, CASES)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_value_and_gradients_are_those_of_the_dense_form(differences, case):
    assert max(differences[case]) < 1e-4


def test_views_are_those_of_torch_for_the_same_draws():
    for case, (difference, spread) in interpreted(VIEWS, IMAGES).items():
        assert difference < 1e-5 < spread, case


def test_where_kernels_cannot_be_built_plain_torch_is_used_and_it_is_said(monkeypatch):
    pytest.importorskip("triton")

    def fail(device):
        raise RuntimeError("Failed to find C compiler\nand more")

    monkeypatch.setattr("imix.kernels.probe.works", fail)
    kernels.usable.cache_clear()
    with pytest.warns(UserWarning, match="plain torch: Failed to find C compiler$"):
        assert not kernels.usable(torch.device("cuda"))
    kernels.usable.cache_clear()
    assert not kernels.usable(torch.device("cpu"))


@pytest.mark.parametrize(("usable", "side", "compiled"), [(True, 32, 1), (True, 72, 2), (False, 32, 2)])
def test_views_that_one_kernel_makes_are_not_compiled(monkeypatch, usable, side, compiled):
    seen = []
    monkeypatch.setattr(torch, "compile", lambda function, **how: seen.append(function) or function)
    monkeypatch.setattr(kernels, "usable", lambda device: usable)
    data = Data("pixels", Tensors(torch.zeros(8, 3, side, side, dtype=torch.uint8)), augment="cifar")
    made = make_all(data, imix.Settings(encoder="small", batch_size=4, device="cpu", compile=True))
    with taking_steps(make_ready(made), made.learner, make_optimizer(made.learner, made.settings, made.device), made):
        assert len(seen) == compiled


def test_what_the_kernel_cannot_take_is_left_to_torch(monkeypatch):
    monkeypatch.setattr(kernels, "usable", lambda device: True)
    for given in (torch.zeros(2, 3, 8, 65), torch.zeros(2, 3, 8, 8, requires_grad=True)):
        assert cifar(8)(given).shape == (2, 3, 8, 8)
    with pytest.raises(ValueError, match="unpack"):
        cifar(8)(torch.zeros(2, 4, 8, 8))
