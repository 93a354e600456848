"""From table files and frames to samples: feature tensors, and class numbers from the label column."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from imix.data.arrays import is_label, note_minus_one, note_unused_label, to_targets
from imix.data.tables.csv_file import read_csv
from imix.data.tables.frame import Frame, read_arrow
from imix.data.tables.table import Table, column_errors, infer_kinds
from imix.data.tables.values import has_fractions, is_numeric_column, to_codes
from imix.errors import InputError
from imix.settings import DataSettings


def read_frames(path: Path, data_settings: DataSettings, table: Table | None = None) -> list[Frame]:
    """Read a CSV or Parquet file of training rows and, if `data_settings.test` names one, a file of test rows.

    The training rows (or the fitted `table`) determine how the text of both files is interpreted.
    """
    kinds = data_settings.columns if table is None else table.kinds
    train = _read_frame(path, kinds, data_settings)
    if data_settings.test is None:
        return [train]
    if table is None:
        inferred = infer_kinds(train, data_settings.columns, data_settings.label)
        kinds = {name: kind for name, (kind, _) in inferred.items()}
    return [train, _read_frame(Path(data_settings.test), kinds, data_settings)]


def encode_frames(
    frames: Sequence[Frame], data_settings: DataSettings, table: Table | None
) -> tuple[Table, list[Tensor]]:
    """Encode training rows and, if any, test rows with `table`, which is fitted to the training rows if it is None."""
    if table is None:
        scaling_frames = {"train": frames[:1], "all": frames, "none": ()}[data_settings.standardize]
        table = Table.fit(frames[0], data_settings.columns, data_settings.label, scaling_frames)
    else:
        table = ignore_more_columns(table, data_settings)
    return table, [torch.from_numpy(table.encode(frame)) for frame in frames]


def encode_labels(
    frames: Sequence[Frame],
    label: str,
    kind: str | None = None,
    missing_label: str | None = None,
    *,
    needed: bool = True,
    n_train: int = 1,
) -> tuple[list[Tensor] | list[None], list[str]]:
    """Return the class numbers (N,) of each frame's rows, -1 for rows without a label, and the class names.

    Missing values and `missing_label` mean "no label". Numbers with fractions, or of kind "numeric", are targets
    (floats, NaN for rows without a label) and no classes. A label column without values is an error if labels are
    `needed`; otherwise there are no class numbers. The classes are those of the first `n_train` frames.
    """
    for frame in frames:
        frame.check_columns([label])
    with column_errors(label, "a label"):
        columns = [frame.column(label) for frame in frames]
        train_columns = [column for column in columns[:n_train] if column.null_count < len(column)]
        numeric = all(is_numeric_column(column, frames[0].decimal_marks) for column in train_columns)
        # In a CSV file, other spellings of missing values are null already; in typed sources they are class names.
        codes_and_names = [to_codes(column, numeric, missing=("",)) for column in columns]
    if missing_label is not None:
        if needed and not any(is_label(names, missing_label).any() for _, names in codes_and_names):
            note_unused_label(missing_label, frames[0].name)
        codes_and_names = [
            (codes, [None if is_label([name], missing_label)[0] else name for name in names])
            for codes, names in codes_and_names
        ]
    names_by_frame = [[name for name in names if name is not None] for _, names in codes_and_names]
    classes = sorted(set().union(*names_by_frame[:n_train]), key=_class_order)
    if not classes and not needed:
        return [None] * len(frames), []
    if not classes:
        raise InputError(f"the label column {label!r} of {frames[0].name} has no values")
    if numeric and np.isinf(values := np.array(classes, float)).any():
        raise InputError(f"the label column {label!r} of {frames[0].name} has infinite values")
    if numeric and (kind == "numeric" or has_fractions(values)):
        targets = [
            np.array([np.nan if name is None else float(name) for name in names]) for _, names in codes_and_names
        ]
        parts = [part[codes] for part, (codes, _) in zip(targets, codes_and_names, strict=True)]
        return [
            to_targets(part[~np.isnan(part)], np.isnan(part), frame.name)
            for part, frame in zip(parts, frames, strict=True)
        ], []
    if missing_label is None:
        note_minus_one(classes, frames[0].name)
    for frame, names in zip(frames, names_by_frame, strict=True):
        if unseen := sorted(set(names) - set(classes)):
            raise InputError(f"{frame.name} has labels that are not in the training samples: {unseen[:5]}")
    number = {name: i for i, name in enumerate(classes)}
    return [
        torch.from_numpy(np.array([number.get(name or "", -1) for name in names])[codes])
        for codes, names in codes_and_names
    ], classes


def use_declared_label(data_settings: DataSettings, declared: str | None, table: Table | None) -> DataSettings:
    """Make the column that a table declares to be a label the label, unless the settings or a fitted table use it."""
    used = (None, *data_settings.columns, *(() if table is None else table.kinds))
    if data_settings.label is not None or declared in used:
        return data_settings
    return replace(data_settings, label=declared)


def ignore_more_columns(table: Table, data_settings: DataSettings) -> Table:
    """Add the label and the columns to drop to the ignored columns of a fitted table; they must not be its inputs."""
    label = data_settings.label
    if label in table.kinds:
        raise InputError(
            f"column {label!r} was an input of this run, so it cannot be the label; to use it as the label, train with "
            f"`columns={{{label!r}: 'drop'}}`"
        )
    for name, kind in data_settings.columns.items():
        if table.kinds.get(name, kind) != kind:
            raise InputError(f"column {name!r} is {table.kinds[name]} in this run and cannot be changed to {kind}")
    ignored = {name: "dropped by the user" for name, kind in data_settings.columns.items() if kind == "drop"}
    ignored |= {} if label is None else {label: "label"}
    return Table(table.columns, ignored | table.ignored)


def _read_frame(path: Path, kinds: Mapping[str, str], data_settings: DataSettings) -> Frame:
    if path.is_dir() or path.suffix.lower() == ".parquet":
        return read_arrow(path)
    if data_settings.path_column is not None:
        kinds = {**kinds, data_settings.path_column: "categorical"}  # text
    return read_csv(path, kinds, data_settings.header, data_settings.label)


def _class_order(name: str) -> tuple[bool, float, str]:
    """Sort key: numbers by value, then words."""
    try:
        return False, float(name), name
    except ValueError:
        return True, 0.0, name
