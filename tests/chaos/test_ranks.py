"""A rank that dies or hangs: the others say which, in time, and the run goes on from its last checkpoint."""

import os
import signal
import time

import numpy as np
import pytest
from harm import check_readable, command, lines_in, rank_process, table, torchrun, two_ranks, wait_until

from imix import files
from imix.train import checkpoint

RESUME_ME = 75
FLAGS = ["--batch-size", 16, "--encoder", "mlp:16-16", "--device", "cpu", "--resume"]


@pytest.fixture
def words(tmp_path):
    """A run on a file, as one types it."""
    np.save(tmp_path / "x.npy", table()[0].numpy())
    return ["pretrain", tmp_path / "x.npy", *FLAGS]


def slow_steps() -> None:
    import imix.train.step

    take = imix.train.step.Step._take

    def slow(*given):
        time.sleep(1.2)
        return take(*given)

    imix.train.step.Step._take = slow


def test_torchrun_restarts_ranks_of_which_one_was_killed_and_the_run_ends_as_the_undisturbed_one(words, tmp_path):
    length = ["--epochs", 30, "--checkpoint-minutes", 0.002]
    process = torchrun(*words, *length, "--out", tmp_path / "killed", restarts=1)
    wait_until(lambda: lines_in(tmp_path / "killed") >= 3)
    os.kill(rank_process(process.pid, 1), signal.SIGKILL)
    undisturbed = [rank.wait(120) for rank in two_ranks(*words, *length, "--out", tmp_path / "run", folder=tmp_path)]
    _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert "rank 0 of 2 cannot go on, since rank 1 is gone or hangs" in said
    assert [rank.code for rank in undisturbed] == [0, 0], undisturbed
    one, other = ((tmp_path / name / "encoder.safetensors").read_bytes() for name in ("killed", "run"))
    assert one == other
    records = [files.read_lines(tmp_path / name / "metrics.jsonl") for name in ("killed", "run")]
    told = [[(record["step"], record["loss"]) for record in run] for run in records]
    assert told[0] == told[1]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_that_dies_or_hangs_is_named_within_the_timeout(words, tmp_path, victim, number):
    length = ["--epochs", 100_000, "--checkpoint-minutes", 0]
    limit = {"IMIX_RANK_TIMEOUT": "3"}
    ranks = two_ranks(*words, *length, "--out", tmp_path / "run", folder=tmp_path, environment=limit)
    try:
        wait_until(lambda: lines_in(tmp_path / "run") >= 2)
        ranks[victim].send(number)
        said = ranks[1 - victim].wait(15)
    finally:
        ranks[victim].process.kill()
    assert said.code == RESUME_ME, said.err
    last = said.err.splitlines()[-1]
    assert f"rank {1 - victim} of 2 cannot go on, since rank {victim} is gone or hangs" in last
    assert last.endswith("the same command with --resume")
    check_readable(tmp_path / "run")


def test_all_ranks_stop_soon_where_one_is_asked_to_even_if_steps_are_slow(words, tmp_path):
    length = ["--epochs", 1000, "--checkpoint-minutes", 60]
    ranks = two_ranks(*words, *length, "--out", tmp_path / "run", folder=tmp_path, prepare=(slow_steps,))
    wait_until(lambda: lines_in(tmp_path / "run") >= 1)
    asked = time.monotonic()
    ranks[1].send(signal.SIGTERM)
    said = [rank.wait(15) for rank in ranks]
    assert [rank.code for rank in said] == [RESUME_ME, RESUME_ME], said
    assert time.monotonic() - asked < 10
    state = checkpoint.load(tmp_path / "run" / "checkpoint.pt")
    assert state["epoch"] * 4 + state["step"] >= 4


def test_a_timeout_that_is_no_number_is_refused(words, tmp_path):
    wrong = {"WORLD_SIZE": "2", "RANK": "0", "IMIX_RANK_TIMEOUT": "soon"}
    said = command(*words, "--out", tmp_path / "run", folder=tmp_path, environment=wrong)
    assert (said.code, said.err) == (2, "imix: IMIX_RANK_TIMEOUT must be a number of seconds; got 'soon'\n")
