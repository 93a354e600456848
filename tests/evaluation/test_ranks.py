"""Embedding and evaluation on two ranks (gloo, CPU) give the same results as one process, bit for bit."""

import pickle

import numpy as np
import pyarrow.parquet
import pytest
import torch.multiprocessing as mp

import imix
from tests.chaos.processes import free_port, start_torchrun
from tests.evaluation.two_ranks import PROTOCOLS, data, run_rank, work

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return work(tmp_path_factory.mktemp("alone"))


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    mp.spawn(run_rank, (folder, free_port()), nprocs=2)
    return folder, [pickle.loads((folder / f"{rank}.pkl").read_bytes()) for rank in range(2)]


def test_rank_0_has_the_features_of_one_process(ranks, alone):
    _, (first, second) = ranks
    assert np.array_equal(first["embedded"], alone["embedded"])
    assert len(alone["embedded"]) == 3500 and len(second["embedded"]) == 0


def test_each_rank_encodes_half_of_the_batches(ranks):
    _, results = ranks
    assert [result["encoded"] for result in results] == [2048, 3500 - 2048]


def test_a_rank_without_batches(ranks, alone):
    folder, (first, second) = ranks
    assert np.array_equal(first["few rows"], alone["few rows"])
    assert np.array_equal(np.load(folder / "few.npy"), alone["few rows"]) and len(second["few rows"]) == 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_all_ranks_get_the_result_of_one_process(protocol, ranks, alone):
    for result in ranks[1]:
        assert str(result[f"{protocol}"]) == str(alone[f"{protocol}"])
        assert result[f"{protocol}"] == alone[f"{protocol}"]


def test_an_error_on_rank_0_is_raised_on_all_ranks(ranks, alone):
    for result in ranks[1]:
        assert result["error"] == alone["error"]


def test_torchrun_embeds_and_evaluates_as_one_process(tmp_path):
    x, y = data()
    np.savez(tmp_path / "data.npz", x=x, y=y)
    run = imix.pretrain(x, epochs=1, encoder="mlp:16-16", device="cpu", out=tmp_path / "run", progress=False)
    imix.embed(run, tmp_path / "data.npz", tmp_path / "alone.parquet")
    result = imix.evaluate(run, tmp_path / "data.npz", "linear")
    embed = start_torchrun("embed", tmp_path / "run", tmp_path / "data.npz", "--out", tmp_path / "ranks.parquet")
    output, errors = embed.communicate(timeout=120)
    assert output == f"3,500 vectors of 4 features written to {tmp_path}/ranks.parquet\n", errors
    evaluate = start_torchrun("evaluate", tmp_path / "run", "--data", tmp_path / "data.npz", "--protocol", "linear")
    output, errors = evaluate.communicate(timeout=120)
    assert output == f"{result}\n", errors
    alone, ranks = (pyarrow.parquet.read_table(tmp_path / f"{name}.parquet") for name in ("alone", "ranks"))
    assert ranks.equals(alone)
    assert [stored.metrics for stored in run.evaluations] == [result.metrics] * 2
