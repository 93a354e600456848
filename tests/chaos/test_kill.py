"""Runs that are killed at any moment and resumed equal uninterrupted runs; stopped runs exit with code 75."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch

import imix
from imix import files
from imix.errors import RunFolderBusy
from imix.run import checkpoint
from tests.chaos.processes import (
    AFTER_RENAME,
    AFTER_STEP,
    BEFORE_RENAME,
    DURING_CHECKPOINT,
    DURING_RECORD,
    EXIT_INTERRUPTED,
    EXIT_RESUMABLE,
    LONG,
    METHODS,
    SMALL,
    TOTAL_STEPS,
    Command,
    Kill,
    assert_readable,
    assert_same_result,
    child_pids,
    count_records,
    is_running,
    pretrain,
    random_kills,
    small_data,
    small_settings,
    start_torchrun,
    wait_until,
)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """A function that returns the folder of an uninterrupted run; each run is trained on first use."""
    parent = tmp_path_factory.mktemp("uninterrupted")

    def run_folder(method: str, ranks: int) -> Path:
        folder = parent / f"{method}-{ranks}"
        if not folder.exists():
            assert pretrain(folder, small_settings(method), ranks) == [0] * ranks
        return folder

    return run_folder


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("method", METHODS)
def test_a_run_that_is_killed_several_times_equals_the_uninterrupted_run(uninterrupted, tmp_path, method, ranks):
    folder = tmp_path / "run"
    for kill in random_kills(f"{method} {ranks}", ranks, n=6 if LONG else 2):
        codes = pretrain(folder, small_settings(method), ranks, kill)
        assert -signal.SIGKILL in codes, kill
        assert_readable(folder)
    assert pretrain(folder, small_settings(method), ranks) == [0] * ranks
    assert_same_result(folder, uninterrupted(method, ranks))


@pytest.mark.parametrize(
    "event",
    [
        *(DURING_CHECKPOINT, BEFORE_RENAME, AFTER_RENAME, DURING_RECORD),
        *("config.json", "metrics.jsonl", "encoder.safetensors"),
    ],
)
def test_a_run_that_is_killed_while_it_writes_a_file_equals_the_uninterrupted_run(uninterrupted, tmp_path, event):
    folder = tmp_path / "run"
    assert pretrain(folder, small_settings("moco"), kill=Kill(event, 1)) == [-signal.SIGKILL]
    assert_readable(folder)
    assert pretrain(folder, small_settings("moco")) == [0]
    assert_same_result(folder, uninterrupted("moco", 1))
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("event", ["config.json", "metrics.jsonl", AFTER_STEP])
def test_a_run_that_is_killed_while_it_overwrites_another_can_be_repeated(uninterrupted, tmp_path, event):
    folder = tmp_path / "run"
    assert pretrain(folder, small_settings("npair")) == [0]
    (folder / "notes.txt").write_text("mine")
    options = {"resume": False, "overwrite": True}
    assert pretrain(folder, small_settings("byol"), kill=Kill(event, 1), **options) == [-signal.SIGKILL]
    assert_readable(folder)
    assert pretrain(folder, small_settings("byol"), **options) == [0]
    assert_same_result(folder, uninterrupted("byol", 1))
    assert (folder / "notes.txt").read_text() == "mine"


# --- SIGTERM and SIGINT -----------------------------------------------------------------------------------------------

ENDLESS = ["--epochs", 100_000, "--encoder", "mlp:32-32", "--device", "cpu", "--checkpoint-minutes", 60]


def slow_down_loading() -> None:
    import imix.train.pretrain

    load = imix.train.pretrain.load

    def slow_load(*args, **kwargs):
        Path(os.environ["MARKER"]).touch()
        for _ in range(600):
            time.sleep(0.1)
        return load(*args, **kwargs)

    imix.train.pretrain.load = slow_load


def slow_down_first_step() -> None:
    import imix.train.step

    def slow_run(*args):
        Path(os.environ["MARKER"]).touch()
        time.sleep(60)

    imix.train.step.TrainingStep.run = slow_run


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_stopped_run_writes_a_checkpoint_within_ten_seconds_and_can_be_resumed(tmp_path, signum):
    arguments = ["pretrain", "digits", "--out", tmp_path / "run", *ENDLESS]
    metrics = tmp_path / "run" / "metrics.jsonl"
    run = Command(arguments, tmp_path)
    wait_until(lambda: count_records(tmp_path / "run") > 3)
    start = time.monotonic()
    run.send_signal(signum)
    result = run.wait(10)
    assert time.monotonic() - start < 10
    assert result.code == EXIT_RESUMABLE
    assert result.last_line.endswith("the same command with --resume")
    state = checkpoint.load(tmp_path / "run" / "checkpoint.pt")
    records = files.read_jsonl(metrics)
    assert state["epoch"] * 5 + state["step"] >= records[-1]["step"]
    resumed = Command([*arguments, "--resume"], tmp_path)
    wait_until(lambda: count_records(tmp_path / "run") > len(records) + 2)
    resumed.send_signal(signal.SIGTERM)
    assert resumed.wait(10).code == EXIT_RESUMABLE
    steps = [record["step"] for record in files.read_jsonl(metrics)]
    assert steps == list(range(5, 5 * len(steps) + 1, 5)), "records are missing or duplicated"


@pytest.mark.parametrize(
    ("signum", "code"),
    [(signal.SIGTERM, EXIT_RESUMABLE), (signal.SIGHUP, EXIT_RESUMABLE), (signal.SIGINT, EXIT_INTERRUPTED)],
)
@pytest.mark.parametrize("slow_down", [slow_down_loading, slow_down_first_step])
def test_a_run_that_has_nothing_to_save_stops_immediately_and_can_be_resumed(tmp_path, slow_down, signum, code):
    marker = tmp_path / "marker"
    arguments = ["pretrain", "digits", "--out", tmp_path / "run", "--epochs", 3]
    run = Command(arguments, tmp_path, environment={"MARKER": str(marker)}, prepare=(slow_down,))
    wait_until(marker.exists)
    run.send_signal(signum)
    result = run.wait(5)
    assert (result.code, result.last_line[:5]) == (code, "imix:")
    if code == EXIT_RESUMABLE:
        assert "the run can be resumed, from its last checkpoint if it has one: run the same" in result.last_line
    result = Command([*arguments, "--resume"], tmp_path).wait()
    assert result.code == 0, result.stderr


def test_a_run_that_is_killed_while_it_writes_its_encoder_can_be_finished(tmp_path):
    assert pretrain(tmp_path / "run", SMALL, kill=Kill("encoder.safetensors", 1)) == [-signal.SIGKILL]
    with pytest.raises(imix.InputError, match="has written no checkpoint yet"):
        imix.load_run(tmp_path / "run")
    assert pretrain(tmp_path / "run", SMALL) == [0]
    assert imix.load_run(tmp_path / "run").metrics[-1]["step"] == TOTAL_STEPS


@pytest.mark.parametrize("options", [{}, {"resume": True}, {"overwrite": True}], ids=str)
def test_two_commands_cannot_train_in_the_same_folder(tmp_path, options):
    x, _ = small_data()
    settings = imix.Settings(epochs=1, batch_size=16, encoder="mlp:16-16", device="cpu")
    imix.pretrain(x, settings, out=tmp_path / "run", progress=False)
    with files.locked(tmp_path / "run"), pytest.raises(RunFolderBusy, match="another command is training"):
        imix.pretrain(x, settings, out=tmp_path / "run", progress=False, **options)
    imix.pretrain(x, settings, out=tmp_path / "run", progress=False, **(options or {"resume": True}))


# --- damaged metrics --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", [b'{"step": 8, "ep', b"\0\0\0\0", b"\xff\xfe", b"[1, 2]", b"12", b"{}", b"[" * 9999])
def test_a_damaged_line_of_metrics_is_reported_and_skipped(tmp_path, capsys, damage):
    x = torch.randn(70, 6, generator=torch.Generator().manual_seed(0))
    run = imix.pretrain(x, SMALL, out=tmp_path / "run", progress=False)
    path = tmp_path / "run" / "metrics.jsonl"
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([*lines[:2], damage, *lines[3:]]))
    expected = [record for record in run.metrics if record["step"] != 12]
    assert imix.load_run(tmp_path / "run").metrics == expected
    assert "metrics.jsonl: skipped " in capsys.readouterr().err
    resumed = imix.pretrain(x, SMALL, out=tmp_path / "run", resume=True, progress=False)
    assert resumed.metrics == expected == files.read_jsonl(path)
    assert imix.report([tmp_path / "run"], tmp_path / "report.html").exists()


def test_duplicate_records_are_read_once(tmp_path):
    path = tmp_path / "metrics.jsonl"
    files.write_jsonl(path, [{"step": step, "epoch": 1, "loss": 1.0} for step in (4, 8, 8, 4, 12)])
    assert [record["step"] for record in files.read_metrics(path)] == [4, 8, 12]
    assert [record["step"] for record in files.read_metrics(path, 8)] == [4, 8]
    assert files.read_metrics(path, 0) == []


def test_a_truncated_line_does_not_damage_the_next_one(tmp_path):
    path = tmp_path / "evaluations.jsonl"
    files.append_jsonl(path, {"value": 1})
    with open(path, "a") as file:
        file.write('{"val')
    files.append_jsonl(path, {"value": 2})
    assert files.read_jsonl(path) == [{"value": 1}, {"value": 2}]


# --- settings that a config lacks or does not know --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sections", "name"),
    [
        *((("settings",), "symmetric"), (("settings",), "milestones"), (("settings",), "warmup")),
        (("data", "settings"), "n_mels"),
    ],
)
def test_a_run_whose_config_lacks_a_setting_is_resumed_with_the_default(tmp_path, sections, name):
    assert pretrain(tmp_path / "run", SMALL, kill=Kill(AFTER_STEP, 9)) == [-signal.SIGKILL]
    path = tmp_path / "run" / "config.json"
    config = section = json.loads(path.read_text())
    for key in sections:
        section = section[key]
    del section[name]
    path.write_text(json.dumps(config))
    assert pretrain(tmp_path / "run", SMALL) == [0]
    assert imix.load_run(tmp_path / "run").settings == SMALL


def test_an_unknown_setting_or_another_value_is_rejected_by_name(tmp_path):
    x = torch.randn(70, 6)
    imix.pretrain(x, SMALL, out=tmp_path / "run", progress=False)
    path = tmp_path / "run" / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"settings": config["settings"] | {"sparkle": 3}}))
    for use in (imix.load_run, lambda folder: imix.pretrain(x, SMALL, out=folder, resume=True, progress=False)):
        with pytest.raises(imix.InputError, match=r"config\.json .* is damaged: unknown key 'sparkle' in settings"):
            use(tmp_path / "run")
    del config["settings"]["queue"]
    path.write_text(json.dumps(config))
    with pytest.raises(imix.InputError, match="its queue was 4096, now it is 40"):
        imix.pretrain(x, SMALL, out=tmp_path / "run", resume=True, progress=False)


# --- long form: the real command, killed from outside -----------------------------------------------------------------


def start_command(*arguments):
    words = [sys.executable, "-m", "imix", *map(str, arguments)]
    return subprocess.Popen(words, env=os.environ | {"OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE, text=True)


@pytest.mark.full
@pytest.mark.skipif(not LONG, reason="long form only (IMIX_CHAOS=long): takes minutes")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("run", range(20))
def test_a_real_command_that_is_killed_at_random_moments_equals_the_uninterrupted_run(tmp_path, run):
    """Each method on one rank, and on two with torchrun; two of three kills happen while a checkpoint is written."""
    ranks, method = 1 + run % 2, METHODS[run // 2 % len(METHODS)]
    start = start_command if ranks == 1 else start_torchrun
    size = ["--epochs", 12 if ranks == 1 else 6, "--encoder", "mlp:512-512", "--batch-size", 64]
    arguments = ["pretrain", "digits", *size, "--method", method, "--checkpoint-minutes", 0, "--queue", 256]
    rng, folder = random.Random(run), tmp_path / "run"
    for i in range(3):
        process = start(*arguments, "--out", folder, "--resume")
        _wait_and_kill(process, folder, while_writing=i % 2 == 0, delay=rng.random())
        assert_readable(folder)
        if (folder / "encoder.safetensors").exists() and imix.load_run(folder).progress is None:
            break
    for out in (folder, tmp_path / "uninterrupted"):
        process = start(*arguments, "--out", out, "--resume")
        _, stderr = process.communicate(timeout=600)
        assert process.returncode == 0, stderr
    assert_same_result(folder, tmp_path / "uninterrupted")


def _wait_and_kill(process, folder, while_writing, delay):
    """Wait for a new record, then for a checkpoint being written or for `delay` seconds, and kill all processes."""
    n_records = count_records(folder)
    wait_until(lambda: count_records(folder) > n_records or process.poll() is not None, timeout=120)
    if while_writing:
        unfinished = ".*.checkpoint.pt.unfinished"
        wait_until(lambda: any(folder.glob(unfinished)) or process.poll() is not None, timeout=60, interval=0)
    else:
        time.sleep(delay)
    children = child_pids(process.pid)
    for pid in [*children, process.pid]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.communicate()
    wait_until(lambda: not any(map(is_running, children)))
