"""Atomic writes of files and folders, JSON Lines files, and folder locks. Imports no torch."""

import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from imix.errors import InputError, storage_errors
from imix.output import print_message

UNLOCKED_SECONDS = 10.0  # a temporary file is locked well before this age
STALE_SECONDS = 3600.0  # without locks, a temporary file that has not changed for this long is no longer being written


def write_atomically(path: Path, write: Callable[[BinaryIO], object], size: int | None = None) -> None:
    """Call `write` on a temporary file, then rename it to `path`, so that `path` is never incomplete.

    `size` is the number of bytes to be written, if known, for the error message. Several processes may write the same
    path: each uses its own temporary file. Temporary files left by killed processes are removed.
    """
    temporary = path.with_name(f".{os.getpid()}.{path.name}.unfinished")
    with storage_errors(path, size):
        _remove_abandoned(path.parent)
        try:
            with open(temporary, "wb") as file:
                with suppress(OSError):  # a file system without locks
                    fcntl.flock(file, fcntl.LOCK_EX)
                write(file)
                file.flush()
                os.fsync(file.fileno())
                os.replace(temporary, path)  # while it is locked
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)  # free the space: the disk may be full
            raise


def write_folder(path: Path, write: Callable[[Path], object]) -> None:
    """Call `write` on a temporary folder, then rename it to `path`, so that `path` is complete or absent.

    A folder at `path` is replaced. Temporary files and folders left by killed processes are removed.
    """
    path = path.resolve()
    temporary = path.with_name(f".{os.getpid()}.{path.name}.unfinished")
    replaced = path.with_name(f".{os.getpid()}.{path.name}.replaced.unfinished")
    with storage_errors(path):
        _remove_abandoned(path.parent)
        try:
            temporary.mkdir()
            with locked(temporary):
                write(temporary)
                if path.exists():
                    path.rename(replaced)
                temporary.rename(path)
        except BaseException:
            if replaced.exists() and not path.exists():
                replaced.rename(path)
            raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            if path.exists():
                shutil.rmtree(replaced, ignore_errors=True)


def remove(path: Path) -> None:
    """Delete a file, or a folder with its content, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _remove_abandoned(folder: Path) -> None:
    """Remove the temporary files and folders of killed processes from a folder."""
    for leftover in folder.glob(".*.unfinished"):
        with suppress(OSError):  # another process removed it
            if _is_abandoned(leftover):
                remove(leftover)


def _is_abandoned(temporary: Path) -> bool:
    """Whether the process that wrote a temporary file or folder is gone, so that no process holds the lock on it."""
    age = time.time() - temporary.lstat().st_mtime
    descriptor = os.open(temporary, os.O_RDONLY | os.O_NONBLOCK)  # a pipe must not block
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return age > STALE_SECONDS
    finally:
        os.close(descriptor)
    return age > UNLOCKED_SECONDS


@contextmanager
def locked(folder: Path, wait: bool = True, shared: bool = False) -> Iterator[None]:
    """Hold a lock on a folder, exclusive unless `shared`, which the system releases if the process dies.

    With `wait=False`, raise BlockingIOError if another process holds the lock. On a file system without locks, this
    does nothing.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        if isinstance(error, BlockingIOError):
            os.close(descriptor)
            raise
    try:
        yield
    finally:
        os.close(descriptor)


def check_output_path(path: Path, suffixes: Sequence[str], content: str) -> Path:
    """Return `path` if it has one of the suffixes and its folder exists; call this before expensive work."""
    if path.suffix not in suffixes:
        raise InputError(f"cannot write {content} to {str(path)!r}; choose a file that ends in {' or '.join(suffixes)}")
    if not path.parent.is_dir():
        raise InputError(f"cannot write {str(path)!r}: the folder {str(path.parent)!r} does not exist")
    return path


def write_bytes(path: Path, content: bytes) -> None:
    """Write a binary file atomically."""
    write_atomically(path, lambda file: file.write(content), len(content))


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file atomically; characters that UTF-8 cannot encode are escaped."""
    write_bytes(path, text.encode(errors="backslashreplace"))


def write_json(path: Path, value: Any) -> None:
    """Write indented JSON."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def write_jsonl(path: Path, records: list[dict[str, Any]]) -> None:
    """Write one JSON record per line."""
    write_text(path, "".join(json.dumps(record) + "\n" for record in records))


def append_jsonl(path: Path, *records: dict[str, Any]) -> None:
    """Append JSON records as lines, in one write; an incomplete last line is terminated first."""
    lines = "".join(json.dumps(record) + "\n" for record in records).encode()
    with storage_errors(path, len(lines)), open(path, "ab+", buffering=0) as file:
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            lines = lines if file.read(1) == b"\n" else b"\n" + lines
        while lines:  # a nearly full disk may accept only part of it
            lines = lines[file.write(lines) or 0 :]


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """Read one JSON record per line; an incomplete last line is ignored, a damaged line is skipped with a message."""
    if not path.exists():
        return []
    records = []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if isinstance(record, dict):
            records.append(record)
        elif line:
            print_message(f"{path}: skipped line {number}, which is damaged")
    return records


def read_metrics(path: Path, up_to_step: int | None = None) -> list[dict[str, Any]]:
    """Read metrics.jsonl with strictly increasing steps, optionally only up to a step."""
    records: list[dict[str, Any]] = []
    last_step = 0
    for record in read_jsonl(path):
        is_numeric = all(isinstance(value, int | float) for value in record.values())
        if not is_numeric or not {"step", "epoch", "loss"} <= record.keys():
            print_message(f"{path}: skipped a line that is not a training record")
        elif last_step < record["step"] and (up_to_step is None or record["step"] <= up_to_step):
            records.append(record)
            last_step = record["step"]
    return records
