"""`load`: turns a data set name, a path, a data frame, arrays or tensors into `Data`."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from imix.batch import Batch, size
from imix.data.arrays import RawData, check_tensor, checked_input, encode_classes, read_npy, read_npz, samples
from imix.data.datasets import read_dataset
from imix.data.mapped import MappedArray, is_large, map_array
from imix.data.media.audio import read_audio, read_audio_folder
from imix.data.media.columns import find_media_column, kind_of, may_hold_files, read_media_frames
from imix.data.media.folder import find_files
from imix.data.media.images import read_image_folder, read_images
from imix.data.media.references import AUDIO_SUFFIXES, IMAGE_SUFFIXES, MediaFiles, as_paths
from imix.data.named import DATASETS
from imix.data.options import check_options
from imix.data.parts import find_parts, load_parts
from imix.data.paths import is_pattern, root
from imix.data.source import Data, Source, TensorSource, take_fraction
from imix.data.tables.csv_file import CSV_SUFFIXES
from imix.data.tables.encode import encode_frames, encode_labels, read_frames, use_declared_label
from imix.data.tables.frame import Frame, as_frame, has_missing_values, is_frame, read_parquet_files
from imix.data.tables.huggingface import is_saved_dataset
from imix.data.tables.table import Table
from imix.errors import InputError
from imix.output import print_message
from imix.settings import DataSettings

ARRAYS = {".npy": read_npy, ".npz": read_npz}
TABLE_SUFFIXES = (".parquet", *CSV_SUFFIXES)
# Media files that cannot be read; they are reported instead of silently ignored.
UNSUPPORTED_SUFFIXES = (
    *(".heic", ".heif", ".avif", ".jfif", ".jp2", ".jxl", ".raw", ".dng"),
    *(".m4a", ".aac", ".wma", ".mp4", ".mov"),
)
IN_MEMORY_NAME = "in-memory data"  # name of data that was passed as arrays, a frame or a Source
TEST_NOT_SUPPORTED = "test (a second file or folder) only applies to .csv, .parquet and .tar files and to folders"


def load(
    data: "str | Path | Data | Source | Batch | Any",
    data_settings: DataSettings = DataSettings(),
    *,
    labels: Any = None,
    table: Table | None = None,
    strict: bool = True,
) -> Data:
    """Load data in any supported format.

    Parameters
    ----------
    data : str, Path, list of paths, data frame, array, tensor, tuple or dict of these, Dataset, Source or Data
        The name of a data set (see ``imix data list``), the path of a file (.csv, .tsv, .parquet, .npy, .npz, .tar), a
        folder, pattern or list of image or audio files, a folder or pattern of tables or tar shards, a data frame, a
        Hugging Face data set, a torch Dataset or DataLoader, or an array of samples (N, ...). `Data` is returned
        unchanged.
    data_settings : DataSettings, optional
        Options for reading the data.
    labels : array of shape (N,), optional
        Classes of the samples, if `data` is in memory and not a Source. NaN, None and "" mean "no label".
    table : Table, optional
        The `Data.table` of data that was loaded before; the columns are then encoded in the same way.
    strict : bool, default=True
        Whether an option that does not apply to this data is an error; otherwise it is ignored.

    Returns
    -------
    Data
        Training samples and, if there are any, test samples, labels and class names.

    Examples
    --------
    >>> from imix.data import load
    >>> load("digits").train.shape
    (1, 8, 8)
    >>> data = load(torch.randn(6, 4), labels=["cat", "dog"] * 3)
    >>> len(data.train), data.class_names
    (6, ['cat', 'dog'])
    """
    if not isinstance(data_settings, DataSettings):
        raise InputError(
            f"data_settings must be imix.DataSettings(...); got {type(data_settings).__name__} "
            "(pass labels as labels=...)"
        )
    if data is None:
        raise InputError("data is None; pass a data set name, a path, a data frame, arrays or tensors")
    if hasattr(data, "toarray"):
        raise InputError("samples must be dense; got a sparse matrix: pass x.toarray()")
    if labels is not None and isinstance(data, str | Path | Data | Source):
        kind = repr(str(data)) if isinstance(data, str | Path) else f"a {type(data).__name__}"
        raise InputError(f"labels can only be passed with arrays and data frames; the data is {kind}")
    if isinstance(data, Data):
        if data_settings not in (DataSettings(), data.settings):
            raise InputError(f"data_settings do not apply to data that is already loaded ({data.name}); load it again")
        return data
    if strict:
        check_options(data, data_settings)
    if isinstance(data, str | Path):
        # Absolute paths: a run stores these settings, and may be used from another working directory.
        data_settings = replace(
            data_settings, test=_absolute(data_settings.test), data_dir=_absolute(data_settings.data_dir)
        )
        loaded = _load_by_name(data, data_settings, table, strict)
    elif data_settings.test:
        raise InputError(TEST_NOT_SUPPORTED)
    elif isinstance(data, Source):
        loaded = Data(IN_MEMORY_NAME, data, settings=data_settings)
    else:
        loaded = _load_from_memory(data, labels, data_settings, table, strict)
    return take_fraction(loaded, data_settings.fraction)


def _load_from_memory(data: Any, labels: Any, data_settings: DataSettings, table: Table | None, strict: bool) -> Data:
    """Load a torch data set, a list of paths, a data frame or arrays."""
    if isinstance(data, Dataset | DataLoader):
        return _load_dataset(data, labels, data_settings, table, strict)
    if isinstance(data, dict) and any(map(is_frame, data.values())):
        raise InputError(f"the data is a dict of tables ({', '.join(map(str, data))}); pass one of them")
    values = check_tensor(labels, "labels").tolist() if isinstance(labels, Tensor) else labels
    if is_frame(data):
        return _load_frames(
            IN_MEMORY_NAME, [as_frame(data, "the data")], values, data_settings, table, [Path()], strict
        )
    if (paths := as_paths(data)) is not None:
        files = [MediaFiles(IN_MEMORY_NAME, paths, values, one_per_row=True)]
        return _read_media(files, kind_of(files), data_settings)
    return _assemble(IN_MEMORY_NAME, RawData(data, labels), data_settings, table, strict)


def _load_dataset(data: Any, labels: Any, data_settings: DataSettings, table: Table | None, strict: bool) -> Data:
    """Load a torch data set."""
    raw, source = read_dataset(data, data_settings.label)
    if strict and data_settings.label is not None and raw.y is None:
        raise InputError(f"`label={data_settings.label!r}` must be a key of the items of the data set, with a label")
    if labels is not None and raw.y is not None:
        raise InputError("pass either labels or a data set whose items have labels")
    raw = raw._replace(y=raw.y if labels is None else labels)
    if source is None:  # `label` is a key of the items, not a column
        return replace(
            _assemble(IN_MEMORY_NAME, raw, replace(data_settings, label=None), table), settings=data_settings
        )
    class_names: list[str] = []
    if raw.y is not None:
        source.labels, classes = encode_classes(raw.y, len(source), "the data", None, data_settings.missing_label)
        class_names = [str(value) for value in classes]
    return Data(IN_MEMORY_NAME, source, class_names=class_names, settings=data_settings, augment=raw.augment)


def _load_frames(
    name: str,
    frames: Sequence[Frame],
    labels: Any,
    data_settings: DataSettings,
    table: Table | None,
    folders: Sequence[Path],
    strict: bool,
) -> Data:
    """Load tables: of image or audio files, with paths relative to `folders`, or of numbers and text."""
    if labels is None:
        data_settings = use_declared_label(data_settings, frames[0].label, table)
    column = find_media_column(frames[0], data_settings) if table is None else None
    if column is None:
        test = frames[1] if len(frames) > 1 else None
        return _assemble(name, RawData(frames[0], labels, test), data_settings, table)
    _check_labels_given_once(labels, data_settings)
    if not strict and data_settings.label not in frames[0].columns:  # rows for an existing run need no labels
        data_settings = replace(data_settings, label=None)
    parts, kind = read_media_frames(frames, column, data_settings, labels, folders)
    if strict:
        print_message(f"{name}: the samples are the {kind} in column {column!r}; other columns are not used")
    return replace(_read_media(parts, kind, data_settings), name=name)


def _read_media(parts: Sequence[MediaFiles], kind: str, data_settings: DataSettings) -> Data:
    return read_images(parts, data_settings) if kind == "images" else read_audio(parts, data_settings)


def _load_by_name(data: str | Path, data_settings: DataSettings, table: Table | None, strict: bool) -> Data:
    """Load data by its data set name or path."""
    name, path = str(data), Path(data).absolute()
    if not name:
        raise InputError("the data set name is empty")
    is_table = is_table_path(path)
    is_many = not is_table and (path.is_dir() or path.suffix.lower() == ".tar")
    is_many = is_many or is_pattern(path)
    if data_settings.test and (name in DATASETS or not (is_table or is_many)):
        raise InputError(TEST_NOT_SUPPORTED)
    if name in DATASETS:
        loaded = DATASETS[name].load(data_settings)
        return _assemble(name, loaded, data_settings, table) if isinstance(loaded, RawData) else loaded
    _check_path(data)
    if data_settings.test:
        _check_path(data_settings.test)
    if is_many and (files := find_parts(path)):
        holds_files = data_settings.path_column is not None or may_hold_files(files[0])
        if files[0].suffix.lower() == ".parquet" and holds_files:
            splits = [path] if data_settings.test is None else [path, Path(data_settings.test)]
            frames = [read_parquet_files(str(split), find_parts(split)) for split in splits]
            return _load_frames(str(path), frames, None, data_settings, table, list(map(root, splits)), strict)
        return load_parts(path, files, data_settings, table)
    if is_many:
        return _load_folder(path, data_settings)
    if is_table:
        test = data_settings.test
        if test is not None and (is_pattern(test) or not is_table_path(Path(test))):
            raise InputError(f"`test={test!r}` must be one table, as {name!r} is, and not several files")
        files = [path] if test is None else [path, Path(test)]
        frames = read_frames(path, data_settings, table)
        return _load_frames(str(path), frames, None, data_settings, table, [file.parent for file in files], strict)
    suffix = path.suffix.lower()
    if suffix in (*IMAGE_SUFFIXES, *AUDIO_SUFFIXES):
        raise InputError(f"{name!r} is a single file; pass the folder that contains it, or a list of paths")
    if suffix not in ARRAYS:
        raise InputError(f"cannot read {name!r}: unsupported file type ({_supported()})")
    return _assemble(str(path), ARRAYS[suffix](path), data_settings, table, strict)


def is_table_path(path: Path) -> bool:
    """Whether a path is a table file, or a folder written by `datasets.Dataset.save_to_disk`."""
    return path.name.lower().endswith(TABLE_SUFFIXES) if not path.is_dir() else is_saved_dataset(path)


def _load_folder(folder: Path, data_settings: DataSettings) -> Data:
    """Load a folder or pattern of images or of audio files."""
    images = find_files(folder, IMAGE_SUFFIXES)
    audio_files = find_files(folder, AUDIO_SUFFIXES)
    if images and audio_files:
        raise InputError(
            f"{str(folder)!r} contains {len(images)} images and {len(audio_files)} audio files; pass a folder that "
            "contains only one of the two"
        )
    if not images and not audio_files:
        suffixes = f"no images ({', '.join(IMAGE_SUFFIXES)}) and no audio files ({', '.join(AUDIO_SUFFIXES)})"
        raise InputError(f"{str(folder)!r} contains {suffixes}, and no tar shards or tables")
    if unsupported := Counter(path.suffix.lower() for path in find_files(folder, UNSUPPORTED_SUFFIXES)):
        counts = ", ".join(f"{count} {suffix}" for suffix, count in unsupported.most_common())
        print_message(f"{folder}: ignored files of unsupported types: {counts}")
    return read_audio_folder(folder, data_settings) if audio_files else read_image_folder(folder, data_settings)


def _assemble(name: str, raw: RawData, data_settings: DataSettings, table: Table | None, strict: bool = True) -> Data:
    """Convert raw samples and labels to tensors.

    Data frames are tables. Arrays (N, F) are too, if they have missing values or the settings refer to columns.
    Without `strict`, such settings are ignored for arrays of other shapes.
    """
    if data_settings.columns.get(data_settings.label or "") == "drop":
        data_settings = replace(data_settings, label=None)
    if not strict and getattr(raw.x, "ndim", 2) != 2:
        data_settings = replace(data_settings, label=None, columns={})
    _check_labels_given_once(raw.y, data_settings)
    splits = {"the data" if name == IN_MEMORY_NAME else name: checked_input(raw.x)}  # keys: names used in messages
    if raw.x_test is not None:
        splits[f"{name}, test samples"] = checked_input(raw.x_test)
    labels: list[Tensor | None] = [None] * len(splits)
    class_names: list[str] = []
    inputs: list[Any]
    refers_to_columns = table is not None or data_settings.label or data_settings.columns
    if refers_to_columns or any(is_frame(x) or (not is_large(x) and has_missing_values(x)) for x in splits.values()):
        frames = [as_frame(x, split) for split, x in splits.items()]
        is_new = table is None
        label = data_settings.label if is_new or data_settings.label in frames[0].columns else None
        table, inputs = encode_frames(frames, data_settings, table)
        if label is not None:  # rows for an existing table may come without labels
            labels[:], class_names = encode_labels(
                frames, label, data_settings.columns.get(label), data_settings.missing_label, needed=is_new
            )
    else:
        inputs = [map_array(x, split) if is_large(x) else samples(x, split) for split, x in splits.items()]
    classes = None
    for i, (split, y) in enumerate(zip(splits, (raw.y, raw.y_test), strict=False)):
        if y is not None:
            n = len(inputs[i]) if isinstance(inputs[i], MappedArray) else size(inputs[i])
            labels[i], classes = encode_classes(y, n, split, classes, data_settings.missing_label)
    if classes is not None:
        names_fit = len(raw.class_names) == len(classes)
        class_names = list(raw.class_names) if names_fit else [str(value) for value in classes]
    train, *test = [
        replace(x, labels=y) if isinstance(x, MappedArray) else TensorSource(x, y)
        for x, y in zip(inputs, labels, strict=True)
    ]
    return Data(name, train, test[0] if test else None, class_names, data_settings, table, augment=raw.augment)


def _check_labels_given_once(labels: Any, data_settings: DataSettings) -> None:
    if labels is not None and data_settings.label is not None:
        raise InputError(f"pass either labels or a label column; got labels and label={data_settings.label!r}")


def _check_path(path: str | Path) -> None:
    path = Path(path)
    if is_pattern(path):
        return
    if not path.exists() and re.match(r"\w+:/", str(path)):
        raise InputError(f"{str(path)!r} is a remote path, which is not read: download the data first")
    if not path.exists():
        raise InputError(f"no data set or file {str(path)!r} ({_supported()})")
    if not (path.is_file() or path.is_dir()):  # reading a pipe could block forever
        raise InputError(f"{str(path)!r} is neither a file nor a folder")


def _supported() -> str:
    names = ", ".join(name for name, record in DATASETS.items() if record.kind != "detection")
    return (
        f"data sets: {names}; files: {', '.join(ARRAYS)}, .csv, .tsv, .parquet, .tar; folders of images or audio files"
    )


def _absolute(path: str | None) -> str | None:
    return path and str(Path(path).absolute())
