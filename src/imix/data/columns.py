"""Columns of a table as numbers: which kind a column is, what is learned from it, and how new values are treated.

A `Measured` column (numeric, boolean or datetime) becomes one scaled number, or one for each part of a time, and where
it had gaps in training, a flag that says so. A `Categorical` one becomes a flag for each of its values. Scaling and
flags are scikit-learn's StandardScaler and OneHotEncoder; what they learned is kept as plain numbers and names, so that
a run's JSON can hold it.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from imix.errors import InputError

FEW = 10  # whole numbers with at most so many different values, a tenth of the rows at most, are categories
MANY = 100  # a categorical column keeps its most frequent values up to so many; the others count as unknown
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
    def fit(cls, name: str, kind: str, train: Any, scaling: Any) -> "Measured":
        """Learn from a column's training rows, its scale from `scaling`; times keep the parts that vary."""
        from sklearn.preprocessing import StandardScaler

        parts, values = _values(name, kind, train)
        present = ~np.isnan(values)
        if not present.any():
            raise InputError(f"column {name!r} has no values; leave it out with --columns {name} drop")
        if kind == "datetime":
            varying = [part for part in range(len(parts)) if len(np.unique(values[present[:, part], part])) > 1] or [0]
            parts, values = tuple(parts[part] for part in varying), values[:, varying]
        mean, deviation = np.zeros(len(parts)), np.ones(len(parts))
        if kind != "boolean" and scaling is not None:
            among = values if scaling is train else _values(name, kind, scaling, parts)[1]
            scaler = StandardScaler().fit(among)
            mean, deviation = scaler.mean_, scaler.scale_
        return cls(
            name,
            kind,
            parts,
            tuple(mean.tolist()),
            tuple(deviation.tolist()),
            tuple(np.nanmedian(values, axis=0).tolist()),
            gaps=not bool(present.all()),
        )

    @property
    def width(self) -> int:
        """How many numbers it becomes."""
        return len(self.parts) + self.gaps

    def encode(self, column: Any) -> np.ndarray:
        """Values scaled, gaps filled with the median and, where training had some, flagged: (N, width)."""
        from sklearn.preprocessing import StandardScaler

        _, values = _values(self.name, self.kind, column, self.parts)
        missing = np.isnan(values)
        values = np.where(missing, self.median, values)
        scaler = StandardScaler()  # as it was when fitted
        scaler.mean_, scaler.scale_ = np.array(self.mean), np.array(self.deviation)
        scaler.var_, scaler.n_features_in_ = scaler.scale_**2, len(self.parts)
        scaled = scaler.transform(values)
        return np.column_stack([scaled, missing[:, 0]]) if self.gaps else scaled


@dataclass(frozen=True)
class Categorical:
    """A column of names: its values, None among them where training had gaps.

    `numbers` says that they are whole numbers, so that 1 and 1.0 are the same category.
    """

    name: str
    values: tuple[str | None, ...]
    numbers: bool
    kind: str = "categorical"

    @classmethod
    def fit(cls, name: str, train: Any) -> "Categorical":
        """Learn the values of a column's training rows, and those its type declares even if no row has them."""
        import pyarrow as pa

        numbers = _is_numeric(_plain(train).type)
        counts = {found["values"]: found["counts"] for found in as_text(name, train).value_counts().to_pylist()}
        if pa.types.is_dictionary(train.type):
            declared = pa.chunked_array([chunk.dictionary for chunk in train.chunks]).unique()
            counts = dict.fromkeys(as_text(name, declared).drop_null().to_pylist(), 0) | counts
        ranked = sorted(counts, key=lambda value: -counts[value]) if len(counts) > MANY else list(counts)
        return cls(name, tuple(ranked[:MANY]), numbers)

    @property
    def width(self) -> int:
        """How many numbers it becomes."""
        return len(self.values)

    def encode(self, column: Any) -> np.ndarray:
        """A flag for the value of each row, (N, width); none where training had not seen that value."""
        from sklearn.preprocessing import OneHotEncoder

        text = as_text(self.name, column, self.numbers).to_numpy()[:, None]
        known = np.array([self.values], dtype=object)
        encoder = OneHotEncoder(categories=list(known), handle_unknown="ignore", sparse_output=False, dtype=np.float32)
        encoder.fit(known[:, :1])
        return encoder.transform(text)


Column = Measured | Categorical


