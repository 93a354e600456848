"""Full, read-only and over-quota disks: complete files stay, and the error names the file and the space it needs."""

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

import imix
from imix import files
from imix.errors import StorageError, storage_errors
from imix.run import checkpoint
from tests.chaos.processes import (
    EXIT_BAD_INPUT,
    EXIT_FAILURE,
    EXIT_RESUMABLE,
    SMALL,
    assert_readable,
    run_command,
    small_data,
    start_two_ranks,
)

OPTIONS = ["--epochs", 3, "--batch-size", 16, "--encoder", "mlp:64-64", "--device", "cpu", "--checkpoint-minutes", 0]


@pytest.fixture
def data(tmp_path):
    x, y = small_data()
    np.savez(tmp_path / "x.npz", x=x.numpy(), y=y.numpy())
    return tmp_path / "x.npz"


def limit_file_size(size: int) -> None:
    """Let no file that this process writes grow beyond `size` bytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def fail_writes(suffix: str, error_number: int, after: int) -> None:
    """Raise OSError when a file whose name ends in `suffix` is opened for writing, after it worked `after` times."""
    original_open, count = builtins.open, 0

    def failing_open(file, *args, **kwargs):
        nonlocal count
        name = str(file)
        mode = args[0] if args else kwargs.get("mode", "r")
        if name.endswith(suffix) and mode[0] in "wa":
            count += 1
            if count > after:
                raise OSError(error_number, os.strerror(error_number), name)
        return original_open(file, *args, **kwargs)

    builtins.open = failing_open


@pytest.mark.parametrize("error_number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
@pytest.mark.parametrize("suffix", [".checkpoint.pt.unfinished", "metrics.jsonl"])
def test_a_run_whose_disk_fails_keeps_its_last_checkpoint_and_can_be_resumed(data, tmp_path, suffix, error_number):
    arguments = ["pretrain", data, "--out", tmp_path / "run", *OPTIONS]
    result = run_command(*arguments, folder=tmp_path, prepare=(fail_writes, suffix, error_number, 2))
    assert result.code == EXIT_FAILURE
    assert "Traceback" not in result.stderr
    path = re.escape(str(tmp_path / "run" / suffix.removeprefix(".").removesuffix(".unfinished")))
    space = r"it needs [\d.,]+ [kM]B, and [\d.,]+ MB are free in"
    pattern = rf"imix: cannot write '{path}': {os.strerror(error_number)} \({space} '.*'\)"
    assert re.fullmatch(pattern, result.last_line), result.last_line
    assert_readable(tmp_path / "run")
    state = checkpoint.load(tmp_path / "run" / "checkpoint.pt")
    assert state["step"] > 0 or state["epoch"] > 0
    assert not list((tmp_path / "run").glob(".*"))
    assert run_command(*arguments, "--resume", folder=tmp_path).code == 0
    assert run_command("pretrain", data, "--out", tmp_path / "reference", *OPTIONS, folder=tmp_path).code == 0
    resumed, reference = ((tmp_path / name / "encoder.safetensors").read_bytes() for name in ("run", "reference"))
    assert resumed == reference
    steps = [record["step"] for record in files.read_jsonl(tmp_path / "run" / "metrics.jsonl")]
    assert steps == [4, 8, 12]


@pytest.mark.parametrize(("limit", "file"), [(1000, "config.json"), (20_000, "checkpoint.pt")])
def test_a_file_size_limit_of_the_system_is_reported(data, tmp_path, limit, file):
    arguments = ["pretrain", data, "--out", tmp_path / "run", *OPTIONS]
    result = run_command(*arguments, folder=tmp_path, prepare=(limit_file_size, limit))
    assert (result.code, "Traceback" in result.stderr) == (EXIT_FAILURE, False)
    assert f"cannot write '{tmp_path / 'run' / file}': File too large (it needs" in result.last_line
    assert not list((tmp_path / "run").glob(".*"))
    assert run_command(*arguments, "--resume", folder=tmp_path).code == 0


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 300 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", folder], capture_output=True).returncode:
        pytest.skip("cannot mount a file system here")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize(("used", "failed"), [(245_000, "checkpoint.pt"), (205_000, "encoder.safetensors")])
def test_a_run_resumes_after_a_full_disk_is_cleared(data, tmp_path, small_disk, used, failed):
    arguments = ["pretrain", data, "--out", small_disk / "run", *OPTIONS]
    (small_disk / "film.mp4").write_bytes(bytes(used))
    result = run_command(*arguments, folder=tmp_path)
    assert result.code == EXIT_FAILURE
    assert re.search(rf"cannot write '.*{failed}': No space left on device \(it needs \d", result.stderr)
    assert_readable(small_disk / "run")
    (small_disk / "film.mp4").unlink()
    result = run_command(*arguments, "--resume", folder=tmp_path)
    assert result.code == 0, result.stderr
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space"):
        filler.write_bytes(bytes(400_000))
    for command, options in {
        "embed": [data, "--out", small_disk / "z.npy"],
        "report": ["--out", small_disk / "report.html"],
        "evaluate": ["--protocol", "linear"],
    }.items():
        result = run_command(command, small_disk / "run", *options, folder=tmp_path)
        assert (result.code, "Traceback" in result.stderr) == (EXIT_FAILURE, False), result.stderr
        assert "cannot write" in result.last_line
    assert "unsaved result: linear on" in result.stderr
    filler.unlink()
    assert not list(small_disk.glob(".*"))
    assert imix.load_run(small_disk / "run").metrics[-1]["step"] == 12


def test_an_output_folder_that_is_a_file_is_rejected(data, tmp_path):
    """Root may write to any folder, so the test uses a file in place of a folder."""
    (tmp_path / "file").write_text("")
    result = run_command("embed", tmp_path / "nowhere", data, "--out", tmp_path / "file" / "z.npy", folder=tmp_path)
    assert (result.code, len(result.stderr.splitlines())) == (EXIT_BAD_INPUT, 1)


def test_a_run_folder_that_is_deleted_during_training_is_reported(tmp_path):
    x, _ = small_data()

    def delete_folder(batch):
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        return batch

    with pytest.raises(StorageError, match=r"cannot write '.*/run/.*': No such file or directory"):
        imix.pretrain(x, SMALL, augment=delete_folder, out=tmp_path / "run", progress=False)


def test_the_other_rank_names_the_rank_whose_disk_was_full(data, tmp_path):
    arguments = ["pretrain", data, "--out", tmp_path / "run", *OPTIONS]
    prepare = (fail_writes, ".checkpoint.pt.unfinished", errno.ENOSPC, 1)
    ranks = start_two_ranks(*arguments, folder=tmp_path, prepare=prepare)
    rank_0, rank_1 = [rank.wait() for rank in ranks]
    assert rank_0.code == EXIT_FAILURE and "No space left on device" in rank_0.last_line
    assert rank_1.code == EXIT_RESUMABLE
    assert "rank 1 of 2 cannot continue: rank 0 does not respond" in rank_1.last_line


@pytest.mark.parametrize("name", ["z.npy", "z.csv", "z.parquet"])
def test_a_file_of_features_is_complete_or_absent(data, tmp_path, name):
    assert run_command("pretrain", data, "--out", tmp_path / "run", *OPTIONS, folder=tmp_path).code == 0
    arguments = ["embed", tmp_path / "run", data, "--out", tmp_path / name]
    result = run_command(*arguments, folder=tmp_path, prepare=(limit_file_size, 2000))
    assert (result.code, "Traceback" in result.stderr) == (EXIT_FAILURE, False), result.stderr
    assert f"cannot write '{tmp_path / name}': " in result.last_line
    assert not list(tmp_path.glob("*z.*"))
    assert run_command(*arguments, folder=tmp_path).code == 0


def test_os_errors_become_storage_errors_and_other_errors_are_not_changed(tmp_path):
    with pytest.raises(StorageError, match=r"it needs 2\.0 kB"), storage_errors(tmp_path / "x", 2000):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(RuntimeError, match="shape"), storage_errors(tmp_path / "x"):
        raise RuntimeError("a shape does not fit")
    with pytest.raises(StorageError, match="first"), storage_errors(tmp_path / "x"):
        raise StorageError("first")
    assert issubclass(StorageError, OSError)


def test_a_checkpoint_written_to_dev_full_reports_its_size(tmp_path):
    if not Path("/dev/full").exists():
        pytest.skip("/dev/full does not exist")
    (tmp_path / f".{os.getpid()}.checkpoint.pt.unfinished").symlink_to("/dev/full")
    with pytest.raises(StorageError, match=r"checkpoint.pt': No space left on device \(it needs 4.0 MB"):
        checkpoint.save(tmp_path / "checkpoint.pt", {"weights": torch.zeros(1_000_000)})
    assert not list(tmp_path.iterdir())
