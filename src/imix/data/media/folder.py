"""Image and audio files: finding them in folders, labeling them by subfolder, and decoding them in threads.

Files that cannot be decoded are reported and skipped; too many of them are an error.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Condition
from typing import Any, TypeVar

import numpy as np
from torch import Tensor

from imix.data.arrays import encode_classes
from imix.data.media.references import MediaFiles, Reference
from imix.data.paths import expand_pattern, is_pattern, root
from imix.data.source import Data, Source
from imix.errors import InputError, first_line
from imix.output import print_message
from imix.progress import ProgressLine
from imix.settings import DataSettings

MAX_BROKEN = 5  # allowed number of broken files, or this fraction of all files if that is more:
MAX_BROKEN_FRACTION = 0.01
# Common names of split folders, from the most to the least suitable for training.
SPLIT_NAMES = ("train", "training", "validation", "valid", "val", "dev", "testing", "test")
PREFETCHED_FILES = 2048
NOISE_FOLDER = "_background_noise_"  # recordings of noise, named as in Speech Commands; they are not samples

Decode = Callable[[Reference], np.ndarray]
Item = TypeVar("Item")
Result = TypeVar("Result")


def find_files(
    folder: Path, suffixes: tuple[str, ...], subfolders: Sequence[str] | None = None, required: str = ""
) -> list[Path]:
    """Return the files with these suffixes in a folder and below, or those that match a pattern, sorted.

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

    for start in roots:
        if is_pattern(start):
            yield from (
                path
                for path in expand_pattern(str(start))
                if path.name.lower().endswith(suffixes) and NOISE_FOLDER not in path.parts
            )
            continue
        for folder, subfolders, names in os.walk(start, onerror=raise_error, followlinks=True):
            subfolders[:] = sorted(name for name in subfolders if not name.startswith(".") and name != NOISE_FOLDER)
            # Visit links last, so that a folder is reached by its real path and not through a link.
            subfolders.sort(key=lambda name: os.path.islink(os.path.join(folder, name)))
            if (real_path := os.path.realpath(folder)) in visited:  # links can form cycles
                subfolders.clear()
                continue
            visited.add(real_path)
            matching = [name for name in names if name.lower().endswith(suffixes) and not name.startswith(".")]
            yield from (path for name in matching if (path := Path(folder) / name).is_file())


def find_media(
    folder: Path, data_settings: DataSettings, suffixes: tuple[str, ...], subfolders: Sequence[str] | None, kind: str
) -> list[MediaFiles]:
    """Return the files of a folder or pattern, and those of `data_settings.test` if it is set.

    If all files are in subfolders, the subfolders are the classes.
    """
    folders = [folder] if data_settings.test is None else [folder, Path(data_settings.test)]
    paths = [find_files(each, suffixes, subfolders, required=kind) for each in folders]
    _check_not_split(folder, paths[0])
    if len(folders) > 1:
        _check_separate(folders, paths)
    classes = [_classes(*part) for part in zip(folders, paths, strict=True)]
    return [
        MediaFiles(str(each), files, labels if classes[0] is not None else None)
        for each, files, labels in zip(folders, paths, classes, strict=True)
    ]


def read_files(
    parts: Sequence[MediaFiles],
    data_settings: DataSettings,
    build_source: Callable[[MediaFiles], tuple[Source, list[int]]],
) -> Data:
    """Read training files and, if any, test files.

    `build_source` turns files into samples; it also returns the indices of the files that it did not skip.
    """
    sources: list[Source] = []
    names: list[str] = []
    class_names: Any = None
    for part in parts:
        source, kept = build_source(part)
        if isinstance(part.labels, Tensor):
            source.labels, class_names = part.labels[kept], part.class_names
        elif part.labels is not None:
            values = np.asanyarray(part.labels)
            values = values[kept] if values.shape == (len(part.references),) else values
            source.labels, class_names = encode_classes(
                values, len(kept), part.name, class_names, data_settings.missing_label
            )
        sources.append(source)
        names += [str(part.references[i]) for i in kept]
    return Data(
        parts[0].name,
        sources[0],
        sources[1] if len(sources) > 1 else None,
        class_names=[] if class_names is None else [str(name) for name in class_names],
        settings=data_settings,
        sample_names=names,
    )