def find_kind(name: str, column: Any, numbers: bool = False) -> tuple[str, str]:
    """The kind of a column, and why, where it is one to drop; known `numbers` are numeric."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    present = len(column) - column.null_count
    if pa.types.is_null(kind) or not present:
        return "drop", "it has no values"
    if numbers:
        return "numeric", ""
    if pa.types.is_boolean(kind):
        return "boolean", ""
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return "datetime", ""
    if pa.types.is_dictionary(kind):
        return "categorical", ""
    if pa.types.is_string(kind):
        different = pc.count_distinct(column).as_py()
        if different > MANY and different > present / 2:
            return "drop", "nearly every row has a value of its own"
        return "categorical", ""
    if _is_numeric(kind):
        return _kind_of_numbers(_numbers(name, column))
    return "drop", f"it holds values of type {kind}"


def as_text(name: str, column: Any, numbers: bool | None = None) -> Any:
    """A column as text, trimmed; where it holds `numbers` (found out unless given), 1 and 1.0 are the same."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = _plain(column)
    if _is_numeric(column.type) if numbers is None else numbers:
        different, places = np.unique(_numbers(name, column), return_inverse=True)
        texts = [None if np.isnan(value) else _shortest(value) for value in different.tolist()]
        return pa.chunked_array([pa.array(texts, pa.string()).take(pa.array(places))])
    return pc.utf8_trim_whitespace(column.cast(pa.string()))


def is_fractional(column: Any) -> bool:
    """Whether a column holds numbers that are not whole."""
    if not _is_numeric(_plain(column).type):
        return False
    values = _numbers("", column)
    return not np.array_equal(values, np.floor(values), equal_nan=True)


def _shortest(value: float) -> str:
    return f"{value:.0f}" if value == np.floor(value) else repr(value)


def _kind_of_numbers(values: np.ndarray) -> tuple[str, str]:
    values_seen = values[~np.isnan(values)]
    if not len(values_seen):
        return "drop", "it has no values"
    whole = np.array_equal(values_seen, np.floor(values_seen))
    if not whole:
        return "numeric", ""
    if len(values) > 2 and len(values_seen) == len(values) and (np.diff(values) == 1).all():
        return "drop", "it numbers the rows"
    if len(np.unique(values_seen[: 1000 * FEW])) > FEW:
        return "numeric", ""
    different = np.unique(values_seen)
    if np.isin(different, (0, 1)).all():
        return "boolean", ""
    return ("categorical" if len(different) <= min(FEW, len(values) // 10) else "numeric"), ""


def _values(
    name: str, kind: str, column: Any, parts: tuple[str, ...] | None = None
) -> tuple[tuple[str, ...], np.ndarray]:
    """The numbers of a measured column, (N, parts) in float64, NaN where it has gaps."""
    if kind == "datetime":
        wanted = parts or PARTS
        return wanted, _times(name, column, wanted)
    values = _numbers(name, column, truth=kind == "boolean")
    odd = ~(np.isnan(values) | (values == 0) | (values == 1))
    if kind == "boolean" and odd.any():
        row = int(odd.argmax())
        raise InputError(f"column {name!r} is boolean, but row {row} has {values[row]:g}")
    return ("",), values[:, None]


def _numbers(name: str, column: Any, truth: bool = False) -> np.ndarray:
    """A column in float64, NaN where it has gaps; text is parsed, as true and false where it is about `truth`."""
    import pyarrow as pa

    column = _plain(column)
    kind = column.type
    try:
        if truth and pa.types.is_string(kind):
            column = column.cast(pa.bool_())
        if pa.types.is_duration(kind) or pa.types.is_time(kind):
            column = column.cast(pa.int64() if kind.bit_width == 64 else pa.int32())
        values: np.ndarray = column.cast(pa.float64(), safe=False).to_numpy()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(f"column {name!r} should hold numbers: {str(error).splitlines()[0]}") from error
    infinite = np.isinf(values)
    if infinite.any():
        row = int(infinite.argmax())
        raise InputError(f"column {name!r} has {int(infinite.sum())} infinite values, the first in row {row}")
    return values


def _times(name: str, column: Any, parts: tuple[str, ...]) -> np.ndarray:
    import pyarrow as pa
    import pyarrow.compute as pc

    functions = {"weekday": pc.day_of_week}
    try:
        column = column.cast(pa.timestamp("us")) if not pa.types.is_timestamp(column.type) else column
        taken = [functions.get(part) or getattr(pc, part) for part in parts]
        return np.column_stack([take(column).cast(pa.float64()).to_numpy() for take in taken])
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(f"column {name!r} should hold dates or times: {str(error).splitlines()[0]}") from error


def _is_numeric(kind: Any) -> bool:
    import pyarrow as pa

    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_duration, pa.types.is_time)
    return any(test(kind) for test in tests)


def _plain(column: Any) -> Any:
    """A column without its dictionary, if it has one."""
    import pyarrow as pa

    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
