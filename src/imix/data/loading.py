"""`load`: turns a data set name, a path, a data frame, arrays or tensors into `Data`."""

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from imix.batch import Batch, size
from imix.data.arrays import RawData, encode_classes, read_npy, read_npz, samples
from imix.data.media.audio import AUDIO_SUFFIXES, read_audio_folder
from imix.data.media.folder import find_files
from imix.data.media.images import IMAGE_SUFFIXES, read_image_folder
from imix.data.named import DATASETS
from imix.data.options import check_options
from imix.data.source import Data, Source, TensorSource, take_fraction
from imix.data.tables.csv_file import CSV_SUFFIXES
from imix.data.tables.encode import encode_frames, encode_labels, read_frames
from imix.data.tables.frame import as_frame, has_missing_values, is_frame
from imix.data.tables.table import Table
from imix.errors import InputError
from imix.settings import DataSettings

ARRAYS = {".npy": read_npy, ".npz": read_npz}
TABLE_SUFFIXES = (".parquet", *CSV_SUFFIXES)
# Media files that cannot be read; they are reported instead of silently ignored.
UNSUPPORTED_SUFFIXES = (
    *(".heic", ".heif", ".avif", ".jfif", ".jp2", ".jxl", ".raw", ".dng"),
    *(".m4a", ".aac", ".wma", ".mp4", ".mov"),
)
IN_MEMORY_NAME = "in-memory data"  # name of data that was passed as arrays, a frame or a Source
TEST_NOT_SUPPORTED = "test (a second file or folder) only applies to .csv and .parquet files and to folders"


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
    data : str, Path, data frame, array, tensor, tuple or dict of these, Source or Data
        The name of a data set (see ``imix data list``), the path of a file (.csv, .tsv, .parquet, .npy, .npz) or of a
        folder of images or audio files, or the samples themselves, with shape (N, ...). `Data` is returned unchanged.
    data_settings : DataSettings, optional
        Options for reading the data.
    labels : array of shape (N,), optional
        Classes of the samples, if `data` is a data frame, an array or a tensor. NaN, None and "" mean "no label".
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
    if isinstance(data, Dataset | DataLoader):
        raise InputError(
            "a torch Dataset or DataLoader is not supported; pass its samples as one tensor (and labels=...), or write "
            "an imix.data.Source"
        )
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
        loaded = _load_by_name(data, data_settings, table)
    elif data_settings.test:
        raise InputError(TEST_NOT_SUPPORTED)
    elif isinstance(data, Source):
        loaded = Data(IN_MEMORY_NAME, data, settings=data_settings)
    else:
        loaded = _assemble(IN_MEMORY_NAME, RawData(data, labels), data_settings, table)
    return take_fraction(loaded, data_settings.fraction)


def _load_by_name(data: str | Path, data_settings: DataSettings, table: Table | None) -> Data:
    """Load data by its data set name or path."""
    name, path = str(data), Path(data).absolute()
    if not name:
        raise InputError("the data set name is empty")
    is_table = path.name.lower().endswith(TABLE_SUFFIXES)
    if data_settings.test and (name in DATASETS or not (is_table or path.is_dir())):
        raise InputError(TEST_NOT_SUPPORTED)
    if name in DATASETS:
        loaded = DATASETS[name].load(data_settings)
        return _assemble(name, loaded, data_settings, table) if isinstance(loaded, RawData) else loaded
    _check_path(data)
    if data_settings.test:
        _check_path(data_settings.test)
    if path.is_dir():
        return _load_folder(path, data_settings)
    if is_table:
        train, *test = read_frames(path, data_settings, table)
        return _assemble(str(path), RawData(train, x_test=test[0] if test else None), data_settings, table)
    suffix = path.suffix.lower()
    if suffix in (*IMAGE_SUFFIXES, *AUDIO_SUFFIXES):
        raise InputError(f"{name!r} is a single file; pass the folder that contains it")
    if suffix not in ARRAYS:
        raise InputError(f"cannot read {name!r}: unsupported file type ({_supported()})")
    return _assemble(str(path), ARRAYS[suffix](path), data_settings, table)


