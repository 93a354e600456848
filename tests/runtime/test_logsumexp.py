"""The streamed log-sum-exp compared with the dense one, also within each loss, and its peak memory."""

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

from imix import losses
from imix.mix import Mix
from imix.runtime import logsumexp

TAU = 0.2
ROWS, DIMENSIONS, QUEUE = 12, 5, 9

LOSSES: dict[str, Callable[[Tensor, Tensor, Mix | None], Tensor]] = {
    "npair": lambda q, k, mix: losses.npair(q, k, mix, temperature=TAU),
    "simclr": lambda q, k, mix: losses.simclr(q, k, mix, temperature=TAU),
    "moco": lambda q, k, mix: losses.moco(q, k, vectors(QUEUE, seed=3), mix, temperature=TAU),
    "supclr": lambda q, k, mix: losses.supclr(q, k, torch.arange(ROWS) % 4, mix, temperature=TAU),
    "supnpair": lambda q, k, mix: losses.supnpair(q, k, torch.arange(ROWS) % 4, mix, temperature=TAU),
}

block_sizes = pytest.mark.parametrize("block", [1, 7, 64])
with_and_without_self = pytest.mark.parametrize("exclude_self", [False, True], ids=["all keys", "all keys but one"])


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


def self_indices(exclude_self: bool, rows: int = ROWS) -> Tensor | None:
    return torch.arange(rows).roll(5) if exclude_self else None


@with_and_without_self
def test_log_sum_exp_matches_a_plain_loop(exclude_self: bool) -> None:
    q, k, self_index = vectors(ROWS, 0), vectors(15, 1), self_indices(exclude_self)
    expected = []
    for i in range(ROWS):
        keys = [j for j in range(15) if self_index is None or j != self_index[i]]
        expected.append(math.log(sum(math.exp(float(q[i] @ k[j]) / TAU) for j in keys)))
    assert_close(
        logsumexp.log_sum_exp(q / TAU, k, self_index),
        torch.tensor(expected, dtype=torch.float64),
        rtol=1e-12,
        atol=1e-12,
    )


def test_matrices_above_the_largest_block_are_streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k = vectors(4, 0).requires_grad_(), vectors(6, 1)
    monkeypatch.setattr(logsumexp, "LARGEST_BLOCK", 24)
    assert "Streamed" not in logsumexp.log_sum_exp(q / TAU, k).grad_fn.name()
    monkeypatch.setattr(logsumexp, "LARGEST_BLOCK", 23)
    assert "Streamed" in logsumexp.log_sum_exp(q / TAU, k).grad_fn.name()


@block_sizes
@with_and_without_self
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_streamed_and_dense_are_equal(
    monkeypatch: pytest.MonkeyPatch, block: int, exclude_self: bool, dtype: torch.dtype
) -> None:
    q, k, self_index = vectors(ROWS, 0, dtype), vectors(15, 1, dtype), self_indices(exclude_self)

    def normalizer(q: Tensor, k: Tensor) -> Tensor:
        return logsumexp.log_sum_exp(q / TAU, k, self_index)

    dense = value_and_gradients(normalizer, q, k)
    monkeypatch.setattr(logsumexp, "LARGEST_BLOCK", block)
    streamed = value_and_gradients(normalizer, q, k)
    rtol, atol = (1e-12, 1e-12) if dtype == torch.float64 else (1e-5, 1e-6)
    assert_close(streamed, dense, rtol=rtol, atol=atol)


