"""`Table`, the encoding of a table as numbers: fitted to training rows, stored in the run, applied to new tables."""

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from imix.data.tables.columns import (
    ALMOST_UNIQUE,
    BYTES,
    FILE_PATHS,
    CategoricalColumn,
    Column,
    NumericColumn,
    infer_kind,
)
from imix.data.tables.frame import Frame, format_names
from imix.errors import InputError, first_line
from imix.progress import ProgressLine
from imix.settings import COLUMN_KINDS
from imix.typed_json import build

COLUMNS_AT_A_TIME = 16  # a cache line; writing single columns into the rows of a matrix would be slow


@dataclass(frozen=True)
class Table:
    """How the columns of a table are encoded as numbers.

    Parameters
    ----------
    columns : tuple of NumericColumn and CategoricalColumn
        The fitted columns: numeric, boolean and datetime columns first, then categorical ones.
    ignored : dict of str to str
        Names of the columns that are not used, with the reason.

    Examples
    --------
    >>> import pyarrow
    >>> frame = pyarrow.table({"age": [31.5, 45.0, None, 62.0], "city": ["Rome", "Oslo", "Rome", "Oslo"]})
    >>> table = imix.data.load(frame).table
    >>> print(table)
    1 numeric ('age'), 1 categorical ('city') columns encoded as 4 features
    >>> table.kinds
    {'age': 'numeric', 'city': 'categorical'}
    """

    columns: tuple[Column, ...]
    ignored: dict[str, str] = field(default_factory=dict)

    @classmethod
    def fit(
        cls,
        train: Frame,
        kinds: Mapping[str, str] | None = None,
        label: str | None = None,
        scaling_frames: Sequence[Frame] = (),
    ) -> "Table":
        """Fit the encoding to training rows.

        Parameters
        ----------
        train : Frame
            Training rows.
        kinds : dict of str to str, optional
            Kinds of columns by name, instead of the inferred ones.
        label : str, optional
            Name of the label column, which is not encoded.
        scaling_frames : sequence of Frame
            Rows whose mean and standard deviation scale the numeric columns. If empty, columns are not scaled.

        Returns
        -------
        Table
        """
        inferred = infer_kinds(train, kinds, label)
        ignored = {name: reason for name, (kind, reason) in inferred.items() if kind == "drop"}
        check_files(train.name, inferred, ignored, label)
        for frame in scaling_frames:
            frame.check_columns([name for name in inferred if name not in ignored])
        columns: list[Column] = []
        progress = ProgressLine("fitting", len(inferred) - len(ignored), "columns")
        for name, (kind, _) in inferred.items():
            if kind == "drop":
                continue
            progress(len(columns) + 1)
            with column_errors(name, kind):
                column = train.column(name)
                if kind == "categorical":
                    columns.append(CategoricalColumn.fit(name, column, train.decimal_marks))
                else:
                    scaling = [column if frame is train else frame.column(name) for frame in scaling_frames]
                    columns.append(NumericColumn.fit(name, kind, column, scaling))
        return cls.build(train.name, columns, ignored)

    @classmethod
    def build(cls, name: str, columns: Sequence[Column], ignored: dict[str, str]) -> "Table":
        """Put the fitted columns of the table `name` in order; it is an error if there is nothing to learn from."""
        constant = {column.name: "the same in every row" for column in columns if _has_one_category(column)}
        if not columns or (ignored and len(constant) == len(columns)):
            reasons = "; ".join(f"{column!r}: {reason}" for column, reason in (constant | ignored).items())
            raise InputError(f"{name} has no column to learn from ({reasons}){_hint(ignored)}")
        return cls(tuple(sorted(columns, key=lambda column: column.kind == "categorical")), ignored)

    def encode(self, frame: Frame) -> np.ndarray:
        """Encode the rows of a frame that has the fitted columns.

        Parameters
        ----------
        frame : Frame
            N rows with the fitted columns, in any order. Ignored columns may be present or not.

        Returns
        -------
        ndarray of shape (N, width), float32
        """
        self.check_columns(frame)
        features = np.zeros((frame.rows, self.width), np.float32)

        def encode(column: Column) -> np.ndarray:
            with column_errors(column.name, column.kind), np.errstate(all="ignore"):
                return column.encode(frame.column(column.name))

        def encode_block(columns: Sequence[Column], start: int) -> None:
            block = np.concatenate([encode(column) for column in columns])
            features[:, start : start + len(block)] = block.T

        numeric = [column for column in self.columns if isinstance(column, NumericColumn)]
        blocks = [numeric[i : i + COLUMNS_AT_A_TIME] for i in range(0, len(numeric), COLUMNS_AT_A_TIME)]
        *starts, start = itertools.accumulate((sum(column.width for column in block) for block in blocks), initial=0)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(encode_block, blocks, starts))  # raises the error of a column
        for column in self.columns[len(numeric) :]:
            categories = encode(column)
            known = np.flatnonzero(categories >= 0)
            features[known, start + categories[known]] = 1
            start += column.width
        return features

    def check_columns(self, frame: Frame) -> None:
        """Raise an error if a frame lacks fitted columns, or has columns that are neither fitted nor ignored."""
        names = set(frame.columns)
        missing = [name for name in self.kinds if name not in names]
        unknown = sorted(names - self.kinds.keys() - self.ignored.keys())
        problems = [f"missing: {format_names(missing)}"] if missing else []
        if unknown:
            problems.append(
                f"not seen in training: {format_names(unknown)} (exclude with `columns={{'NAME': 'drop'}}`)"
            )
        if problems:
            raise InputError(f"{frame.name} does not have the columns of the run; {'; '.join(problems)}")

    @property
    def width(self) -> int:
        """Number of features that encode a row."""
        return sum(column.width for column in self.columns)

    @property
    def kinds(self) -> dict[str, str]:
        """Kinds of the columns, by name."""
        return {column.name: column.kind for column in self.columns}

    @property
    def groups(self) -> tuple[int, ...]:
        """Widths of the feature groups that an encoder embeds: all numeric columns, then each categorical column."""
        categorical = [column.width for column in self.columns if column.kind == "categorical"]
        numeric = self.width - sum(categorical)
        return (numeric, *categorical) if numeric else tuple(categorical)

    @property
    def cells(self) -> tuple[int, ...]:
        """For each feature, the index of its column.

        A cell is the value of one column in one row. Features with the same index encode the same cell, so an
        augmentation changes them together.
        """
        return tuple(i for i, column in enumerate(self.columns) for _ in range(column.width))

    def select_columns(self, names: Sequence[str]) -> tuple[bool, ...]:
        """For each column, whether its name or kind is in `names`; an empty `names` selects all columns."""
        allowed = {name for column in self.columns for name in (column.name, column.kind)}
        if unknown := [name for name in names if name not in allowed]:
            columns = ", ".join(f"{name!r} ({kind})" for name, kind in self.kinds.items())
            raise InputError(f"no column or kind {format_names(unknown)}; the columns are {columns}")
        return tuple(not names or column.name in names or column.kind in names for column in self.columns)

    def to_json(self) -> dict[str, Any]:
        """Convert to values that JSON can store."""
        return {"columns": [vars(column) for column in self.columns], "ignored": self.ignored}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Table":
        """Restore a table from the result of `to_json`; raises InputError if it is damaged."""
        stored = build(_StoredTable, value, "table")
        columns: list[Column] = []
        for i, entry in enumerate(stored.columns):
            kind: type[Column] = CategoricalColumn if entry.get("kind") == "categorical" else NumericColumn
            column = build(kind, entry, f"table.columns[{i}]")
            if not column.is_valid():
                raise InputError(f"table.columns[{i}] is inconsistent")
            columns.append(column)
        if len({column.name for column in columns}) < len(columns):
            raise InputError("table.columns has two columns of the same name")
        return cls(tuple(columns), stored.ignored)

    def __str__(self) -> str:
        by_kind = {kind: [name for name, k in self.kinds.items() if k == kind] for kind in COLUMN_KINDS}
        by_reason = {
            reason: [name for name, r in self.ignored.items() if r == reason] for reason in self.ignored.values()
        }
        columns = ", ".join(f"{len(names)} {kind} ({format_names(names)})" for kind, names in by_kind.items() if names)
        ignored = [f"ignored {format_names(names)}: {reason}" for reason, names in by_reason.items()]
        return "; ".join([f"{columns} columns encoded as {self.width} features", *ignored])


