"""Data: names, files, frames and arrays in; training and test samples out."""

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from imix.batch import Batch, size
from imix.data.arrays import Parts, class_numbers, read_npy, read_npz, samples
from imix.data.cifar import CLASSES, read_cifar10, read_cifar100
from imix.data.csv_file import CSV
from imix.data.digits import read_digits
from imix.data.folder import find_files
from imix.data.frame import as_frame, has_gaps, is_frame
from imix.data.imagenet import read_imagenet, read_imagenet100
from imix.data.pictures import PICTURES, read_pictures
from imix.data.sounds import NOISE, SOUNDS, read_sounds
from imix.data.source import Data, Source, Tensors, take_fraction
from imix.data.speech_commands import read_speech_commands, read_speech_commands_v2
from imix.data.table import Table
from imix.data.tabular import encode_frames, encode_labels, read_frames
from imix.data.uci import read_covtype, read_higgs1m, read_higgs100k
from imix.data.ways import check_ways
from imix.distributed import rank_0_first
from imix.errors import InputError
from imix.settings import Reading

__all__ = ["Data", "Source", "Table", "Tensors", "load"]

NAMED = {
    "digits": read_digits,
    "cifar10": read_cifar10,
    "cifar100": read_cifar100,
    "covtype": read_covtype,
    "higgs100k": read_higgs100k,
    "higgs1m": read_higgs1m,
}
FOLDERS = {
    "imagenet": read_imagenet,
    "imagenet100": read_imagenet100,
    "speech_commands": read_speech_commands,
    "speech_commands_v0.02": read_speech_commands_v2,
}
ARRAYS = {".npy": read_npy, ".npz": read_npz}
TABLES = (".parquet", *CSV)
OTHERS = (".heic", ".heif", ".avif", ".jfif", ".jp2", ".jxl", ".raw", ".dng", ".m4a", ".aac", ".wma", ".mp4", ".mov")
GIVEN = "given"  # what data without a name is called
TEST_PLACE = "test samples in a place of their own belong to a .csv or .parquet file, or to a folder"


def load(
    data: "str | Path | Data | Source | Batch | Any",
    reading: Reading = Reading(),
    *,
    labels: Any = None,
    table: Table | None = None,
) -> Data:
    """Any data as `Data`: a name, a path, a frame, arrays or tensors (with `labels` (N,) if there are any), a `Source`.

    `table` is how the columns of a table became numbers before, for rows that are to be treated the same way. What is
    `Data` already is as it was read. A way of reading that has no meaning for the data is refused.

    >>> load("digits").train.shape
    (1, 8, 8)
    """
    if not isinstance(reading, Reading):
        raise InputError(
            f"reading must be imix.Reading(...), and labels are given by name; got {type(reading).__name__}"
        )
    if isinstance(data, Dataset | DataLoader):
        raise InputError("give the samples of a torch Dataset as one tensor (and labels=...), or write an imix Source")
    if not isinstance(data, Data):
        check_ways(data, reading)
    return read_as_before(data, reading, labels=labels, table=table)


def read_as_before(
    data: "str | Path | Data | Source | Batch | Any",
    reading: Reading,
    *,
    labels: Any = None,
    table: Table | None = None,
) -> Data:
    """As `load`, with what a run remembers of its reading: what of that has no meaning for this data is passed over."""
    if data is None:
        raise InputError("there is no data; give a name, a path, a frame, arrays or tensors")
    if labels is not None and isinstance(data, Data | Source):
        raise InputError(f"labels belong to arrays and frames; {type(data).__name__} brings its own if it has any")
    if isinstance(data, Data):
        if reading not in (Reading(), data.reading):
            raise InputError(f"how to read belongs to data that is to be read, and {data.name} is; load it anew")
        return data
    if isinstance(data, str | Path):
        if labels is not None:
            raise InputError(f"labels belong to arrays and frames; {str(data)!r} brings its own if it has any")
        # A run remembers where things are.
        reading = replace(reading, test=_absolute(reading.test), data_dir=_absolute(reading.data_dir))
        return take_fraction(_read(data, reading, table), reading.fraction)
    if hasattr(data, "toarray"):
        raise InputError("samples must be dense; got a sparse matrix: give x.toarray()")
    if reading.test:
        raise InputError(TEST_PLACE)
    read = Data(GIVEN, data, reading=reading) if isinstance(data, Source) else None
    return take_fraction(read or _assemble(GIVEN, Parts(data, labels), reading, table), reading.fraction)