@block_sizes
@with_and_without_self
def test_gradient_of_the_streamed_form_matches_finite_differences(
    monkeypatch: pytest.MonkeyPatch, block: int, exclude_self: bool
) -> None:
    rows = 9
    q, k = vectors(rows, 0).requires_grad_(), vectors(rows, 1).requires_grad_()
    monkeypatch.setattr(logsumexp, "LARGEST_BLOCK", block)
    self_index = self_indices(exclude_self, rows)
    assert torch.autograd.gradcheck(lambda q, k: logsumexp.log_sum_exp(q / TAU, k, self_index), (q, k))


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("mixed", [False, True], ids=["clean", "mixed"])
@block_sizes
def test_every_loss_is_the_same_when_streamed(
    monkeypatch: pytest.MonkeyPatch, name: str, mixed: bool, block: int
) -> None:
    q, k, mix = vectors(ROWS, 0), vectors(ROWS, 1), some_mix(ROWS) if mixed else None

    def loss(q: Tensor, k: Tensor) -> Tensor:
        return LOSSES[name](q, k, mix)

    dense = value_and_gradients(loss, q, k)
    monkeypatch.setattr(logsumexp, "LARGEST_BLOCK", block)
    assert_close(value_and_gradients(loss, q, k), dense, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", LOSSES)
def test_gradient_of_a_streamed_loss_matches_finite_differences(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    q, k = vectors(ROWS, 0).requires_grad_(), vectors(ROWS, 1).requires_grad_()
    monkeypatch.setattr(logsumexp, "LARGEST_BLOCK", 30)
    mix = some_mix(ROWS)
    assert torch.autograd.gradcheck(lambda q, k: LOSSES[name](q, k, mix), (q, k))


@with_and_without_self
def test_streamed_keys_may_have_no_gradient(monkeypatch: pytest.MonkeyPatch, exclude_self: bool) -> None:
    q, k, self_index = vectors(ROWS, 0), vectors(ROWS, 1), self_indices(exclude_self)
    dense = value_and_gradients(lambda q, k: logsumexp.log_sum_exp(q / TAU, k, self_index), q, k)
    monkeypatch.setattr(logsumexp, "LARGEST_BLOCK", 30)
    q = q.requires_grad_()
    value = logsumexp.log_sum_exp(q / TAU, k, self_index)
    weights = torch.linspace(-1, 2, ROWS, dtype=torch.float64)
    (grad,) = torch.autograd.grad((weights * value).sum(), (q,))
    assert_close(grad, dense[1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("tau", [0.01, 0.001])
def test_large_logits_do_not_overflow_streamed_or_dense(monkeypatch: pytest.MonkeyPatch, tau: float) -> None:
    q = torch.nn.functional.normalize(vectors(ROWS, 0, torch.float32))
    for block in (2**24, 30):
        monkeypatch.setattr(logsumexp, "LARGEST_BLOCK", block)
        for result in value_and_gradients(lambda q, k: logsumexp.log_sum_exp(q / tau, k), q, q):
            assert result.isfinite().all()


# Peak memory is measured in a new process, with VmHWM, because ru_maxrss starts at the memory of the parent.
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

step(64)  # the first call loads libraries
print(json.dumps(step(16384)))
"""


def measure(loss: str) -> dict[str, float]:
    source = Path(logsumexp.__file__).parents[2]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(source), "CUDA_VISIBLE_DEVICES": ""}
    process = subprocess.run(
        [sys.executable, "-c", MEASURE, loss], capture_output=True, text=True, env=environment, check=False
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


@pytest.mark.parametrize("loss", ["npair", "simclr"])
def test_loss_of_a_large_batch_never_holds_the_similarity_matrix(loss: str) -> None:
    result = measure(loss)  # the matrix alone would be 1024 MiB in float32
    assert math.isfinite(result["loss"])
    assert math.isfinite(result["grad"])
    assert result["mebibytes"] < 400


def test_byol_needs_little_memory() -> None:
    result = measure("byol")
    assert result["loss"] == pytest.approx(2, abs=0.1)
    assert result["mebibytes"] < 64


def test_streamed_backward_is_the_same_under_autocast(monkeypatch):
    monkeypatch.setattr(logsumexp, "LARGEST_BLOCK", 7)
    gradients = []
    for enabled in (False, True):
        q, k = (torch.randn(6, 4, generator=torch.Generator().manual_seed(i)).requires_grad_() for i in (0, 1))
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            losses.npair(q, k, temperature=0.1).backward()
        gradients.append((q.grad, k.grad))
    torch.testing.assert_close(*gradients)