@dataclass(frozen=True)
class _StoredTable:
    """The JSON of a table."""

    columns: tuple[dict[str, Any], ...]
    ignored: dict[str, str]


def infer_kinds(train: Frame, kinds: Mapping[str, str] | None, label: str | None) -> dict[str, tuple[str, str]]:
    """Determine the kind of each column, from `kinds` or its values, and the reason if it is "drop"."""
    kinds = kinds or {}
    train.check_columns([*kinds, *([] if label is None else [label])])
    inferred = {}
    for name in train.columns:
        if name == label:
            inferred[name] = ("drop", "label")
        elif name in kinds:
            inferred[name] = (kinds[name], "dropped by the user")
        else:
            with column_errors(name, "numeric"):
                inferred[name] = infer_kind(train.column(name), train.all_numeric)
    return inferred


def check_files(
    name: str, inferred: Mapping[str, tuple[str, str]], ignored: Mapping[str, str], label: str | None
) -> None:
    """Raise an error if the samples seem to be the files in a column (paths or bytes) instead of the other columns."""
    others = [column for column in inferred if column not in ignored]
    only_label = label is None and len(others) == 1 and inferred[others[0]][0] != "numeric"
    for column, reason in ignored.items():
        train_on_others = f"`columns={{{column!r}: 'drop'}}` to train on the other columns"
        if reason == FILE_PATHS:
            raise InputError(
                f"column {column!r} of {name} has paths of files; pass `path_column={column!r}` to train on the files, "
                f"or {train_on_others}"
            )
        if reason == BYTES and (only_label or not others):
            raise InputError(
                f"column {column!r} of {name} has bytes that are not image or audio files, and "
                + (
                    f"the only other column is {others[0]!r}; pass {train_on_others}"
                    if others
                    else "no other is usable; store images or audio files, or numbers in columns"
                )
            )


def _hint(ignored: Mapping[str, str]) -> str:
    """What can be done if no column is usable, because of the reasons in `ignored`."""
    column = next((name for name, reason in ignored.items() if reason == ALMOST_UNIQUE), None)
    if column is None:
        return "; pass a table with other columns"
    return (
        f"; to use {column!r}, pass `columns={{{column!r}: 'categorical'}}`; if it names image or audio files, add "
        f"their suffixes and pass `path_column={column!r}`"
    )


def _has_one_category(column: Column) -> bool:
    return isinstance(column, CategoricalColumn) and column.width == 1


@contextmanager
def column_errors(name: str, kind: str) -> Iterator[None]:
    """Turn errors about the values of a column into an `InputError` that names the column."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        if isinstance(error, InputError) and str(error).startswith("column "):
            raise
        raise InputError(f"column {name!r} cannot be read as {kind}: {first_line(error)}") from error
