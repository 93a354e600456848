"""Which ways of reading belong to which data: one that cannot apply is refused by name, not passed over."""

from pathlib import Path
from typing import Any, NamedTuple

from imix.data.catalogue import CATALOGUE
from imix.data.csv_file import CSV
from imix.data.folder import holds
from imix.data.frame import is_frame
from imix.data.pictures import PICTURES
from imix.data.sounds import NOISE, SOUNDS
from imix.data.source import Source
from imix.errors import InputError
from imix.settings import Reading

MEANING = {
    "label": "label names a column of a table",
    "columns": "columns are those of a table",
    "header": "header is about the first line of a CSV file",
    "image_size": "image_size is for folders of images",
    "seconds": "seconds is for sounds",
    "rate": "rate is for sounds",
    "mels": "mels is for sounds",
    "data_dir": "data_dir is the folder with the files of a named data set",
}


class Kind(NamedTuple):
    """What data is, the ways of reading that belong to it, and where its classes are if no label can say it."""

    words: str
    ways: tuple[str, ...] = ()
    classes: str = ""


OF_TABLES = ("label", "columns")
OF_SOUNDS = ("seconds", "rate", "mels")
ITS_OWN, SUBFOLDERS = ", which brings its classes", ", whose subfolders are its classes"
NAMED = {
    "images": Kind("a named set of images", ("data_dir",), ITS_OWN),
    "images of any size": Kind("a named set of images", ("data_dir", "image_size"), ITS_OWN),
    "sounds": Kind("a named set of sounds", ("data_dir", *OF_SOUNDS), ITS_OWN),
    "table": Kind("a named table", ("data_dir", "columns"), ITS_OWN),
}


def check_ways(data: Any, reading: Reading) -> None:
    """Refuse a way of reading, set to something else than its default, that has no meaning for the data."""
    usual = Reading()
    given = [way for way in MEANING if getattr(reading, way) != getattr(usual, way)]
    kind = _kind(data) if given else None
    if kind is None:
        return
    called = repr(str(data)) if isinstance(data, str | Path) else "the data"
    for way in given:
        if way not in kind.ways:
            raise InputError(f"{MEANING[way]}; {called} is {kind.words}{kind.classes if way == 'label' else ''}")


def _kind(data: Any) -> Kind | None:
    """What the data is; None where it is nothing that can be read, which is for others to say."""
    if isinstance(data, str | Path):
        named = CATALOGUE.get(str(data))
        return _kind_of_path(Path(data)) if named is None else NAMED.get(named.kind)
    if isinstance(data, Source):
        return Kind("a Source")
    if is_frame(data):
        return Kind("a frame", OF_TABLES)
    if isinstance(data, tuple | dict):
        return Kind("of several fields")
    shape = tuple(getattr(data, "shape", (0, 0)))  # lists are looked at later
    return Kind("an array", OF_TABLES) if len(shape) == 2 else Kind(f"an array of shape {shape}")


def _kind_of_path(path: Path) -> Kind | None:
    name = path.name.lower()
    if path.is_dir():
        if holds(path, PICTURES):
            return Kind("a folder of images", ("image_size",), SUBFOLDERS)
        return Kind("a folder of sounds", OF_SOUNDS, SUBFOLDERS) if holds(path, SOUNDS, leave=NOISE) else None
    if name.endswith(CSV):
        return Kind("a CSV file", (*OF_TABLES, "header"))
    if name.endswith(".parquet"):
        return Kind("a Parquet file", OF_TABLES)
    return Kind("a file of arrays", OF_TABLES) if name.endswith((".npy", ".npz")) else None
