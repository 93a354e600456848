"""Files that are either whole or not there, lines added to a file, and folders of one process alone. No torch here."""

import fcntl
import glob
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from imix.errors import InputError, storing

STALE = 60.0  # seconds in which a file that somebody writes gets something new


def write_atomically(path: Path, write: Callable[[BinaryIO], object], need: int | None = None) -> None:
    """Let `write` fill a file of another name, then put it in its place in one step.

    What was there stays until then; `need` is how many bytes it will take, if that is known. Many processes may write
    the same file, each under a name of its own; what one that was killed left of it is removed.
    """
    unfinished = path.with_name(f".{os.getpid()}.{path.name}.unfinished")
    with storing(path, need):
        for left in path.parent.glob(f".*.{glob.escape(path.name)}.unfinished"):
            if _is_left(left):
                left.unlink(missing_ok=True)
        try:
            with open(unfinished, "wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, path)
        except BaseException:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)  # half a file on a full disk helps nobody
            raise


def _is_left(unfinished: Path) -> bool:
    """Whether nobody writes it any more: no such process here, and nothing new for a minute from elsewhere."""
    try:
        os.kill(int(unfinished.name.split(".")[1]), 0)
    except ProcessLookupError:
        return time.time() - unfinished.lstat().st_mtime > STALE
    except (OSError, ValueError, OverflowError):
        pass
    return False


@contextmanager
def locked(folder: Path, wait: bool = True) -> Iterator[None]:
    """Hold a folder's lock, which ends with the process; BlockingIOError where another has it and we are not to wait.

    Where a file system knows no locks, none is held.
    """
    place = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(place, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        if isinstance(error, BlockingIOError):
            os.close(place)
            raise
    try:
        yield
    finally:
        os.close(place)


def writable(path: Path, suffixes: Sequence[str], what: str) -> Path:
    """The path, if its name ends in one of these and its folder is there; asked before the work that fills it."""
    if path.suffix not in suffixes:
        raise InputError(f"cannot write {what} to {str(path)!r}; choose a file that ends in {' or '.join(suffixes)}")
    if not path.parent.is_dir():
        raise InputError(f"cannot write {str(path)!r}: there is no folder {str(path.parent)!r}")
    return path


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file."""
    write_atomically(path, lambda file: file.write(content), len(content))


def write_text(path: Path, text: str) -> None:
    """Write a text file; names of bytes that are no UTF-8 as far as they go."""
    write_bytes(path, text.encode(errors="backslashreplace"))


def write_json(path: Path, value: Any) -> None:
    """Write JSON that people can read."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def write_lines(path: Path, records: list[dict[str, Any]]) -> None:
    """Write one JSON record a line."""
    write_text(path, "".join(json.dumps(record) + "\n" for record in records))


def append_line(path: Path, record: dict[str, Any]) -> None:
    """Add a JSON record as a line, at once; what an earlier failure left of a line is ended first."""
    line = (json.dumps(record) + "\n").encode()
    with storing(path, len(line)), open(path, "ab+", buffering=0) as file:
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            line = line if file.read(1) == b"\n" else b"\n" + line
        while line:  # a disk that is nearly full takes a part
            line = line[file.write(line) or 0 :]


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read one JSON record a line; a last line that was cut short does not count, and a damaged one is said."""
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
            print(f"{path}: line {number} is damaged and left out", file=sys.stderr)
    return records


def read_metrics(path: Path, up_to_step: int | None = None) -> list[dict[str, Any]]:
    """The records of metrics.jsonl, in order, each step once, up to that step if it is given."""
    records: list[dict[str, Any]] = []
    last = 0
    for record in read_lines(path):
        numbers = all(isinstance(value, int | float) for value in record.values())
        if not numbers or not {"step", "epoch", "loss"} <= record.keys():
            print(f"{path}: a line that is no record of training is left out", file=sys.stderr)
        elif last < record["step"] and (up_to_step is None or record["step"] <= up_to_step):
            records.append(record)
            last = record["step"]
    return records
