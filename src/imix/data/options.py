"""Checks that data options apply to the data, so that an option is never silently ignored."""

from pathlib import Path
from typing import Any, NamedTuple

from torch.utils.data import DataLoader, Dataset

from imix.data.media.columns import kind_of_name, may_hold_files
from imix.data.media.folder import walk
from imix.data.media.references import AUDIO_SUFFIXES, IMAGE_SUFFIXES, as_paths
from imix.data.named import DATASETS
from imix.data.parts import SHARD_SUFFIXES, find_parts, name_ends
from imix.data.paths import is_pattern
from imix.data.source import Source
from imix.data.tables.csv_file import CSV_SUFFIXES
from imix.data.tables.frame import is_frame
from imix.data.tables.huggingface import is_saved_dataset
from imix.errors import InputError
from imix.settings import DataSettings

APPLIES_TO = {
    "label": "tables, as the name of a column, and to data sets of dicts",
    "columns": "tables",
    "missing_label": "labels of tables, arrays and folders of files",
    "path_column": "tables in one file or in Parquet files",
    "header": "CSV files",
    "image_size": "image files",
    "channels": "image files",
    "seconds": "audio",
    "sample_rate": "audio",
    "n_mels": "audio",
    "data_dir": "named data sets",
}
ARRAY_OPTIONS = ("label", "columns", "missing_label")
TABLE_OPTIONS = (*ARRAY_OPTIONS, "path_column")
IMAGE_FORMAT, AUDIO_FORMAT = ("image_size", "channels"), ("seconds", "sample_rate", "n_mels")
MEDIA_FORMATS = (*IMAGE_FORMAT, *AUDIO_FORMAT)
MEDIA_OPTIONS = {"images": ("missing_label", *IMAGE_FORMAT), "audio": ("missing_label", *AUDIO_FORMAT)}


class DataKind(NamedTuple):
    """A kind of data and the options that apply to it."""

    description: str
    options: tuple[str, ...] = ()
    label_hint: str = ""
    """Where the classes come from, for data to which `label` does not apply."""


def check_options(data: Any, data_settings: DataSettings) -> None:
    """Raise an error if an option that is not at its default does not apply to the data."""
    defaults = DataSettings()
    changed = [option for option in APPLIES_TO if getattr(data_settings, option) != getattr(defaults, option)]
    kind = _kind(data) if changed else None
    if kind is None:
        return
    if "path_column" in kind.options and not set(changed).isdisjoint(MEDIA_FORMATS):
        has_files = data_settings.path_column is not None or may_hold_files(data)
        kind = kind._replace(options=(*kind.options, *MEDIA_FORMATS)) if has_files else kind
    subject = repr(str(data)) if isinstance(data, str | Path) else "the data"
    for option in changed:
        if option not in kind.options:
            hint = kind.label_hint if option == "label" else ""
            raise InputError(f"`{option}` only applies to {APPLIES_TO[option]}; {subject} is {kind.description}{hint}")


def _kind(data: Any) -> DataKind | None:
    """The kind of the data, or None if it cannot be read; `load` then reports why."""
    if isinstance(data, str | Path):
        if (record := DATASETS.get(str(data))) is None:
            return _kind_of_path(Path(data))
        return DataKind(f"a named data set ({record.kind})", record.options, ", which includes its classes")
    if isinstance(data, Source):
        return DataKind("a Source")
    if isinstance(data, Dataset | DataLoader):
        return DataKind("a torch data set", ("label", "missing_label"))
    if is_frame(data):
        return DataKind("a data frame", TABLE_OPTIONS)
    if (paths := as_paths(data)) is not None:
        kind = kind_of_name(str(paths[0]))
        return DataKind("a list of paths", MEDIA_OPTIONS[kind]) if kind else None
    if isinstance(data, tuple | dict):
        return DataKind(f"a {type(data).__name__} of fields", ("missing_label",))
    shape = tuple(getattr(data, "shape", (0, 0)))  # a list may be a table; its shape is checked when it is converted
    return (
        DataKind("an array", ARRAY_OPTIONS)
        if len(shape) == 2
        else DataKind(f"an array of shape {shape}", ("missing_label",))
    )


def _kind_of_path(path: Path) -> DataKind | None:
    name = path.name.lower()
    if path.is_dir() and is_saved_dataset(path):
        return DataKind("a saved data set", TABLE_OPTIONS)
    if (path.is_dir() or is_pattern(path) or name.endswith(SHARD_SUFFIXES)) and (files := find_parts(path)):
        if name_ends(files[0], SHARD_SUFFIXES):
            return DataKind("tar shards", ("missing_label", *MEDIA_FORMATS), ", whose .cls files are the labels")
        if name_ends(files[0], CSV_SUFFIXES):
            return DataKind("a table in several CSV files", (*ARRAY_OPTIONS, "header"))
        formats = MEDIA_FORMATS if may_hold_files(files[0]) else ()
        return DataKind("a table in several Parquet files", (*TABLE_OPTIONS, *formats))
    if path.is_dir() or is_pattern(path):
        hint = ", whose subfolders are the classes"
        if any(walk([path], IMAGE_SUFFIXES)):
            return DataKind("a folder of images", MEDIA_OPTIONS["images"], hint)
        if any(walk([path], AUDIO_SUFFIXES)):
            return DataKind("a folder of audio files", MEDIA_OPTIONS["audio"], hint)
        return None
    if name.endswith(CSV_SUFFIXES):
        return DataKind("a CSV file", (*TABLE_OPTIONS, "header"))
    if name.endswith(".parquet"):
        return DataKind("a Parquet file", TABLE_OPTIONS)
    return DataKind("an array file", ARRAY_OPTIONS) if name.endswith((".npy", ".npz")) else None
