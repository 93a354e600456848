"""A table as rows of numbers: fitted to training rows, kept in the run, and applied to every table that comes later."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from imix.data.columns import Categorical, Column, Measured, find_kind
from imix.data.frame import Frame
from imix.errors import InputError
from imix.settings import KINDS


@dataclass(frozen=True)
class Table:
    """How each column of a table becomes numbers, measured columns before categorical ones; others are `ignored`."""

    columns: tuple[Column, ...]
    ignored: dict[str, str] = field(default_factory=dict)  # why, by name

    @classmethod
    def fit(
        cls,
        train: Frame,
        kinds: Mapping[str, str] | None = None,
        label: str | None = None,
        scaling: tuple[Frame, ...] | None = None,
    ) -> "Table":
        """Learn from training rows; `kinds` overrides what is found out about columns, `label` is left alone.

        Measured columns are scaled by the rows of the `scaling` frames, or not at all where there is none.
        """
        kinds = dict(kinds or {})
        if label is not None:
            train.check(label)
        for name in kinds:
            train.check(name)
        columns: list[Column] = []
        ignored: dict[str, str] = {}
        for name in train.columns:
            if name == label:
                ignored[name] = "it is the label"
                continue
            column = train.column(name)
            kind, why = (kinds[name], "as asked") if name in kinds else find_kind(name, column, train.numbers)
            if kind == "drop":
                ignored[name] = why
            elif kind == "categorical":
                columns.append(Categorical.fit(name, column))
            else:
                columns.append(Measured.fit(name, kind, column, _joined(name, column, train, scaling)))
        if not columns:
            reasons = "; ".join(f"{name!r}: {why}" for name, why in ignored.items())
            raise InputError(f"{train.name} has no column to learn from ({reasons})")
        return cls(tuple(sorted(columns, key=lambda column: column.kind == "categorical")), ignored)

    def encode(self, frame: Frame) -> np.ndarray:
        """The rows of a table as numbers, (N, width) in float32; it must have the columns that were fitted."""
        missing = [column.name for column in self.columns if column.name not in frame.columns]
        unseen = sorted(set(frame.columns) - {column.name for column in self.columns} - set(self.ignored))
        if missing or unseen:
            complaints = [f"lacks {_names(missing)}"] if missing else []
            complaints += [f"has {_names(unseen)}, not seen in training (leave out: --columns NAME drop)"] * bool(
                unseen
            )
            raise InputError(f"{frame.name} does not have the columns of the run: it {' and '.join(complaints)}")
        rows = np.empty((frame.rows, self.width), np.float32)
        at = 0
        for column in self.columns:
            rows[:, at : at + column.width] = column.encode(frame.column(column.name))
            at += column.width
        return rows

    @property
    def width(self) -> int:
        """How many numbers a row becomes."""
        return sum(column.width for column in self.columns)

    @property
    def groups(self) -> tuple[int, ...]:
        """Sizes of the groups that an embedding treats alike: all measured columns, then each categorical one."""
        measured = sum(column.width for column in self.columns if column.kind != "categorical")
        each = [column.width for column in self.columns if column.kind == "categorical"]
        return (measured, *each) if measured else tuple(each)

    @property
    def cells(self) -> tuple[int, ...]:
        """For each number of a row, which column it belongs to."""
        return tuple(at for at, column in enumerate(self.columns) for _ in range(column.width))

    def chosen(self, names: tuple[str, ...]) -> tuple[bool, ...]:
        """For each column, whether its name or kind is among `names`."""
        known = {name for column in self.columns for name in (column.name, column.kind)} | set(KINDS)
        if unknown := [name for name in names if name not in known]:
            raise InputError(f"no column or kind {_names(unknown)}; there are {_names([c.name for c in self.columns])}")
        return tuple(column.name in names or column.kind in names for column in self.columns)

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {"columns": [asdict(column) for column in self.columns], "ignored": self.ignored}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Table":
        """The table that `to_json` wrote."""
        columns: list[Column] = []
        for given in value["columns"]:
            read: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in given.items()}
            columns.append(Categorical(**read) if read["kind"] == "categorical" else Measured(**read))
        return cls(tuple(columns), dict(value["ignored"]))

    def __str__(self) -> str:
        counts = {kind: [c.name for c in self.columns if c.kind == kind] for kind in KINDS}
        parts = [f"{len(names)} {kind} ({', '.join(names)})" for kind, names in counts.items() if names]
        left = [f"without {name!r}: {why}" for name, why in self.ignored.items()]
        return "; ".join([f"{', '.join(parts)} columns as {self.width} numbers", *left])


def _joined(name: str, column: Any, train: Frame, scaling: tuple[Frame, ...] | None) -> Any:
    """The column in all frames that scale it."""
    import pyarrow as pa

    if scaling is None:
        return None
    parts = [column if frame is train else frame.column(name) for frame in scaling]
    if len(parts) == 1:
        return parts[0]
    return pa.chunked_array([chunk for part in parts for chunk in part.cast(column.type).chunks], column.type)


def _names(names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:10]))
    return shown if len(names) <= 10 else f"{shown} and {len(names) - 10} more"
