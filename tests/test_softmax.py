"""The streamed normaliser against the dense one, for every objective that has one, and what it holds in memory."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from imix import losses, softmax
from imix.mix import Mix

TAU = 0.2
ROWS, DIMENSIONS, MEMORY = 12, 5, 9

OBJECTIVES: dict[str, Callable[[Tensor, Tensor, Mix | None], Tensor]] = {
    "npair": lambda q, k, mix: losses.npair(q, k, mix, temperature=TAU),
    "simclr": lambda q, k, mix: losses.simclr(q, k, mix, temperature=TAU),
    "moco": lambda q, k, mix: losses.moco(q, k, vectors(MEMORY, seed=3), mix, temperature=TAU),
    "supclr": lambda q, k, mix: losses.supclr(q, k, torch.arange(ROWS) % 4, mix, temperature=TAU),
    "supnpair": lambda q, k, mix: losses.supnpair(q, k, torch.arange(ROWS) % 4, mix, temperature=TAU),
}

blocks = pytest.mark.parametrize("block", [1, 7, 64])
own_or_not = pytest.mark.parametrize("lacks_own", [False, True], ids=["all columns", "own column lacks"])


def vectors(rows: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(rows, DIMENSIONS, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def some_mix(rows: int) -> Mix:
    generator = torch.Generator().manual_seed(2)
    return Mix(torch.randperm(rows, generator=generator), torch.rand(rows, generator=generator, dtype=torch.float64))


def value_and_gradients(fn: Callable[[Tensor, Tensor], Tensor], q: Tensor, k: Tensor) -> list[Tensor]:
    q, k = q.clone().requires_grad_(), k.clone().requires_grad_()
    value = fn(q, k)
    weights = torch.linspace(-1, 2, value.numel(), dtype=value.dtype).view(value.shape)
    return [value.detach(), *torch.autograd.grad((weights * value).sum(), (q, k))]


def own_columns(lacks_own: bool, rows: int = ROWS) -> Tensor | None:
    return torch.arange(rows).roll(5) if lacks_own else None


@own_or_not
def test_log_sum_exp_is_what_it_says(lacks_own: bool) -> None:
    q, k, own = vectors(ROWS, 0), vectors(15, 1), own_columns(lacks_own)
    expected = []
    for i in range(ROWS):
        columns = [j for j in range(15) if own is None or j != own[i]]
        expected.append(math.log(sum(math.exp(float(q[i] @ k[j]) / TAU) for j in columns)))
    assert_close(
        softmax.log_sum_exp(q / TAU, k, own), torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-12
    )


def test_a_matrix_is_streamed_once_it_is_larger_than_the_largest_block(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k = vectors(4, 0).requires_grad_(), vectors(6, 1)
    monkeypatch.setattr(softmax, "LARGEST_BLOCK", 24)
    assert "Streamed" not in softmax.log_sum_exp(q / TAU, k).grad_fn.name()
    monkeypatch.setattr(softmax, "LARGEST_BLOCK", 23)
    assert "Streamed" in softmax.log_sum_exp(q / TAU, k).grad_fn.name()


@blocks
@own_or_not
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_streamed_and_dense_agree(
    monkeypatch: pytest.MonkeyPatch, block: int, lacks_own: bool, dtype: torch.dtype
) -> None:
    q, k, own = vectors(ROWS, 0, dtype), vectors(15, 1, dtype), own_columns(lacks_own)

    def normaliser(q: Tensor, k: Tensor) -> Tensor:
        return softmax.log_sum_exp(q / TAU, k, own)

    dense = value_and_gradients(normaliser, q, k)
    monkeypatch.setattr(softmax, "LARGEST_BLOCK", block)
    streamed = value_and_gradients(normaliser, q, k)
    rtol, atol = (1e-12, 1e-12) if dtype == torch.float64 else (1e-5, 1e-6)
    assert_close(streamed, dense, rtol=rtol, atol=atol)


@blocks
@own_or_not
def test_gradient_of_the_streamed_form_is_that_of_its_value(
    monkeypatch: pytest.MonkeyPatch, block: int, lacks_own: bool
) -> None:
    rows = 9
    q, k = vectors(rows, 0).requires_grad_(), vectors(rows, 1).requires_grad_()
    monkeypatch.setattr(softmax, "LARGEST_BLOCK", block)
    own = own_columns(lacks_own, rows)
    assert torch.autograd.gradcheck(lambda q, k: softmax.log_sum_exp(q / TAU, k, own), (q, k))


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("mixed", [False, True], ids=["clean", "mixed"])
@blocks
def test_every_objective_is_the_same_streamed(
    monkeypatch: pytest.MonkeyPatch, name: str, mixed: bool, block: int
) -> None:
    q, k, mix = vectors(ROWS, 0), vectors(ROWS, 1), some_mix(ROWS) if mixed else None

    def objective(q: Tensor, k: Tensor) -> Tensor:
        return OBJECTIVES[name](q, k, mix)

    dense = value_and_gradients(objective, q, k)
    monkeypatch.setattr(softmax, "LARGEST_BLOCK", block)
    assert_close(value_and_gradients(objective, q, k), dense, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_gradient_of_a_streamed_objective_is_that_of_its_value(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    q, k = vectors(ROWS, 0).requires_grad_(), vectors(ROWS, 1).requires_grad_()
    monkeypatch.setattr(softmax, "LARGEST_BLOCK", 30)
    mix = some_mix(ROWS)
    assert torch.autograd.gradcheck(lambda q, k: OBJECTIVES[name](q, k, mix), (q, k))


@own_or_not
def test_keys_without_gradient_are_streamed_too(monkeypatch: pytest.MonkeyPatch, lacks_own: bool) -> None:
    q, k, own = vectors(ROWS, 0), vectors(ROWS, 1), own_columns(lacks_own)
    dense = value_and_gradients(lambda q, k: softmax.log_sum_exp(q / TAU, k, own), q, k)
    monkeypatch.setattr(softmax, "LARGEST_BLOCK", 30)
    q = q.requires_grad_()
    value = softmax.log_sum_exp(q / TAU, k, own)
    weights = torch.linspace(-1, 2, ROWS, dtype=torch.float64)
    (grad,) = torch.autograd.grad((weights * value).sum(), (q,))
    assert_close(grad, dense[1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("tau", [0.01, 0.001])
def test_large_logits_do_not_overflow_streamed_or_dense(monkeypatch: pytest.MonkeyPatch, tau: float) -> None:
    q = torch.nn.functional.normalize(vectors(ROWS, 0, torch.float32))
    for block in (2**24, 30):
        monkeypatch.setattr(softmax, "LARGEST_BLOCK", block)
        for result in value_and_gradients(lambda q, k: softmax.log_sum_exp(q / tau, k), q, q):
            assert result.isfinite().all()


# Peak memory is that of a process of its own. It is read from VmHWM, since ru_maxrss starts at what the parent held.
MEASURE = """
import json, sys
import torch
from imix import losses
from imix.mix import Mix

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) / 1024

