"""Folders of files, images or sounds: found, decoded by threads, and labelled by their subfolders.

What cannot be decoded is named, counted and left out; more than a few stop the run.
"""

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np

from imix.data.arrays import class_numbers
from imix.data.source import Data, Source
from imix.errors import InputError, first_line
from imix.progress import Told
from imix.settings import Reading

FEW = 0.01  # the share of files that may be broken, or five files if that is more
PARTS = ("train", "training", "validation", "valid", "val", "dev", "testing", "test")  # what folders of them are called
AHEAD = 2048  # files that are decoded ahead

Decode = Callable[[Path], np.ndarray]
Given = TypeVar("Given")
Made = TypeVar("Made")


def find_files(
    folder: Path, suffixes: tuple[str, ...], wanted: Sequence[str] | None = None, leave: str = ""
) -> list[Path]:
    """All files below a folder, or below the `wanted` ones in it, that end so, in order.

    What is hidden does not count, nor what lies in a folder called `leave`.
    """
    return sorted(_files([folder] if wanted is None else [folder / name for name in wanted], suffixes, leave))


def holds(folder: Path, suffixes: tuple[str, ...], leave: str = "") -> bool:
    """Whether `find_files` would find any; the first is enough."""
    return any(True for _ in _files([folder], suffixes, leave))


def _files(roots: Sequence[Path], suffixes: tuple[str, ...], leave: str) -> Iterator[Path]:
    seen: set[str] = set()

    def complain(error: OSError) -> None:
        raise InputError(f"cannot read {error.filename!r}: {error.strerror}") from error

    for root in roots:
        for place, folders, names in os.walk(root, onerror=complain, followlinks=True):
            folders[:] = sorted(name for name in folders if not name.startswith(".") and name != leave)
            links = [name for name in folders if os.path.islink(os.path.join(place, name))]
            folders[:] = [name for name in folders if name not in links] + links  # after what they lead to
            if (real := os.path.realpath(place)) in seen:  # links that go in circles
                folders.clear()
                continue
            seen.add(real)
            shown = [name for name in names if name.lower().endswith(suffixes) and not name.startswith(".")]
            yield from (Path(place) / name for name in shown if (Path(place) / name).is_file())


def read_files(
    folder: Path,
    reading: Reading,
    find: Callable[[Path], list[Path]],
    source: Callable[[list[Path]], tuple[Source, list[Path]]],
) -> Data:
    """A folder's files as data; where all are in subfolders, these are the classes. `reading.test` is such a folder.

    `source` makes of files the samples, and says which files these are.
    """
    if reading.test is not None:
        _check_apart(folder, Path(reading.test))
    found = find(folder)
    _check_parts(folder, found)
    train, names = source(found)
    classes = _classes(folder, names)
    known = None
    if classes is not None:
        train.labels, known = class_numbers(classes, len(names), str(folder))
    test: Source | None = None
    test_names: list[Path] = []
    if reading.test is not None:
        test, test_names = source(find(Path(reading.test)))
        test_classes = _classes(Path(reading.test), test_names)
        if known is not None and test_classes is not None:
            test.labels, _ = class_numbers(test_classes, len(test_names), reading.test, known)
    class_names = [] if known is None else [str(name) for name in known]
    return Data(str(folder), train, test, class_names, reading, names=[str(name) for name in (*names, *test_names)])


def decoded(paths: Iterable[Path], decode: Decode) -> Iterator[tuple[Path, np.ndarray | Exception]]:
    """Each file's content, or why it cannot be decoded, in order, with some being decoded ahead."""

    def attempt(path: Path) -> tuple[Path, np.ndarray | Exception]:
        try:
            return path, decode(path)
        except Exception as error:  # a broken file fails in many ways, all of them the file's fault
            return path, error

    return ahead(attempt, paths, AHEAD)


def ahead(function: Callable[[Given], Made], items: Iterable[Given], most: int) -> Iterator[Made]:
    """What a function makes of each, in order, with at `most` that many made ahead."""
    waiting: deque[Future[Made]] = deque()
    pool = ThreadPoolExecutor(min(32, os.cpu_count() or 1))
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > most:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def decode_all(paths: Sequence[Path], decode: Decode, into: np.ndarray, what: str) -> list[Path]:
    """Decode files into the rows of an array; gives those that fill its first rows, the others are left out."""
    good: list[Path] = []
    broken: set[Path] = set()
    told = Told("decoding", len(paths), what)
    for path, content in decoded(paths, decode):
        if isinstance(content, Exception):
            broken.add(path)
            print(f"left out {str(path)!r}: {first_line(content)}", file=sys.stderr)
            check_few(broken, len(paths), path, what)
        else:
            into[len(good)] = content
            good.append(path)
        told(len(good) + len(broken))
    if not good:
        raise InputError(f"none of the {len(paths)} {what} can be decoded; the first is {str(paths[0])!r}")
    if broken:
        print(f"{len(broken)} of {len(paths)} {what} were left out", file=sys.stderr)
    return good


def check_few(broken: set[Path], total: int, last: Path, what: str) -> None:
    """Refuse to go on when more than a few files are broken."""
    if len(broken) > max(5, FEW * total):
        raise InputError(f"{len(broken)} {what} cannot be decoded; the last is {str(last)!r}")


def _check_apart(train: Path, test: Path) -> None:
    one, other = train.resolve(), test.resolve()
    if one == other or one in other.parents or other in one.parents:
        raise InputError(f"training files in {str(train)!r} and test files in {str(test)!r} must lie apart")


def _check_parts(folder: Path, files: Sequence[Path]) -> None:
    """Refuse a folder whose subfolders are no classes but the parts of a data set."""
    parts = [file.relative_to(folder).parts for file in files]
    first = sorted({part[0] for part in parts})
    if len(first) > 1 and set(map(str.lower, first)) <= set(PARTS):
        train = min(first, key=lambda name: PARTS.index(name.lower()))
        test = max(first, key=lambda name: PARTS.index(name.lower()))
        raise InputError(
            f"{str(folder)!r} has the parts {', '.join(first)}, not classes: give {str(folder / train)!r}, and --test "
            f"{str(folder / test)!r} if you like"
        )


def _classes(folder: Path, names: Sequence[Path]) -> list[str] | None:
    """The first subfolder of each file, or None where some have none."""
    parts = [name.relative_to(folder).parts for name in names]
    loose = [part[0] for part in parts if len(part) == 1]
    if loose and len(loose) < len(parts):
        more = f" and {len(loose) - 1} more are" if len(loose) > 1 else " is"
        print(f"{folder}: no labels, since {loose[0]!r}{more} in no subfolder", file=sys.stderr)
    return None if loose else [part[0] for part in parts]