def _read(data: str | Path, reading: Reading, table: Table | None) -> Data:
    """Data by its name or path."""
    if not str(data):
        raise InputError("the name of the data is empty")
    name, path = str(data), Path(data).absolute()
    known = (
        f"known names: {', '.join([*NAMED, *FOLDERS])}; files: {', '.join(ARRAYS)}, .csv, .tsv, .parquet; "
        "folders of images or sounds"
    )
    tabular = path.name.lower().endswith(TABLES)
    if reading.test and (name in NAMED or name in FOLDERS or not (tabular or path.is_dir())):
        raise InputError(TEST_PLACE)
    if name in FOLDERS:
        return FOLDERS[name](reading)
    if name in NAMED:
        with rank_0_first():  # which fetches it for all
            parts = NAMED[name](reading)
        named = _assemble(name, parts, reading, table)
        if name not in CLASSES:
            return named
        words = CLASSES[name].split()
        called = words if named.train.classes == len(words) else named.class_names
        return replace(named, augment="cifar", class_names=called)
    for place in (path, *([Path(reading.test)] if reading.test else [])):
        if not place.exists():
            raise InputError(f"no data set or file {str(data if place is path else place)!r} ({known})")
        if not (place.is_file() or place.is_dir()):  # a pipe would be waited for, for ever
            raise InputError(f"{str(place)!r} is neither a file nor a folder")
    if path.is_dir():
        return _read_folder(path, reading)
    if tabular:
        train, *test = read_frames(path, reading, table)
        return _assemble(str(path), Parts(train, x_test=test[0] if test else None), reading, table)
    suffix = path.suffix.lower()
    if suffix in (*PICTURES, *SOUNDS):
        raise InputError(f"{name!r} is a single file; give the folder that it is in")
    if suffix not in ARRAYS:
        raise InputError(f"cannot read {name!r} as data ({known})")
    return _assemble(str(path), ARRAYS[suffix](path), reading, table)


def _read_folder(folder: Path, reading: Reading) -> Data:
    """A folder of images or of sounds."""
    pictures, sounds = find_files(folder, PICTURES), find_files(folder, SOUNDS, leave=NOISE)
    if pictures and sounds:
        raise InputError(
            f"{str(folder)!r} holds {len(pictures)} images and {len(sounds)} sounds; give a folder of one kind"
        )
    if not pictures and not sounds:
        tables = "; a table is one file: name it" if find_files(folder, TABLES) else ""
        kinds = f"no images ({', '.join(PICTURES)}) and no sounds ({', '.join(SOUNDS)})"
        raise InputError(f"there are {kinds} in {str(folder)!r}{tables}")
    if others := Counter(path.suffix.lower() for path in find_files(folder, OTHERS)):
        kinds = ", ".join(f"{count} {suffix}" for suffix, count in others.most_common())
        print(f"{folder}: files of kinds that are not read are passed over: {kinds}", file=sys.stderr)
    return read_sounds(folder, reading) if sounds else read_pictures(folder, reading)


def _assemble(name: str, parts: Parts, reading: Reading, table: Table | None) -> Data:
    """Parts as data. Frames are tables, and so are rows (N, F) with gaps or where columns are spoken of."""
    if reading.columns.get(reading.label or "") == "drop":
        reading = replace(reading, label=None)
    called = {"x": "the data" if name == GIVEN else name, "x_test": f"{name}, test samples"}
    xs = {part: unmasked(x) for part, x in (("x", parts.x), ("x_test", parts.x_test)) if x is not None}
    labels: list[Tensor | None] = [None] * len(xs)
    class_names: list[str] = []
    if table is not None or reading.label or reading.columns or any(is_frame(x) or has_gaps(x) for x in xs.values()):
        frames = [as_frame(x, called[part]) for part, x in xs.items()]
        known = table
        label = reading.label if known is None or reading.label in frames[0].columns else None  # new rows need none
        table, inputs = encode_frames(frames, reading, known)
        if label is not None:
            labels[:], class_names = encode_labels(frames, label, needed=known is None)
    else:
        inputs = [samples(x, called[part]) for part, x in xs.items()]
    if parts.y is not None and reading.label is not None:
        raise InputError(f"labels are given, and {reading.label!r} is named as the column that has them; choose one")
    classes = None
    for at, (part, y) in enumerate(zip(xs, (parts.y, parts.y_test), strict=False)):
        if y is not None:
            labels[at], classes = class_numbers(y, size(inputs[at]), called[part], classes)
            class_names = [str(value) for value in classes]
    train, *test = [Tensors(x, y) for x, y in zip(inputs, labels, strict=True)]
    return Data(name, train, test[0] if test else None, class_names, reading, table)


def unmasked(x: Any) -> Any:
    """NumPy's masked values are gaps."""
    if not isinstance(x, np.ma.MaskedArray):
        return x
    return np.ma.filled(x.astype(float), np.nan) if x.mask.any() else x.data


def _absolute(path: str | None) -> str | None:
    return path and str(Path(path).absolute())
