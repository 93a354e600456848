"""Disks that are full, read-only or over quota: what was good stays, and the message names the file and its need."""

import builtins
import errno
import os
import re
import resource
import shutil
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from harm import SMALL, check_readable, command, table, two_ranks

import imix
from imix import files
from imix.errors import StorageError
from imix.train import checkpoint

FLAGS = ["--epochs", 3, "--batch-size", 16, "--encoder", "mlp:64-64", "--device", "cpu", "--checkpoint-minutes", 0]


@pytest.fixture
def data(tmp_path):
    x, y = table()
    np.savez(tmp_path / "x.npz", x=x.numpy(), y=y.numpy())
    return tmp_path / "x.npz"


def limit_files(size: int) -> None:
    """Let no file of this process grow beyond that size."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def fail_writes(end: str, number: int, after: int) -> None:
    """Let the disk refuse files whose names end so, once they were opened so many times."""
    original, opened = builtins.open, [0]

    def refuse(file, *given, **more):
        name = str(file)
        writing = (given[0] if given else more.get("mode", "r"))[0] in "wa"
        if name.endswith(end) and writing:
            opened[0] += 1
            if opened[0] > after:
                raise OSError(number, os.strerror(number), name)
        return original(file, *given, **more)

    builtins.open = refuse


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
@pytest.mark.parametrize("written", [".checkpoint.pt.unfinished", "metrics.jsonl"])
def test_a_run_on_a_disk_that_refuses_ends_with_its_last_checkpoint_and_goes_on_later(data, tmp_path, written, number):
    words = ["pretrain", data, "--out", tmp_path / "run", *FLAGS]
    said = command(*words, folder=tmp_path, prepare=(fail_writes, written, number, 2))
    last = said.err.splitlines()[-1]
    assert said.code == 1
    assert "Traceback" not in said.err
    file = re.escape(str(tmp_path / "run" / written.removeprefix(".").removesuffix(".unfinished")))
    need = r"it needs [\d.,]+ [kM]B, and [\d.,]+ MB are free in"
    assert re.fullmatch(rf"imix: cannot write '{file}': {os.strerror(number)} \({need} '.*'\)", last), last
    check_readable(tmp_path / "run")
    state = checkpoint.load(tmp_path / "run" / "checkpoint.pt")
    assert state["step"] > 0 or state["epoch"] > 0
    assert not list((tmp_path / "run").glob(".*"))
    assert command(*words, "--resume", folder=tmp_path).code == 0
    assert command("pretrain", data, "--out", tmp_path / "whole", *FLAGS, folder=tmp_path).code == 0
    one, other = ((tmp_path / name / "encoder.safetensors").read_bytes() for name in ("run", "whole"))
    assert one == other
    steps = [record["step"] for record in files.read_lines(tmp_path / "run" / "metrics.jsonl")]
    assert steps == [4, 8, 12]


@pytest.mark.parametrize(("room", "file"), [(1000, "config.json"), (20_000, "checkpoint.pt")])
def test_a_real_limit_to_files_is_said(data, tmp_path, room, file):
    words = ["pretrain", data, "--out", tmp_path / "run", *FLAGS]
    said = command(*words, folder=tmp_path, prepare=(limit_files, room))
    assert (said.code, "Traceback" in said.err) == (1, False)
    assert f"cannot write '{tmp_path / 'run' / file}': File too large (it needs" in said.err.splitlines()[-1]
    assert not list((tmp_path / "run").glob(".*"))
    assert command(*words, "--resume", folder=tmp_path).code == 0


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 300 kB, where one may mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", place], capture_output=True).returncode:
        pytest.skip("no disk can be mounted here")
    yield place
    subprocess.run(["umount", place], check=True)


def test_a_disk_that_fills_up_and_is_made_room_on(data, tmp_path, small_disk):
    words = ["pretrain", data, "--out", small_disk / "run", *FLAGS]
    (small_disk / "film.mp4").write_bytes(bytes(205_000))
    said = command(*words, folder=tmp_path)
    assert said.code == 1
    assert re.search(r"cannot write '.*checkpoint.pt': No space left on device \(it needs \d", said.err), said.err
    check_readable(small_disk / "run")
    (small_disk / "film.mp4").unlink()
    said = command(*words, "--resume", folder=tmp_path)
    assert said.code == 0, said.err
    full = small_disk / "more"
    with pytest.raises(OSError, match="No space"):
        full.write_bytes(bytes(400_000))
    for protocol in ("embed", "report", "evaluate"):
        more = [data, "--out", small_disk / "z.npy"] if protocol == "embed" else []
        more = ["--out", small_disk / "report.html"] if protocol == "report" else more
        said = command(protocol, small_disk / "run", *more, folder=tmp_path)
        assert (said.code, "Traceback" in said.err) == (1, False), said.err
        assert "cannot write" in said.err.splitlines()[-1]
    assert "what was found: linear on" in said.err
    full.unlink()
    assert not list(small_disk.glob(".*"))
    assert imix.Run.load(small_disk / "run").metrics[-1]["step"] == 12


def test_a_folder_that_cannot_be_written(data, tmp_path):
    """As root every folder can be; a file where a folder should be cannot."""
    (tmp_path / "file").write_text("")
    said = command("embed", tmp_path / "nowhere", data, "--out", tmp_path / "file" / "z.npy", folder=tmp_path)
    assert (said.code, len(said.err.splitlines())) == (2, 1)


def test_a_run_folder_that_is_taken_away_is_said(tmp_path):
    x, _ = table()

    def take_away(batch):
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        return batch

    with pytest.raises(StorageError, match=r"cannot write '.*/run/.*': No such file or directory"):
        imix.pretrain(x, SMALL, augment=take_away, out=tmp_path / "run", progress=False)


def test_the_other_rank_is_told_whose_disk_it_was(data, tmp_path):
    words = ["pretrain", data, "--out", tmp_path / "run", *FLAGS]
    full = (fail_writes, ".checkpoint.pt.unfinished", errno.ENOSPC, 1)
    first, second = [rank.wait() for rank in two_ranks(*words, folder=tmp_path, prepare=full)]
    assert first.code == 1 and "No space left on device" in first.err.splitlines()[-1]
    assert second.code == 75 and "rank 1 of 2 cannot go on, since rank 0 is gone" in second.err.splitlines()[-1]


@pytest.mark.parametrize("out", ["z.npy", "z.csv", "z.parquet"])
def test_vectors_are_whole_or_not_there(data, tmp_path, out):
    assert command("pretrain", data, "--out", tmp_path / "run", *FLAGS, folder=tmp_path).code == 0
    words = ["embed", tmp_path / "run", data, "--out", tmp_path / out]
    said = command(*words, folder=tmp_path, prepare=(limit_files, 2000))
    assert (said.code, "Traceback" in said.err) == (1, False), said.err
    assert f"cannot write '{tmp_path / out}': " in said.err.splitlines()[-1]
    assert not list(tmp_path.glob("*z.*"))
    assert command(*words, folder=tmp_path).code == 0


def test_a_full_disk_of_temporary_files_is_not_taken_for_a_bad_table(tmp_path):
    rows = "".join(f"{i * 0.37},{i % 7}\n" for i in range(20_000))
    (tmp_path / "t.csv").write_text("a,b\n" + rows)
    (tmp_path / "temporary").mkdir()
    said = command(
        *("pretrain", tmp_path / "t.csv", "--out", tmp_path / "run"),
        folder=tmp_path,
        environment={"TMPDIR": str(tmp_path / "temporary")},
        prepare=(limit_files, 10_000),
    )
    assert (said.code, "Traceback" in said.err) == (1, False), said.err
    assert re.search(r"cannot write '.*/imix-.*\.arrow': .*\(it needs ", said.err.splitlines()[-1]), said.err
    assert not list((tmp_path / "temporary").iterdir())


def test_every_error_of_a_disk_is_one_and_other_errors_stay_what_they_are(tmp_path):
    with pytest.raises(StorageError, match=r"it needs 2\.0 kB"), imix.errors.storing(tmp_path / "x", 2000):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(RuntimeError, match="shape"), imix.errors.storing(tmp_path / "x"):
        raise RuntimeError("a shape does not fit")
    with pytest.raises(StorageError, match="first"), imix.errors.storing(tmp_path / "x"):
        raise StorageError("first")
    assert issubclass(StorageError, OSError)


def test_a_checkpoint_on_dev_full_names_its_need(tmp_path):
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    (tmp_path / f".{os.getpid()}.checkpoint.pt.unfinished").symlink_to("/dev/full")
    with pytest.raises(StorageError, match=r"checkpoint.pt': No space left on device \(it needs 4.0 MB"):
        checkpoint.save(tmp_path / "checkpoint.pt", {"weights": torch.zeros(1_000_000)})
    assert not list(tmp_path.iterdir())