def decoded(references: Iterable[Reference], decode: Decode) -> Iterator[tuple[Reference, np.ndarray | Exception]]:
    """Yield each file with its content, or with the exception that decoding raised, in order."""

    def attempt(reference: Reference) -> tuple[Reference, np.ndarray | Exception]:
        try:
            return reference, decode(reference)
        except Exception as error:  # a damaged file can raise almost any exception
            return reference, error

    return prefetch(attempt, references, PREFETCHED_FILES)


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


class Budget:
    """Limits how much all threads together may use; a request for more than the total waits for all others to end."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.used = 0
        self.changed = Condition()

    @contextmanager
    def reserve(self, amount: int) -> Iterator[None]:
        """Wait until this much is free, and hold it."""
        amount = min(amount, self.total)
        with self.changed:
            self.changed.wait_for(lambda: self.used + amount <= self.total)
            self.used += amount
        try:
            yield
        finally:
            with self.changed:
                self.used -= amount
                self.changed.notify_all()


def decode_all(files: MediaFiles, decode: Decode, out: np.ndarray, file_type: str) -> list[int]:
    """Decode files into the first rows of `out`, and return the indices of these files; broken files are skipped.

    If the files are the rows of a table or list, all broken files are reported before the error.
    """
    good: list[int] = []
    broken: list[Reference] = []
    total = len(files.references)
    progress = ProgressLine("decoding", total, file_type)
    for i, (reference, content) in enumerate(decoded(files.references, decode)):
        if isinstance(content, Exception):
            broken.append(reference)
            print_message(f"skipped {str(reference)!r}: {first_line(content)}")
            check_broken(broken, total, file_type)
        else:
            out[len(good)] = content
            good.append(i)
        progress(i + 1)
    if not good:
        raise InputError(f"none of the {total} {file_type} can be decoded; the first is {str(files.references[0])!r}")
    if broken and files.one_per_row:
        raise InputError(
            f"{len(broken)} of the {total} {file_type} cannot be decoded; the first is {str(broken[0])!r}; remove them "
            "from the list or table"
        )
    if broken:
        print_message(f"skipped {len(broken)} of {total} {file_type}")
    return good


def check_broken(broken: Sequence[Reference], total: int, file_type: str) -> None:
    """Raise an error if too many files are broken."""
    if len(broken) > max(MAX_BROKEN, MAX_BROKEN_FRACTION * total):
        raise InputError(f"{len(broken)} {file_type} cannot be decoded; the last is {str(broken[-1])!r}")


def _check_separate(folders: Sequence[Path], paths: Sequence[Sequence[Path]]) -> None:
    train, test = (root(folder).resolve() for folder in folders)
    nested = train == test or train in test.parents or test in train.parents
    if nested and (not any(map(is_pattern, folders)) or not set(paths[0]).isdisjoint(paths[1])):
        raise InputError(
            f"the training folder {str(folders[0])!r} and the test folder {str(folders[1])!r} must not overlap"
        )


def _check_not_split(folder: Path, files: Sequence[Path]) -> None:
    """Raise an error if the subfolders are splits of a data set (train, test) instead of classes."""
    folder = root(folder)
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
    parts = [file.relative_to(root(folder)).parts for file in files]
    top_level = [part[0] for part in parts if len(part) == 1]
    if top_level and len(top_level) < len(parts):
        more = f" and {len(top_level) - 1} other files are" if len(top_level) > 1 else " is"
        print_message(f"{folder}: no labels, because {top_level[0]!r}{more} not in a subfolder")
    return None if top_level else [part[0] for part in parts]
