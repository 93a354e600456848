"""Data in several files: tar shards, or the parts of a table."""

import re
from collections.abc import Sequence
from pathlib import Path

from imix.data.media.folder import SPLIT_NAMES, find_files, walk
from imix.data.media.references import AUDIO_SUFFIXES, IMAGE_SUFFIXES
from imix.data.media.shards import read_shards
from imix.data.paths import expand_pattern, is_pattern, root
from imix.data.source import Data
from imix.data.tables.csv_file import CSV_SUFFIXES
from imix.data.tables.stream import read_table_files
from imix.data.tables.table import Table
from imix.errors import InputError
from imix.settings import DataSettings

SHARD_SUFFIXES = (".tar",)
PART_SUFFIXES = (SHARD_SUFFIXES, (".parquet",), CSV_SUFFIXES)


def find_parts(path: Path) -> list[Path]:
    """Return the tar shards or table files in a folder, of a pattern or at a path; [] for a folder of other files."""
    if path.is_dir():
        if any(walk([path], (*IMAGE_SUFFIXES, *AUDIO_SUFFIXES))):
            return []
        files = find_files(path, tuple(suffix for suffixes in PART_SUFFIXES for suffix in suffixes))
    else:
        files = expand_pattern(str(path)) if is_pattern(path) else [path]
    for suffixes in PART_SUFFIXES:
        matching = [file for file in files if name_ends(file, suffixes)]
        if matching and len(matching) < len(files):
            other = next(file for file in files if file not in matching)
            raise InputError(
                f"{str(path)!r} has files of several types, {matching[0].name} and {other.name}; pass one type"
            )
        if matching:
            _check_not_split(path, files)
            return files
    return []


def _check_not_split(path: Path, files: Sequence[Path]) -> None:
    """Raise an error if files are training and test samples by their names, as in train-0000.parquet or test/0.csv."""
    if len(files) == 1 or "{" in str(path):  # braces name the files on purpose
        return
    patterns = {}  # by split
    for file in files:
        *folders, name = file.relative_to(root(path)).parts
        for depth, part in enumerate((*folders, name), 1):
            word = re.match("[a-z]*", part.lower())
            if word and word[0] in SPLIT_NAMES:
                rest = f"*{file.suffix}" if depth > len(folders) else f"{part[len(word[0]) :]}/*{file.suffix}"
                patterns[word[0]] = str(root(path).joinpath(*folders[: depth - 1], part[: len(word[0])])) + rest
                break
    if len(patterns) > 1:
        train, *_, test = sorted(patterns, key=SPLIT_NAMES.index)
        raise InputError(
            f"the files of {str(path)!r} are splits ({', '.join(sorted(patterns))}): pass {patterns[train]!r}, and "
            f"optionally `test={patterns[test]!r}`; to read all as training samples, use braces, as in {{train,test}}*"
        )


def load_parts(path: Path, files: list[Path], data_settings: DataSettings, table: Table | None) -> Data:
    """Load tar shards, or the parts of a table; `data_settings.test` names the test samples, if any."""
    test = [] if data_settings.test is None else find_parts(Path(data_settings.test))
    is_shards = name_ends(files[0], SHARD_SUFFIXES)
    if data_settings.test is not None and (not test or name_ends(test[0], SHARD_SUFFIXES) != is_shards):
        raise InputError(f"`test={data_settings.test!r}` must have files of the same type as {files[0].name}")
    if is_shards:
        return read_shards(str(path), files, data_settings, test)
    return read_table_files(str(path), files, data_settings, table, test)


def name_ends(path: Path, suffixes: tuple[str, ...]) -> bool:
    """Whether the name of a file ends in one of these, in upper or lower case."""
    return path.name.lower().endswith(suffixes)
