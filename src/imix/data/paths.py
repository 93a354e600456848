"""Patterns that name several files: `shards/{000..099}.tar`, `tables/*.parquet`, `photos/**/*.jpg`."""

import glob
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from imix.errors import InputError

BRACES = re.compile(r"\{(?:(\d{1,18})\.\.(\d{1,18})|([^{}]*,[^{}]*))\}")  # {000..099} or {train,extra}
MAX_FILES = 100_000  # maximum number that the braces of a pattern can name


def is_pattern(path: str | Path) -> bool:
    """Whether a path is a pattern and not an existing file or folder."""
    text = str(path)
    return not os.path.lexists(text) and bool(glob.has_magic(text) or BRACES.search(text))


def root(path: Path) -> Path:
    """Return a folder itself, or the folder in which a pattern searches."""
    while is_pattern(path):
        path = path.parent
    return path


def expand_pattern(pattern: str) -> list[Path]:
    """Return the files that match a pattern, in sorted order for wildcards; it is an error if there are none."""
    names: dict[str, None] = {}  # in order, without duplicates
    for number, part in enumerate(_expand_braces(pattern)):
        matching = sorted(glob.glob(part, recursive=True)) if glob.has_magic(part) else [part]
        names |= dict.fromkeys(matching)
        if number > MAX_FILES:
            raise InputError(f"the braces of {pattern!r} name more than {MAX_FILES:,} files")
    files = [Path(name) for name in names if not os.path.isdir(name)]
    if not files:
        raise InputError(f"no file matches {pattern!r}")
    if missing := [file for file in files if not file.is_file()]:
        raise InputError(f"{pattern!r} includes {str(missing[0])!r}, which is not a file ({len(missing)} such files)")
    return files


def _expand_braces(pattern: str) -> Iterator[str]:
    """Yield a pattern with its first braces replaced by each of their values, and then the others."""
    if (match := BRACES.search(pattern)) is None:
        yield pattern
        return
    first, last, names = match.groups()
    values: Iterable[str]
    if names is not None:
        values = names.split(",")
    else:
        values = (str(number).zfill(len(first)) for number in range(int(first), int(last) + 1))
    for value in values:
        yield from _expand_braces(pattern[: match.start()] + value + pattern[match.end() :])
