"""Checks that data options apply to the data, so that an option is never silently ignored."""

from pathlib import Path
from typing import Any, NamedTuple

from imix.data.media.audio import AUDIO_SUFFIXES
from imix.data.media.folder import walk
from imix.data.media.images import IMAGE_SUFFIXES
from imix.data.named import DATASETS
from imix.data.source import Source
from imix.data.tables.csv_file import CSV_SUFFIXES
from imix.data.tables.frame import is_frame
from imix.errors import InputError
from imix.settings import DataSettings

APPLIES_TO = {
    "label": "tables, as the name of a column",
    "columns": "tables",
    "header": "CSV files",
    "image_size": "folders of images",
    "seconds": "audio",
    "sample_rate": "audio",
    "n_mels": "audio",
    "data_dir": "named data sets",
}
TABLE_OPTIONS = ("label", "columns")
AUDIO_OPTIONS = ("seconds", "sample_rate", "n_mels")


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
    if is_frame(data):
        return DataKind("a data frame", TABLE_OPTIONS)
    if isinstance(data, tuple | dict):
        return DataKind(f"a {type(data).__name__} of fields")
    shape = tuple(getattr(data, "shape", (0, 0)))  # a list may be a table; its shape is checked when it is converted
    return DataKind("an array", TABLE_OPTIONS) if len(shape) == 2 else DataKind(f"an array of shape {shape}")


def _kind_of_path(path: Path) -> DataKind | None:
    name = path.name.lower()
    if path.is_dir():
        hint = ", whose subfolders are the classes"
        if any(walk([path], IMAGE_SUFFIXES)):
            return DataKind("a folder of images", ("image_size",), hint)
        if any(walk([path], AUDIO_SUFFIXES)):
            return DataKind("a folder of audio files", AUDIO_OPTIONS, hint)
        return None
    if name.endswith(CSV_SUFFIXES):
        return DataKind("a CSV file", (*TABLE_OPTIONS, "header"))
    if name.endswith(".parquet"):
        return DataKind("a Parquet file", TABLE_OPTIONS)
    return DataKind("an array file", TABLE_OPTIONS) if name.endswith((".npy", ".npz")) else None
