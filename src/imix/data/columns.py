"""Columns of a table as numbers: which kind a column is, what is learned from it, and how new values are treated.

A `Measured` column (numeric, boolean or datetime) becomes one scaled number, or one for each part of a time, and where
it had gaps in training, a flag that says so. A `Categorical` one becomes a flag for each of its values. Scaling and
flags are scikit-learn's StandardScaler and OneHotEncoder; what they learned is kept as plain numbers and names, so that
a run's JSON can hold it. How arrow's many types become numbers and text is in `values`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from imix.data.values import as_numbers, as_text, as_times, find_no_time, has_fractions, holds_numbers, is_measured
from imix.errors import InputError

FEW = 10  # whole numbers with at most so many different values, a tenth of the rows at most, are categories
MANY = 100  # a categorical column keeps its most frequent values up to so many; the others count as unknown
EXACT = 2**53  # up to here every whole number is a float
PARTS = ("year", "month", "day", "weekday", "hour", "minute", "second")


@dataclass(frozen=True)
class Measured:
    """A column of numbers, booleans or times."""

    name: str
    kind: str
    parts: tuple[str, ...]
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    median: tuple[float, ...]
    gaps: bool

    @classmethod
    def fit(cls, name: str, kind: str, train: Any, scaling: Sequence[Any]) -> "Measured":
        """Learn from a column's training rows, its scale from the `scaling` ones; times keep the parts that vary."""
        from sklearn.preprocessing import StandardScaler

        parts: tuple[str, ...] = PARTS if kind == "datetime" else ("",)
        values = _values(kind, train, parts)
        present = ~np.isnan(values[:, 0])
        if not present.any():
            raise InputError(f"column {name!r} has no values; leave it out with --columns {name} drop")
        if kind == "datetime":
            kept = np.flatnonzero(np.ptp(values[present], axis=0) > 0).tolist() or [0]
            parts, values = tuple(PARTS[part] for part in kept), values[:, kept]
        mean, deviation = np.zeros(len(parts)), np.ones(len(parts))
        if kind != "boolean" and scaling:
            every = [values if column is train else _values(kind, column, parts) for column in scaling]
            with np.errstate(all="ignore"):
                scaler = StandardScaler().fit(every[0] if len(every) == 1 else np.concatenate(every))
            mean, deviation = scaler.mean_, scaler.scale_
        if not (np.isfinite(mean).all() and np.isfinite(deviation).all()):
            raise InputError(f"column {name!r} has values that are too large to be scaled")
        median = np.median(values[present], axis=0)
        gaps = not bool(present.all())
        return cls(name, kind, parts, tuple(mean.tolist()), tuple(deviation.tolist()), tuple(median.tolist()), gaps)

    @property
    def width(self) -> int:
        """How many numbers it becomes."""
        return len(self.parts) + self.gaps

    def encode(self, column: Any) -> np.ndarray:
        """Values scaled, gaps filled with the median and, where training had some, flagged: (N, width)."""
        from sklearn.preprocessing import StandardScaler

        values = _values(self.kind, column, self.parts)
        missing = np.isnan(values)
        scaler = StandardScaler().set_output(transform="default")  # as it was when fitted
        scaler.mean_, scaler.scale_ = np.array(self.mean), np.array(self.deviation)
        scaler.var_, scaler.n_features_in_ = scaler.scale_**2, len(self.parts)
        scaled = scaler.transform(np.where(missing, self.median, values))
        return np.column_stack([scaled, missing[:, 0]]) if self.gaps else scaled


