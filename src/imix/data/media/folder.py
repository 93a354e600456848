"""Folders of image or audio files: finding files, decoding them in threads, and labeling them by subfolder.

Files that cannot be decoded are reported and skipped; too many of them are an error.
"""

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np

from imix.data.arrays import encode_classes
from imix.data.source import Data, Source
from imix.errors import InputError, first_line
from imix.progress import ProgressLine
from imix.settings import DataSettings

MAX_BROKEN = 5  # allowed number of broken files, or this fraction of all files if that is more:
MAX_BROKEN_FRACTION = 0.01
# Common names of split folders, from the most to the least suitable for training.
SPLIT_NAMES = ("train", "training", "validation", "valid", "val", "dev", "testing", "test")
PREFETCHED_FILES = 2048
NOISE_FOLDER = "_background_noise_"  # recordings of noise, named as in Speech Commands; they are not samples

Decode = Callable[[Path], np.ndarray]
Item = TypeVar("Item")
Result = TypeVar("Result")


def find_files(
    folder: Path, suffixes: tuple[str, ...], subfolders: Sequence[str] | None = None, required: str = ""
) -> list[Path]:
    """Return the files with these suffixes in a folder and below, sorted.

    Searches only the named `subfolders` if given. Skips hidden files, hidden folders and folders of noise. If
    `required` names a type of files, it is an error if there are none.
    """
    roots = [folder] if subfolders is None else [folder / name for name in subfolders]
    files = sorted(walk(roots, suffixes))
    if required and not files:
        raise InputError(f"{str(folder)!r} contains no {required} ({', '.join(suffixes)})")
    return files


def walk(roots: Sequence[Path], suffixes: tuple[str, ...]) -> Iterator[Path]:
    """Yield the files of `find_files` as they are found."""
    visited: set[str] = set()

    def raise_error(error: OSError) -> None:
        raise InputError(f"cannot read {error.filename!r}: {error.strerror}") from error

    for root in roots:
        for folder, subfolders, names in os.walk(root, onerror=raise_error, followlinks=True):
            subfolders[:] = sorted(name for name in subfolders if not name.startswith(".") and name != NOISE_FOLDER)
            # Visit links last, so that a folder is reached by its real path and not through a link.
            subfolders.sort(key=lambda name: os.path.islink(os.path.join(folder, name)))
            if (real_path := os.path.realpath(folder)) in visited:  # links can form cycles
                subfolders.clear()
                continue
            visited.add(real_path)
            matching = [name for name in names if name.lower().endswith(suffixes) and not name.startswith(".")]
            yield from (path for name in matching if (path := Path(folder) / name).is_file())


def read_files(
    folder: Path,
    data_settings: DataSettings,
    find: Callable[[Path], list[Path]],
    build_source: Callable[[list[Path]], tuple[Source, list[Path]]],
) -> Data:
    """Read a folder, and the folder `data_settings.test` if it is set.

    If all files are in subfolders, the subfolders are the classes. `build_source` turns files into samples; it also
    returns the files that it did not skip.
    """
    paths = find(folder)
    _check_not_split(folder, paths)
    parts = [(folder, *build_source(paths))]
    if data_settings.test is not None:
        test_folder = Path(data_settings.test)
        _check_separate(folder, test_folder)
        parts.append((test_folder, *build_source(find(test_folder))))
    class_names = None
    for part, source, files in parts:
        classes = _classes(part, files)
        if classes is not None and (part is folder or class_names is not None):
            source.labels, class_names = encode_classes(classes, len(files), str(part), class_names)
    return Data(
        str(folder),
        parts[0][1],
        parts[1][1] if len(parts) > 1 else None,
        [] if class_names is None else [str(name) for name in class_names],
        data_settings,
        sample_names=[str(path) for _, _, files in parts for path in files],
    )


def decoded(paths: Iterable[Path], decode: Decode) -> Iterator[tuple[Path, np.ndarray | Exception]]:
    """Yield each file with its content, or with the exception that decoding raised, in order."""

    def attempt(path: Path) -> tuple[Path, np.ndarray | Exception]:
        try:
            return path, decode(path)
        except Exception as error:  # a damaged file can raise almost any exception
            return path, error

    return prefetch(attempt, paths, PREFETCHED_FILES)


def prefetch(function: Callable[[Item], Result], items: Iterable[Item], max_waiting: int) -> Iterator[Result]:
    """Yield `function(item)` for each item, in order; threads compute up to `max_waiting` results in advance."""
    waiting: deque[Future[Result]] = deque()
    pool = ThreadPoolExecutor(min(32, os.cpu_count() or 1))
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > max_waiting:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def decode_all(paths: Sequence[Path], decode: Decode, out: np.ndarray, file_type: str) -> list[Path]:
    """Decode files into the first rows of `out`, and return the files of these rows; broken files are skipped."""
    good: list[Path] = []
    broken: set[Path] = set()
    progress = ProgressLine("decoding", len(paths), file_type)
    for path, content in decoded(paths, decode):
        if isinstance(content, Exception):
            broken.add(path)
            print(f"skipped {str(path)!r}: {first_line(content)}", file=sys.stderr)
            check_broken(broken, len(paths), path, file_type)
        else:
            out[len(good)] = content
            good.append(path)
        progress(len(good) + len(broken))
    if not good:
        raise InputError(f"none of the {len(paths)} {file_type} can be decoded; the first is {str(paths[0])!r}")
    if broken:
        print(f"skipped {len(broken)} of {len(paths)} {file_type}", file=sys.stderr)
    return good


def check_broken(broken: set[Path], total: int, last: Path, file_type: str) -> None:
    """Raise an error if too many files are broken."""
    if len(broken) > max(MAX_BROKEN, MAX_BROKEN_FRACTION * total):
        raise InputError(f"{len(broken)} {file_type} cannot be decoded; the last is {str(last)!r}")


def _check_separate(train: Path, test: Path) -> None:
    train_path, test_path = train.resolve(), test.resolve()
    if train_path == test_path or train_path in test_path.parents or test_path in train_path.parents:
        raise InputError(f"the training folder {str(train)!r} and the test folder {str(test)!r} must not overlap")


def _check_not_split(folder: Path, files: Sequence[Path]) -> None:
    """Raise an error if the subfolders are splits of a data set (train, test) instead of classes."""
    subfolders = sorted({file.relative_to(folder).parts[0] for file in files})
    if len(subfolders) > 1 and set(map(str.lower, subfolders)) <= set(SPLIT_NAMES):
        train = min(subfolders, key=lambda name: SPLIT_NAMES.index(name.lower()))
        test = max(subfolders, key=lambda name: SPLIT_NAMES.index(name.lower()))
        raise InputError(
            f"the subfolders of {str(folder)!r} are splits, not classes ({', '.join(subfolders)}): pass "
            f"{str(folder / train)!r}, and optionally `test={str(folder / test)!r}`"
        )


def _classes(folder: Path, files: Sequence[Path]) -> list[str] | None:
    """The first subfolder of each file, or None if some files are not in a subfolder."""
    parts = [file.relative_to(folder).parts for file in files]
    top_level = [part[0] for part in parts if len(part) == 1]
    if top_level and len(top_level) < len(parts):
        more = f" and {len(top_level) - 1} other files are" if len(top_level) > 1 else " is"
        print(f"{folder}: no labels, because {top_level[0]!r}{more} not in a subfolder", file=sys.stderr)
    return None if top_level else [part[0] for part in parts]
