"""References to image and audio files, wherever their bytes are, and lists of them as training or test samples."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol

from imix.errors import InputError

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
AUDIO_SUFFIXES = (".wav", ".flac", ".ogg", ".opus", ".mp3", ".aiff", ".aif", ".au", ".caf")


class Reference(Protocol):
    """A file, or its bytes in a table or archive; `str` returns its name for messages. A `Path` is a reference."""

    def open(self, mode: Literal["rb"], /) -> BinaryIO:
        """Open it for reading."""
        ...


@dataclass(frozen=True, eq=False)
class StoredFile:
    """The bytes of a file in a row of a table."""

    name: str
    column: Any  # pyarrow.ChunkedArray of bytes
    row: int

    def open(self, mode: Literal["rb"], /) -> BinaryIO:
        """Open it for reading."""
        return BytesIO(self.column[self.row].as_py())

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class MediaFiles:
    """Image or audio files: the training samples or the test samples of a data set.

    `labels` has one value per file (class numbers if there are `class_names`). With `one_per_row`, the files are the
    rows of a table or list, and none may be skipped.
    """

    name: str
    references: Sequence[Reference]
    labels: Any = None
    class_names: Sequence[str] = ()
    one_per_row: bool = False


def version(reference: Reference) -> tuple[Any, ...]:
    """Return values that change when the content of a reference changes."""
    if hasattr(reference, "stat"):
        stat = reference.stat()
        return str(reference), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns
    with reference.open("rb") as stream:
        return (hashlib.sha256(stream.read()).hexdigest(),)


def as_paths(data: Any) -> list[Path] | None:
    """Return the paths if the data is a list, array or Series of file paths, and None if it is something else."""
    if not isinstance(data, list | tuple):
        is_column = len(getattr(data, "shape", ())) == 1 or hasattr(data, "to_pylist")
        convert = next(
            (getattr(data, name) for name in ("tolist", "to_list", "to_pylist") if hasattr(data, name)), None
        )
        if not is_column or convert is None:
            return None
        data = convert()
    if not isinstance(data, list | tuple) or not data or not isinstance(data[0], str | os.PathLike):
        return None
    return existing_files(data, Path(), "item", "of the list of paths")


def existing_files(paths: Sequence[Any], folder: Path, item: str, place: str, start: int = 0) -> list[Path]:
    """Return the paths, relative to a folder. Errors call them "{item} {number} {place}", numbered from `start`."""
    files = []
    for i, path in enumerate(paths, start):
        if not isinstance(path, str | os.PathLike) or not str(path):
            raise InputError(f"{item} {i} {place} is {path!r}; it must be the path of a file")
        if "://" in str(path):
            raise InputError(f"{item} {i} {place} is {path!r}; remote paths are not read: download the files first")
        files.append(folder / path)
        if not files[-1].is_file():
            raise InputError(f"{item} {i} {place} is {str(files[-1])!r}, which is not a file")
    return files