def step(n):
    q, k = (torch.randn(n, 32, requires_grad=True) for _ in range(2))
    mix = Mix(torch.randperm(n), torch.rand(n))
    before = peak()
    loss = losses.byol(q, k, mix) if sys.argv[1] == "byol" else getattr(losses, sys.argv[1])(q, k, mix, temperature=0.1)
    loss.backward()
    return {"loss": loss.item(), "grad": q.grad.abs().sum().item(), "mebibytes": peak() - before}

step(64)  # what the first call of anything loads
print(json.dumps(step(16384)))
"""


def measured(objective: str) -> dict[str, float]:
    source = Path(softmax.__file__).parents[1]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(source), "CUDA_VISIBLE_DEVICES": ""}
    ran = subprocess.run(
        [sys.executable, "-c", MEASURE, objective], capture_output=True, text=True, env=environment, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.mark.parametrize("objective", ["npair", "simclr"])
def test_a_large_batch_never_holds_the_matrix_of_similarities(objective: str) -> None:
    held = measured(objective)  # the matrix alone, in float32, is 1024 MiB
    assert math.isfinite(held["loss"])
    assert math.isfinite(held["grad"])
    assert held["mebibytes"] < 400


def test_byol_needs_two_similarities_an_anchor() -> None:
    held = measured("byol")
    assert held["loss"] == pytest.approx(2, abs=0.1)
    assert held["mebibytes"] < 64


def test_streamed_backward_is_the_same_inside_autocast(monkeypatch):
    monkeypatch.setattr(softmax, "LARGEST_BLOCK", 7)
    gradients = []
    for enabled in (False, True):
        q, k = (torch.randn(6, 4, generator=torch.Generator().manual_seed(i)).requires_grad_() for i in (0, 1))
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            losses.npair(q, k, temperature=0.1).backward()
        gradients.append((q.grad, k.grad))
    torch.testing.assert_close(*gradients)
