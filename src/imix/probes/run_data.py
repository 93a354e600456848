"""Loads data for an existing run, with the same data options as in training."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from imix.batch import to_float
from imix.data import Data, load
from imix.data.loading import IN_MEMORY_NAME, is_table_path
from imix.data.options import check_options
from imix.data.tables.encode import read_frames
from imix.data.tables.frame import Frame, as_frame, is_frame
from imix.data.tables.stream import TableStream
from imix.encoders.standardize import Standardize
from imix.errors import InputError
from imix.run import Run
from imix.settings import DataSettings

MAX_DEVIATION = 100  # pixels more standard deviations above the mean than this have the wrong scale


def load_for_run(
    run: Run,
    data: Any,
    labels: Any = None,
    *,
    label: str | None = None,
    missing_label: str | None = None,
    columns: Mapping[str, str] | None = None,
    path_column: str | None = None,
    test: str | None = None,
    data_dir: str | None = None,
    given_rows_only: bool = False,
) -> Data:
    """Load all of `data` with the run's data options, overridden by the arguments; raise InputError on a mismatch.

    With `given_rows_only`, the run's second file of test samples is not read, and no sample of a shard may be left out.
    """
    if isinstance(data, str) and data == run.config.data.name == IN_MEMORY_NAME:
        raise InputError(
            "the run was trained on in-memory data, which is not stored; pass data=... again, with labels=... or as "
            "imix.data.load(x, labels=y)"
        )
    arguments = {
        "label": label,
        "missing_label": missing_label,
        "columns": columns,
        "path_column": path_column,
        "test": test,
        "data_dir": data_dir,
    }
    overrides: dict[str, Any] = {name: value for name, value in arguments.items() if value is not None}
    if not isinstance(data, Data):
        check_options(data, DataSettings(**overrides))
    data_settings = _settings_for(run, data, has_labels=labels is not None)
    if given_rows_only and not isinstance(data, Data):
        data_settings = replace(data_settings, test=None)
    data_settings = replace(data_settings, **overrides)
    if label is not None and not columns:  # a column that was dropped in training can be the label
        kept = {name: kind for name, kind in data_settings.columns.items() if name != label}
        data_settings = replace(data_settings, columns=kept)
    dataset = load(data, data_settings, labels=labels, table=run.table, strict=False)
    if given_rows_only and dataset.n_skipped:
        raise InputError(
            f"{dataset.n_skipped} files in {dataset.name} cannot be decoded, but each needs a row; remove them from "
            "the shards"
        )
    if dataset.table is not None and run.table is None:
        raise InputError(f"the run was trained on arrays, but {dataset.name} is a table or has missing values")
    shape = run.config.architecture.shape
    if shape is not None and dataset.train.shape != shape:
        raise InputError(f"the run was trained on samples of shape {shape}; {dataset.name} has {dataset.train.shape}")
    _check_pixel_range(run, dataset)
    if label is not None and dataset.train.labels is None:
        source_frames(data, dataset, [label])  # raises if there is no such column
        raise InputError(f"column {label!r} is empty")
    return dataset


def source_frames(data: Any, dataset: Data, names: Sequence[str]) -> list[Frame]:
    """Return the original training and test tables of `dataset`, with the columns `names` as text."""
    streams = [part for part in (dataset.train, dataset.test) if isinstance(part, TableStream)]
    if streams:
        return [stream.read_columns(names) for stream in streams]
    from_file = isinstance(data, str | Path) and is_table_path(Path(dataset.name))
    if not (from_file or is_frame(data)):
        raise InputError(
            f"column names {names} need a .csv or .parquet file or a data frame; {dataset.name} is neither"
        )
    if from_file:
        files = [file for file in (dataset.name, dataset.settings.test) if file is not None]
        as_text = replace(dataset.settings, label=None, test=None, columns=dict.fromkeys(names, "categorical"))
        frames = [read_frames(Path(file), as_text)[0] for file in files]
    else:
        frames = [as_frame(data, "the data")]
    for frame in frames:
        frame.check_columns(names)
    return frames


def split_values(data: Any, dataset: Data, group: Any, time: Any) -> tuple[Tensor | None, Tensor | None]:
    """Return group numbers (N,) and times (N,) of the training samples, each from a column or from given values."""
    if group is not None and time is not None:
        raise InputError("pass either `group` or `time`, not both")
    if time is not None:
        return None, torch.from_numpy(_as_times(_values(data, dataset, time, "time")))
    if group is None:
        return None, None
    return torch.from_numpy(np.unique(_values(data, dataset, group, "group"), return_inverse=True)[1]), None


def _values(data: Any, dataset: Data, source: Any, name: str) -> np.ndarray:
    """Return the values of a column, or the given values, as text (N,)."""
    if isinstance(source, str):
        source = source_frames(data, dataset, [source])[0].column(source).to_pylist()
    values = np.array(["" if value is None else str(value) for value in source])
    if values.shape != (len(dataset.train),):
        raise InputError(f"`{name}` needs one value for each of the {len(dataset.train)} samples; got {values.shape}")
    if (values == "").any():
        raise InputError(f"`{name}` has missing values")
    return values


def _as_times(values: np.ndarray) -> np.ndarray:
    """Return numbers as they are, and dates in microseconds."""
    for dtype in (np.dtype(np.float64), np.dtype("datetime64[us]")):
        with suppress(ValueError):
            return values.astype(dtype).astype(np.float64)
    raise InputError(f"`time` must be numbers or dates such as 2026-01-31 12:00; got {str(values[0])!r}")


def is_same_data(data: str | Path, name: str) -> bool:
    """Return whether `data`, a name or a (relative) path, is the data that a run calls `name`."""
    return name != IN_MEMORY_NAME and (str(data) == name or os.path.realpath(data) == os.path.realpath(name))


def _settings_for(run: Run, data: Any, has_labels: bool) -> DataSettings:
    """Return the run's data options that apply to `data`."""
    if isinstance(data, Data):
        data_settings = data.settings  # already loaded
    else:
        data_settings = replace(run.data_settings, fraction=1.0)
        if not isinstance(data, str | Path) or not is_same_data(data, run.config.data.name):
            data_settings = replace(data_settings, test=None, data_dir=None)  # paths that belong to the run's data
    return replace(data_settings, label=None) if has_labels else data_settings


def _check_pixel_range(run: Run, data: Data) -> None:
    """Raise InputError for float images in [0, 255] if the run was trained on images in [0, 1]."""
    preprocess = run.encoder[0]
    if not isinstance(preprocess, Standardize) or len(data.train.shape or ()) != 3:
        return
    largest = float(to_float(data.train.sample(64)).max())
    if largest > float((preprocess.mean + MAX_DEVIATION * preprocess.std).max()):
        raise InputError(
            f"{data.name} has values up to {largest:g}, far outside the run's range; pixels must be uint8 or in [0, 1]"
        )
