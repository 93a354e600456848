"""A table as rows of numbers: fitted to training rows, kept in the run, and applied to every table that comes later."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from imix.data.columns import Categorical, Column, Measured, find_kind
from imix.data.frame import Frame, listed
from imix.errors import InputError, first_line
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
        scaling: Sequence[Frame] = (),
    ) -> "Table":
        """Learn from training rows; `kinds` overrides what is found out about columns, `label` is left alone.

        Measured columns are scaled by the rows of the `scaling` frames, or not at all where there is none.
        """
        columns: list[Column] = []
        ignored: dict[str, str] = {}
        for name, (kind, why) in find_kinds(train, kinds, label).items():
            if kind == "drop":
                ignored[name] = why
                continue
            for frame in scaling:
                frame.check(name)
            with naming(name, kind):
                column = train.column(name)
                if kind == "categorical":
                    columns.append(Categorical.fit(name, column, train.marks))
                else:
                    among = [column if frame is train else frame.column(name) for frame in scaling]
                    columns.append(Measured.fit(name, kind, column, among))
        if not columns:
            reasons = "; ".join(f"{name!r}: {why}" for name, why in ignored.items())
            raise InputError(f"{train.name} has no column to learn from ({reasons})")
        return cls(tuple(sorted(columns, key=lambda column: column.kind == "categorical")), ignored)

    def encode(self, frame: Frame) -> np.ndarray:
        """The rows of a table as numbers, (N, width) in float32; it must have the columns that were fitted."""
        given = set(frame.columns)
        missing = [name for name in self.kinds if name not in given]
        unseen = sorted(given - self.kinds.keys() - self.ignored.keys())
        if missing or unseen:
            complaints = [f"lacks {listed(missing)}"] if missing else []
            complaints += [f"has {listed(unseen)}, not seen in training (leave out: --columns NAME drop)"] * bool(
                unseen
            )
            raise InputError(f"{frame.name} does not have the columns of the run: it {' and '.join(complaints)}")
        rows = np.empty((frame.rows, self.width), np.float32)
        at = 0
        for column in self.columns:
            with naming(column.name, column.kind), np.errstate(all="ignore"):
                numbers = column.encode(frame.column(column.name)).astype(np.float32, copy=False)
            finite = np.isfinite(numbers)
            if not finite.all():
                row = int((~finite).any(1).argmax())
                raise InputError(f"column {column.name!r} has values that are too large, the first in row {row}")
            rows[:, at : at + column.width] = numbers
            at += column.width
        return rows

    @property
    def width(self) -> int:
        """How many numbers a row becomes."""
        return sum(column.width for column in self.columns)

    @property
    def kinds(self) -> dict[str, str]:
        """Kinds of the columns, by name."""
        return {column.name: column.kind for column in self.columns}

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

    def chosen(self, names: Sequence[str]) -> tuple[bool, ...]:
        """For each column, whether its name or kind is among `names`; all where there are none."""
        known = {name for column in self.columns for name in (column.name, column.kind)}
        if unknown := [name for name in names if name not in known]:
            there = ", ".join(f"{name!r} ({kind})" for name, kind in self.kinds.items())
            raise InputError(f"no column or kind {listed(unknown)}; there are {there}")
        return tuple(not names or column.name in names or column.kind in names for column in self.columns)

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
        by_kind = {kind: [name for name, found in self.kinds.items() if found == kind] for kind in KINDS}
        by_reason = {
            why: [name for name, given in self.ignored.items() if given == why] for why in self.ignored.values()
        }
        kept = ", ".join(f"{len(names)} {kind} ({listed(names)})" for kind, names in by_kind.items() if names)
        left = [f"without {listed(names)}: {why}" for why, names in by_reason.items()]
        return "; ".join([f"{kept} columns as {self.width} numbers", *left])


def find_kinds(train: Frame, kinds: Mapping[str, str] | None, label: str | None) -> dict[str, tuple[str, str]]:
    """The kind of each column, as told or found out, and why where it is one to drop."""
    kinds = kinds or {}
    for name in (*kinds, *([] if label is None else [label])):
        train.check(name)
    found = {}
    for name in train.columns:
        if name == label:
            found[name] = ("drop", "it is the label")
        elif name in kinds:
            found[name] = (kinds[name], "as asked")
        else:
            with naming(name, "numeric"):
                found[name] = find_kind(train.column(name), train.numbers)
    return found


@contextmanager
def naming(name: str, kind: str) -> Iterator[None]:
    """Say which column it is that cannot be read as what it should be."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        if isinstance(error, InputError) and str(error).startswith("column "):
            raise
        raise InputError(f"column {name!r} cannot be read as {kind}: {first_line(error)}") from error