def _load_folder(folder: Path, data_settings: DataSettings) -> Data:
    """Load a folder of images or of audio files."""
    images = find_files(folder, IMAGE_SUFFIXES)
    audio_files = find_files(folder, AUDIO_SUFFIXES)
    if images and audio_files:
        raise InputError(
            f"{str(folder)!r} contains {len(images)} images and {len(audio_files)} audio files; pass a folder that "
            "contains only one of the two"
        )
    if not images and not audio_files:
        hint = "; to load a table, pass its file" if find_files(folder, TABLE_SUFFIXES) else ""
        suffixes = f"no images ({', '.join(IMAGE_SUFFIXES)}) and no audio files ({', '.join(AUDIO_SUFFIXES)})"
        raise InputError(f"{str(folder)!r} contains {suffixes}{hint}")
    if unsupported := Counter(path.suffix.lower() for path in find_files(folder, UNSUPPORTED_SUFFIXES)):
        counts = ", ".join(f"{count} {suffix}" for suffix, count in unsupported.most_common())
        print(f"{folder}: ignored files of unsupported types: {counts}", file=sys.stderr)
    return read_audio_folder(folder, data_settings) if audio_files else read_image_folder(folder, data_settings)


def _assemble(name: str, raw: RawData, data_settings: DataSettings, table: Table | None) -> Data:
    """Convert raw samples and labels to tensors.

    Data frames are tables. Arrays (N, F) are too, if they have missing values or the settings refer to columns.
    """
    if data_settings.columns.get(data_settings.label or "") == "drop":
        data_settings = replace(data_settings, label=None)
    if raw.y is not None and data_settings.label is not None:
        raise InputError(f"pass either labels or a label column; got labels and label={data_settings.label!r}")
    splits = {"the data" if name == IN_MEMORY_NAME else name: fill_masked(raw.x)}  # keys: names used in messages
    if raw.x_test is not None:
        splits[f"{name}, test samples"] = fill_masked(raw.x_test)
    labels: list[Tensor | None] = [None] * len(splits)
    class_names: list[str] = []
    refers_to_columns = table is not None or data_settings.label or data_settings.columns
    if refers_to_columns or any(is_frame(x) or has_missing_values(x) for x in splits.values()):
        frames = [as_frame(x, split) for split, x in splits.items()]
        is_new = table is None
        label = data_settings.label if is_new or data_settings.label in frames[0].columns else None
        table, inputs = encode_frames(frames, data_settings, table)
        if label is not None:  # rows for an existing table may come without labels
            labels[:], class_names = encode_labels(frames, label, data_settings.columns.get(label), needed=is_new)
    else:
        inputs = [samples(x, split) for split, x in splits.items()]
    classes = None
    for i, (split, y) in enumerate(zip(splits, (raw.y, raw.y_test), strict=False)):
        if y is not None:
            labels[i], classes = encode_classes(y, size(inputs[i]), split, classes)
    if classes is not None:
        names_fit = len(raw.class_names) == len(classes)
        class_names = list(raw.class_names) if names_fit else [str(value) for value in classes]
    train, *test = [TensorSource(x, y) for x, y in zip(inputs, labels, strict=True)]
    return Data(name, train, test[0] if test else None, class_names, data_settings, table, augment=raw.augment)


def fill_masked(x: Any) -> Any:
    """Replace the masked values of a NumPy masked array by NaN."""
    if not isinstance(x, np.ma.MaskedArray):
        return x
    return np.ma.filled(x.astype(float), np.nan) if x.mask.any() else x.data


def _check_path(path: str | Path) -> None:
    path = Path(path)
    if not path.exists():
        raise InputError(f"no data set or file {str(path)!r} ({_supported()})")
    if not (path.is_file() or path.is_dir()):  # reading a pipe could block forever
        raise InputError(f"{str(path)!r} is neither a file nor a folder")


def _supported() -> str:
    names = ", ".join(name for name, record in DATASETS.items() if record.kind != "detection")
    return f"data sets: {names}; files: {', '.join(ARRAYS)}, .csv, .tsv, .parquet; folders of images or audio files"


def _absolute(path: str | None) -> str | None:
    return path and str(Path(path).absolute())
