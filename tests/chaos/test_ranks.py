"""A rank that dies or hangs: the others name it within the timeout, and the run resumes from its last checkpoint."""

import os
import signal
import time

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from imix import files
from imix.run import checkpoint
from tests.chaos.processes import (
    EXIT_BAD_INPUT,
    EXIT_RESUMABLE,
    assert_readable,
    count_records,
    is_running,
    rank_pid,
    run_command,
    small_data,
    start_torchrun,
    start_two_ranks,
    wait_until,
)

OPTIONS = ["--batch-size", 16, "--encoder", "mlp:16-16", "--device", "cpu", "--resume"]


@pytest.fixture
def arguments(tmp_path):
    """Arguments of a run on a file, without its length and its folder."""
    np.save(tmp_path / "x.npy", small_data()[0].numpy())
    return ["pretrain", tmp_path / "x.npy", *OPTIONS]


def slow_down_steps() -> None:
    import imix.train.step

    run = imix.train.step.TrainingStep.run

    def slow_run(*args):
        time.sleep(1.2)
        return run(*args)

    imix.train.step.TrainingStep.run = slow_run


@pytest.mark.parametrize("source", ["array", "streamed table"])
def test_torchrun_restarts_killed_ranks_and_the_result_equals_the_uninterrupted_run(arguments, tmp_path, source):
    if source == "streamed table":
        (tmp_path / "table").mkdir()
        for i, rows in enumerate(small_data()[0].split(18)):
            table = pa.table({f"column {j}": column.numpy() for j, column in enumerate(rows.T)})
            parquet.write_table(table, tmp_path / "table" / f"{i}.parquet", row_group_size=6)
        arguments[1] = tmp_path / "table"
    length = ["--epochs", 30, "--checkpoint-minutes", 0.002]
    process = start_torchrun(*arguments, *length, "--out", tmp_path / "killed", restarts=1)
    wait_until(lambda: count_records(tmp_path / "killed") >= 3)
    os.kill(rank_pid(process.pid, 1), signal.SIGKILL)
    ranks = start_two_ranks(*arguments, *length, "--out", tmp_path / "uninterrupted", folder=tmp_path)
    results = [rank.wait(120) for rank in ranks]
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    assert "rank 0 of 2 cannot continue: rank 1 does not respond" in stderr
    assert [result.code for result in results] == [0, 0], results
    folders = [tmp_path / "killed", tmp_path / "uninterrupted"]
    killed, uninterrupted = ((folder / "encoder.safetensors").read_bytes() for folder in folders)
    assert killed == uninterrupted
    records = [files.read_jsonl(folder / "metrics.jsonl") for folder in folders]
    killed, uninterrupted = ([(record["step"], record["loss"]) for record in run] for run in records)
    assert killed == uninterrupted


def test_ranks_stop_when_torchrun_is_killed(arguments, tmp_path):
    arguments = [*arguments, "--epochs", 100_000, "--checkpoint-minutes", 60, "--out", tmp_path / "run"]
    process = start_torchrun(*arguments)
    wait_until(lambda: count_records(tmp_path / "run") >= 2)
    ranks = [rank_pid(process.pid, rank) for rank in (0, 1)]
    process.kill()
    wait_until(lambda: not any(map(is_running, ranks)))
    _, stderr = process.communicate()
    assert stderr.count("; the run can be resumed") == 2
    state = checkpoint.load(tmp_path / "run" / "checkpoint.pt")
    assert state["epoch"] * 4 + state["step"] >= 4 * count_records(tmp_path / "run")


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_that_dies_or_hangs_is_named_within_the_timeout(arguments, tmp_path, victim, signum):
    length = ["--epochs", 100_000, "--checkpoint-minutes", 0]
    environment = {"IMIX_RANK_TIMEOUT": "3"}
    ranks = start_two_ranks(*arguments, *length, "--out", tmp_path / "run", folder=tmp_path, environment=environment)
    try:
        wait_until(lambda: count_records(tmp_path / "run") >= 2)
        ranks[victim].send_signal(signum)
        result = ranks[1 - victim].wait(15)
    finally:
        ranks[victim].process.kill()
    assert result.code == EXIT_RESUMABLE, result.stderr
    assert f"rank {1 - victim} of 2 cannot continue: rank {victim} does not respond" in result.last_line
    assert result.last_line.endswith("the same command with --resume")
    assert_readable(tmp_path / "run")


def test_all_ranks_stop_soon_after_one_receives_sigterm_even_if_steps_are_slow(arguments, tmp_path):
    length = ["--epochs", 1000, "--checkpoint-minutes", 60]
    ranks = start_two_ranks(*arguments, *length, "--out", tmp_path / "run", folder=tmp_path, prepare=(slow_down_steps,))
    wait_until(lambda: count_records(tmp_path / "run") >= 1)
    start = time.monotonic()
    ranks[1].send_signal(signal.SIGTERM)
    results = [rank.wait(15) for rank in ranks]
    assert [result.code for result in results] == [EXIT_RESUMABLE, EXIT_RESUMABLE], results
    assert time.monotonic() - start < 10
    state = checkpoint.load(tmp_path / "run" / "checkpoint.pt")
    assert state["epoch"] * 4 + state["step"] >= 4


def test_a_rank_timeout_that_is_not_a_number_is_rejected(arguments, tmp_path):
    environment = {"WORLD_SIZE": "2", "RANK": "0", "IMIX_RANK_TIMEOUT": "soon"}
    result = run_command(*arguments, "--out", tmp_path / "run", folder=tmp_path, environment=environment)
    message = "imix: IMIX_RANK_TIMEOUT must be a number of seconds; got 'soon'\n"
    assert (result.code, result.stderr) == (EXIT_BAD_INPUT, message)


def test_a_restart_while_ranks_are_still_stopping_is_told_to_wait(arguments, tmp_path):
    arguments = [*arguments, "--epochs", 1, "--out", tmp_path / "run"]
    assert run_command(*arguments, folder=tmp_path).code == 0
    with files.locked(tmp_path / "run"):  # as a rank that is stopping
        restarted = run_command(*(word for word in arguments if word != "--resume"), folder=tmp_path)
    assert (restarted.code, "another command is training" in restarted.last_line) == (EXIT_RESUMABLE, True)
