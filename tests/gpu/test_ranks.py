"""Distributed training on one CUDA device: two ranks that share it (gloo), and a single rank (NCCL)."""

from functools import cache

import pytest
import torch
import torch.multiprocessing as mp
from torch.testing import assert_close

from tests.gpu.ranks import CASES, DEVICE, pretrain, run_one_rank, run_two_ranks, train

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(DEVICE == "cuda" and not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def run(function, n_ranks: int, folder) -> list[dict]:
    mp.spawn(function, (str(folder),), nprocs=n_ranks)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(n_ranks)]


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory) -> list[dict]:
    return run(run_two_ranks, 2, tmp_path_factory.mktemp("two-ranks"))


@pytest.fixture(scope="module")
def one_rank(tmp_path_factory) -> dict:
    return run(run_one_rank, 1, tmp_path_factory.mktemp("one-rank"))[0]


@cache
def train_alone(method: str, norm: str, mixed: bool) -> dict:
    return train(method, norm, mixed, None, ddp=False)


def assert_same(actual, expected) -> None:
    """Equal up to the order of float64 sums."""
    assert_close(actual, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(("method", "norm", "mixed"), CASES)
def test_two_ranks_on_one_gpu_have_the_loss_and_gradients_of_the_global_batch(two_ranks, method, norm, mixed):
    results, expected = [result["train"][method, norm, mixed] for result in two_ranks], train_alone(method, norm, mixed)
    for step in range(2):
        assert_same(torch.stack([result["losses"][step] for result in results]).mean(), expected["losses"][step])
        assert all(gradient.any() for gradient in expected["gradients"][step].values() if gradient.dim() == 2)
    for result in results:
        assert_same(result["gradients"], expected["gradients"])
        assert_same(result["parameters"], expected["parameters"])


def test_pretraining_on_two_ranks_keeps_them_equal(two_ranks):
    first, second = (result["pretrain"] for result in two_ranks)
    assert_close(first["weights"], second["weights"], rtol=0, atol=0)
    assert first["losses"] == second["losses"]
    assert first["losses"][-1] < first["losses"][0]


@pytest.mark.parametrize(("method", "norm", "mixed"), CASES)
def test_one_rank_over_nccl_trains_as_a_process_without_ranks(one_rank, method, norm, mixed):
    assert_same(one_rank["train"][method, norm, mixed], train_alone(method, norm, mixed))


def test_rows_gathered_over_nccl_have_their_gradient(one_rank):
    assert one_rank["gathered"].equal(one_rank["rows"])
    assert_close(one_rank["gradient"], 2 * one_rank["rows"])


def test_pretraining_beside_an_nccl_group_is_unchanged(one_rank):
    assert one_rank["pretrain"]["losses"] == pytest.approx(pretrain()["losses"], rel=1e-4)