@dataclass(frozen=True)
class Categorical:
    """A column of names: its values, None among them where training had gaps.

    `numbers` says that they are numbers, so that 1 and 1.0 are the same category.
    """

    name: str
    values: tuple[str | None, ...]
    numbers: bool
    kind: str = "categorical"

    @classmethod
    def fit(cls, name: str, train: Any, marks: str = "") -> "Categorical":
        """Learn the values of a column's training rows, and those its type declares even if no row has them."""
        import pyarrow as pa

        numbers = holds_numbers(train, marks)
        found = as_text(train, numbers).value_counts().to_pylist()
        counts: dict[str | None, int] = {}
        if pa.types.is_dictionary(train.type):
            declared = pa.chunked_array([part.dictionary for part in train.chunks])
            counts = dict.fromkeys(as_text(declared, numbers).drop_null().to_pylist(), 0)
        counts |= {value["values"]: value["counts"] for value in found}
        if len(counts) > MANY:
            ranked = sorted(counts, key=lambda value: (value is not None, -counts[value]))
            counts = dict.fromkeys(ranked[:MANY], 0)
        return cls(name, tuple(counts), numbers)

    @property
    def width(self) -> int:
        """How many numbers it becomes."""
        return len(self.values)

    def encode(self, column: Any) -> np.ndarray:
        """A flag for the value of each row, (N, width); none where training had not seen that value."""
        from sklearn.preprocessing import OneHotEncoder

        known = np.array([self.values], dtype=object)
        encoder = OneHotEncoder(categories=list(known), handle_unknown="ignore", sparse_output=False, dtype=np.float32)
        encoder.set_output(transform="default").fit(known[:, :1])
        return encoder.transform(as_text(column, self.numbers).to_numpy()[:, None])


Column = Measured | Categorical


def find_kind(column: Any, numbers: bool = False) -> tuple[str, str]:
    """The kind of a column, and why, where it is one to drop; known `numbers` are numeric."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_null(kind) or column.null_count == len(column):
        return "drop", "it has no values"
    if pa.types.is_boolean(kind):
        return "boolean", ""
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return "datetime", ""
    if pa.types.is_dictionary(kind):
        return "categorical", ""
    if is_measured(kind):
        if pa.types.is_integer(kind) and abs(lowest := pc.min(column).as_py()) >= EXACT:
            column = pc.subtract(column, pa.scalar(lowest, kind))  # what floats cannot tell apart
        return _kind_of_numbers(as_numbers(column), numbers)
    if not pa.types.is_string(kind):
        return "drop", f"it holds values of type {kind}"
    text = as_text(column, numbers=False).drop_null()
    if not len(text):
        return "drop", "it has no values"
    try:
        as_times(text, PARTS[:1])
    except pa.ArrowInvalid:
        different = pc.count_distinct(text).as_py()
        if different > MANY and different > len(text) / 2:
            return "drop", "nearly every row has a value of its own"
        return "categorical", ""
    return "datetime", ""


def _kind_of_numbers(values: np.ndarray, numbers: bool) -> tuple[str, str]:
    seen = values[~np.isnan(values)]
    if not len(seen):
        return "drop", "it has no values"
    if numbers or has_fractions(seen):
        return "numeric", ""
    if len(values) > 2 and len(seen) == len(values) and (np.diff(values) == 1).all():
        return "drop", "it numbers the rows"
    if len(np.unique(seen[: 1000 * FEW])) > FEW:
        return "numeric", ""
    different = np.unique(seen)
    if np.isin(different, (0, 1)).all():
        return "boolean", ""
    return ("categorical" if len(different) <= min(FEW, len(values) // 10) else "numeric"), ""


def _values(kind: str, column: Any, parts: tuple[str, ...]) -> np.ndarray:
    """The numbers of a measured column, (N, parts) in float64, NaN where it has gaps."""
    import pyarrow as pa

    if kind == "datetime":
        try:
            return as_times(column, parts)
        except pa.ArrowInvalid as error:
            raise InputError(find_no_time(column)) from error
    values = as_numbers(column, truth=kind == "boolean")
    odd = ~(np.isnan(values) | (values == 0) | (values == 1))
    if kind == "boolean" and odd.any():
        raise InputError(f"row {int(odd.argmax())} has {values[odd][0]:g}")
    return values[:, None]
