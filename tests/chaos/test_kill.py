"""Runs that are killed, at every moment, go on as if nothing had been; those that are asked to stop say "resume me"."""

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
from harm import (
    LONG,
    METHODS,
    SMALL,
    STEPS,
    Command,
    Death,
    check_readable,
    deaths,
    lines_in,
    of_method,
    pretrain,
    same_result,
    table,
    torchrun,
    wait_until,
)

import imix
from imix import files
from imix.train import checkpoint

RESUME_ME = 75


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Runs that nothing happened to, made when they are asked for."""
    folder = tmp_path_factory.mktemp("undisturbed")

    def made(method: str, ranks: int) -> Path:
        place = folder / f"{method}-{ranks}"
        if not place.exists():
            assert pretrain(place, of_method(method), ranks) == [0] * ranks
        return place

    return made


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("method", METHODS)
def test_a_run_killed_again_and_again_ends_as_the_undisturbed_one(undisturbed, tmp_path, method, ranks):
    folder = tmp_path / "run"
    for death in deaths(f"{method} {ranks}", ranks, n=6 if LONG else 2):
        codes = pretrain(folder, of_method(method), ranks, death)
        assert -signal.SIGKILL in codes, death
        check_readable(folder)
    assert pretrain(folder, of_method(method), ranks) == [0] * ranks
    same_result(folder, undisturbed(method, ranks))


@pytest.mark.parametrize(
    "moment",
    [
        *("half a checkpoint", "a whole one not in its place", "one in its place", "half a line"),
        *("config.json", "metrics.jsonl", "encoder.safetensors"),
    ],
)
def test_killed_at_the_moment_of_writing(undisturbed, tmp_path, moment):
    folder = tmp_path / "run"
    assert pretrain(folder, of_method("moco"), death=Death(moment, 1)) == [-signal.SIGKILL]
    check_readable(folder)
    assert pretrain(folder, of_method("moco")) == [0]
    same_result(folder, undisturbed("moco", 1))
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("moment", ["config.json", "metrics.jsonl", "a step"])
def test_an_overwriting_run_that_is_killed_leaves_a_run(undisturbed, tmp_path, moment):
    folder = tmp_path / "run"
    assert pretrain(folder, of_method("npair")) == [0]
    (folder / "notes.txt").write_text("mine")
    over = {"resume": False, "overwrite": True}
    assert pretrain(folder, of_method("byol"), death=Death(moment, 1), **over) == [-signal.SIGKILL]
    check_readable(folder)
    assert pretrain(folder, of_method("byol"), **over) == [0]
    same_result(folder, undisturbed("byol", 1))
    assert (folder / "notes.txt").read_text() == "mine"


# --- asked to stop ---------------------------------------------------------------------------------------------------

ENDLESS = ["--epochs", 100_000, "--encoder", "mlp:32-32", "--device", "cpu", "--checkpoint-minutes", 60]


def slow_reading() -> None:
    import imix.pretraining

    load = imix.pretraining.load

    def slow(data, reading, **given):
        (Path(reading.data_dir) / "reading").touch()
        for _ in range(600):
            time.sleep(0.1)
        return load(data, reading, **given)

    imix.pretraining.load = slow


def slow_first_step() -> None:
    import imix.train.step

    def slow(*given):
        Path(os.environ["STARTED"]).touch()
        time.sleep(60)

    imix.train.step.Step._take = slow


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_asked_to_stop_does_so_in_ten_seconds_and_goes_on_later(tmp_path, number):
    run = Command(["pretrain", "digits", "--out", tmp_path / "run", *ENDLESS], tmp_path)
    wait_until(lambda: lines_in(tmp_path / "run") > 3)
    asked = time.monotonic()
    run.send(number)
    said = run.wait(10)
    assert time.monotonic() - asked < 10
    assert said.code == RESUME_ME
    assert said.err.splitlines()[-1].endswith("the same command with --resume")
    state = checkpoint.load(tmp_path / "run" / "checkpoint.pt")
    records = files.read_lines(tmp_path / "run" / "metrics.jsonl")
    assert state["epoch"] * 5 + state["step"] >= records[-1]["step"]
    again = Command(["pretrain", "digits", "--out", tmp_path / "run", *ENDLESS, "--resume"], tmp_path)
    wait_until(lambda: lines_in(tmp_path / "run") > len(records) + 2)
    again.send(signal.SIGTERM)
    assert again.wait(10).code == RESUME_ME
    steps = [record["step"] for record in files.read_lines(tmp_path / "run" / "metrics.jsonl")]
    assert steps == list(range(5, 5 * len(steps) + 1, 5)), "no gaps and no doubles"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("busy", ["reading", "the first step"])
def test_a_run_that_has_nothing_to_save_stops_at_once_and_goes_on_later(tmp_path, number, busy):
    sign = tmp_path / "reading"
    arguments = ["pretrain", "digits", "--out", tmp_path / "run", "--epochs", 3, "--data-dir", tmp_path]
    prepare = (slow_reading if busy == "reading" else slow_first_step,)
    run = Command(arguments, tmp_path, environment={"STARTED": str(sign)}, prepare=prepare)
    wait_until(sign.exists)
    run.send(number)
    said = run.wait(5)
    assert (said.code, said.err.splitlines()[-1][:5]) == (RESUME_ME if number == signal.SIGTERM else 130, "imix:")
    again = Command([*arguments, "--resume"], tmp_path).wait()
    assert again.code == 0, again.err


def test_a_stop_during_the_last_writing_leaves_a_run_that_can_be_finished(tmp_path):
    assert pretrain(tmp_path / "run", SMALL, death=Death("encoder.safetensors", 1)) == [-signal.SIGKILL]
    with pytest.raises(imix.InputError, match="not finished"):
        imix.Run.load(tmp_path / "run")
    assert pretrain(tmp_path / "run", SMALL) == [0]
    assert imix.Run.load(tmp_path / "run").metrics[-1]["step"] == STEPS


# --- records ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", [b'{"step": 8, "ep', b"\0\0\0\0", b"\xff\xfe", b"[1, 2]", b"12", b"{}", b"[" * 9999])
def test_a_damaged_line_of_metrics_is_said_and_left_out(tmp_path, capsys, damage):
    x = torch.randn(70, 6, generator=torch.Generator().manual_seed(0))
    run = imix.pretrain(x, SMALL, out=tmp_path / "run", progress=False)
    path = tmp_path / "run" / "metrics.jsonl"
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([*lines[:2], damage, *lines[3:]]))
    left = [record for record in run.metrics if record["step"] != 12]
    assert imix.Run.load(tmp_path / "run").metrics == left
    assert "metrics.jsonl: " in capsys.readouterr().err
    again = imix.pretrain(x, SMALL, out=tmp_path / "run", resume=True, progress=False)
    assert again.metrics == left == files.read_lines(path)
    assert imix.report([tmp_path / "run"], tmp_path / "report.html").exists()


def test_records_that_were_written_twice_are_read_once(tmp_path):
    records = [{"step": step, "epoch": 1, "loss": 1.0} for step in (4, 8, 8, 4, 12)]
    files.write_lines(tmp_path / "metrics.jsonl", records)
    assert [record["step"] for record in files.read_metrics(tmp_path / "metrics.jsonl")] == [4, 8, 12]
    assert [record["step"] for record in files.read_metrics(tmp_path / "metrics.jsonl", 8)] == [4, 8]
    assert files.read_metrics(tmp_path / "metrics.jsonl", 0) == []


def test_a_line_that_was_cut_short_does_not_spoil_the_next(tmp_path):
    path = tmp_path / "evaluations.jsonl"
    files.append_line(path, {"value": 1})
    with open(path, "a") as file:
        file.write('{"val')
    files.append_line(path, {"value": 2})
    assert files.read_lines(path) == [{"value": 1}, {"value": 2}]


# --- runs of other versions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "name"),
    [
        *(("settings", "symmetric"), ("settings", "milestones"), ("settings", "warmup"), ("data", "table")),
        *(("reading", "mels"), ("data", "reading"), ("architecture", "clip"), ("architecture", "groups")),
    ],
)
def test_a_run_that_is_older_than_a_setting_is_resumed_with_its_default(tmp_path, part, name):
    assert pretrain(tmp_path / "run", SMALL, death=Death("a step", 9)) == [-signal.SIGKILL]
    path = tmp_path / "run" / "config.json"
    config = json.loads(path.read_text())
    del (config["data"]["reading"] if part == "reading" else config[part])[name]
    path.write_text(json.dumps(config))
    assert pretrain(tmp_path / "run", SMALL) == [0]
    assert imix.Run.load(tmp_path / "run").settings == SMALL


def test_a_setting_that_is_not_known_or_not_the_default_is_refused_by_name(tmp_path):
    x = torch.randn(70, 6)
    imix.pretrain(x, SMALL, out=tmp_path / "run", progress=False)
    path = tmp_path / "run" / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"settings": config["settings"] | {"sparkle": 3}}))
    assert imix.Run.load(tmp_path / "run").settings == SMALL
    with pytest.raises(imix.InputError, match="its sparkle is 3, and this version of imix does not know that"):
        imix.pretrain(x, SMALL, out=tmp_path / "run", resume=True, progress=False)
    del config["settings"]["queue"]
    path.write_text(json.dumps(config))
    with pytest.raises(imix.InputError, match="its queue is 4096, and 40 was given"):
        imix.pretrain(x, SMALL, out=tmp_path / "run", resume=True, progress=False)


# --- the long form: the real command, killed from outside ------------------------------------------------------------


def cli(*arguments):
    words = [sys.executable, "-m", "imix", *map(str, arguments)]
    return subprocess.Popen(words, env=os.environ | {"OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE, text=True)


@pytest.mark.skipif(not LONG, reason="the long form, IMIX_CHAOS=long, takes minutes")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("run", range(20))
def test_twenty_runs_killed_at_random_moments_from_outside(tmp_path, run):
    """Each method on one rank and on two under torchrun; two of three kills while a checkpoint is being written."""
    ranks, method = 1 + run % 2, METHODS[run // 2 % len(METHODS)]
    start = cli if ranks == 1 else torchrun
    size = ["--epochs", 12 if ranks == 1 else 6, "--encoder", "mlp:512-512", "--batch-size", 64]
    words = ["pretrain", "digits", *size, "--method", method, "--checkpoint-minutes", 0, "--queue", 256]
    draw, folder = random.Random(run), tmp_path / "run"
    for kill in range(3):
        process = start(*words, "--out", folder, "--resume")
        _wait_and_kill(process, folder, while_writing=kill % 2 == 0, more=draw.random())
        check_readable(folder)
        if (folder / "encoder.safetensors").exists():
            break
    for place in (folder, tmp_path / "undisturbed"):
        process = start(*words, "--out", place, "--resume")
        _, said = process.communicate(timeout=600)
        assert process.returncode == 0, said
    same_result(folder, tmp_path / "undisturbed")


def _wait_and_kill(process, folder, while_writing, more):
    had = lines_in(folder)
    wait_until(lambda: lines_in(folder) > had or process.poll() is not None, 120)
    if while_writing:
        wait_until(lambda: any(folder.glob(".*.checkpoint.pt.unfinished")) or process.poll() is not None, 60, every=0)
    else:
        time.sleep(more)
    children = _children(process.pid)
    for victim in [*children, process.pid]:
        with suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
    process.communicate()
    wait_until(lambda: not any(Path(f"/proc/{child}").exists() for child in children))


def _children(parent: int) -> list[int]:
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if int((place / "stat").read_text().rsplit(")", 1)[1].split()[1]) == parent:
                found.append(int(place.name))
        except OSError:
            continue
    return found


def test_two_commands_do_not_train_into_one_folder(tmp_path):
    (tmp_path / "run").mkdir()
    x, _ = table()
    settings = imix.Settings(epochs=1, batch_size=16, encoder="mlp:16-16", device="cpu")
    with files.locked(tmp_path / "run"), pytest.raises(imix.InputError, match="another command is training"):
        imix.pretrain(x, settings, out=tmp_path / "run", progress=False)
    imix.pretrain(x, settings, out=tmp_path / "run", progress=False)
