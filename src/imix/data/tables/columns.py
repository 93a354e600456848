"""Columns of a table: infers the kind of a column, fits it to the training rows, and encodes new values as numbers.

A `NumericColumn` (kind numeric, boolean or datetime) becomes one scaled number, or one per part of a date. If training
rows had missing values, it also gets an indicator. A `CategoricalColumn` becomes a one-hot vector.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from imix.data.tables.values import (
    has_fractions,
    is_numeric_column,
    is_numeric_type,
    is_text,
    to_codes,
    to_datetime_parts,
    to_numbers,
    trim,
)
from imix.errors import InputError

MAX_INTEGER_CATEGORIES = 10  # integers with at most this many distinct values (and n / 10) are categorical
MAX_CATEGORIES = 100  # a categorical column keeps this many of its most frequent values
MAX_EXACT_INTEGER = 2**53  # float64 represents all integers up to this one
DATETIME_PARTS = ("year", "month", "day", "weekday", "hour", "minute", "second")


@dataclass(frozen=True)
class NumericColumn:
    """A fitted column of numbers, booleans or dates. `parts` are the parts of a date that are encoded."""

    name: str
    kind: str
    parts: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    median: tuple[float, ...]
    has_missing: bool

    @classmethod
    def fit(cls, name: str, kind: str, train: Any, scaling_columns: Sequence[Any]) -> "NumericColumn":
        """Fit to a column's training rows; mean and std are those of the `scaling_columns` together.

        Booleans are not scaled. Of a date, the parts that vary are kept.
        """
        parts: tuple[str, ...] = DATETIME_PARTS if kind == "datetime" else ("",)
        values = _numeric_values(kind, train, parts)
        present = ~np.isnan(values[0])
        if not present.any():
            raise InputError(f"column {name!r} has no values; exclude it with `columns={{{name!r}: 'drop'}}`")
        has_missing = not bool(present.all())
        values = values[:, present] if has_missing else values
        if kind == "datetime":
            varying = np.flatnonzero(np.ptp(values, axis=1) > 0).tolist() or [0]
            parts, values = tuple(DATETIME_PARTS[i] for i in varying), values[varying]
        mean, std, median = zip(*map(_mean_std_and_median, values), strict=True)
        if len(scaling_columns) > 1:
            scaling = np.concatenate([_numeric_values(kind, column, parts) for column in scaling_columns], 1)
            scaling = scaling[:, ~np.isnan(scaling[0])]
            mean, std, _ = zip(*map(_mean_std_and_median, scaling), strict=True)
        if kind == "boolean" or not scaling_columns:
            mean, std = (0.0,) * len(parts), (1.0,) * len(parts)
        if not all(map(math.isfinite, mean + std)):
            raise InputError(f"column {name!r} has values that are too large to be standardized")
        return cls(name, kind, parts, mean, std, median, has_missing)

    @property
    def width(self) -> int:
        """Number of features that encode the column."""
        return len(self.parts) + self.has_missing

    def encode(self, column: Any) -> np.ndarray:
        """Scale the values, fill missing ones with the median and append the indicator, if any: (width, N)."""
        values = _numeric_values(self.kind, column, self.parts)
        median, mean, std = (np.array(each)[:, None] for each in (self.median, self.mean, self.std))
        missing = np.isnan(values)
        if missing.any():
            values = np.where(missing, median, values)
        values = values - mean
        values /= std
        scaled = values.astype(np.float32)
        finite = np.isfinite(scaled)
        if not finite.all():
            row = int((~finite).any(0).argmax())
            raise InputError(f"column {self.name!r} has values that are too large, the first in row {row}")
        return np.concatenate([scaled, missing[:1]], dtype=np.float32) if self.has_missing else scaled


@dataclass(frozen=True)
class CategoricalColumn:
    """A fitted column of categories: its values, including None if training rows had missing values.

    In a `numeric` column the values are numbers, so that 1 and 1.0 are the same category.
    """

    name: str
    values: tuple[str | None, ...]
    numeric: bool
    kind: str = "categorical"

    @classmethod
    def fit(cls, name: str, train: Any, decimal_marks: str = "") -> "CategoricalColumn":
        """Collect the values of a column's training rows and the categories that its type declares."""
        import pyarrow as pa

        numeric = is_numeric_column(train, decimal_marks)
        codes, names = to_codes(train, numeric)
        counts: dict[str | None, int] = {}
        if pa.types.is_dictionary(train.type):
            declared = pa.chunked_array([chunk.dictionary for chunk in train.chunks])
            counts = {value: 0 for value in to_codes(declared, numeric)[1] if value is not None}
        counts |= zip(names, np.bincount(codes).tolist(), strict=True)
        if len(counts) > MAX_CATEGORIES:
            ranked = sorted(counts, key=lambda value: (value is not None, -counts[value]))  # None is always kept
            counts = dict.fromkeys(ranked[:MAX_CATEGORIES], 0)
        return cls(name, tuple(counts), numeric)

    @property
    def width(self) -> int:
        """Number of features that encode the column."""
        return len(self.values)

    def encode(self, column: Any) -> np.ndarray:
        """Positions (N,) of the ones in the one-hot vectors; -1 for a value that was not seen in training."""
        codes, names = to_codes(column, self.numeric)
        index = {value: i for i, value in enumerate(self.values)}
        return np.array([index.get(name, -1) for name in names])[codes]


Column = NumericColumn | CategoricalColumn


def infer_kind(column: Any, all_numeric: bool = False) -> tuple[str, str]:
    """Infer the kind of a column, and the reason if it is "drop"; with `all_numeric`, numbers are always "numeric"."""
    import pyarrow as pa
    import pyarrow.compute as pc

    arrow_type = column.type
    if pa.types.is_null(arrow_type) or column.null_count == len(column):
        return "drop", "no values"
    if pa.types.is_boolean(arrow_type):
        return "boolean", ""
    if pa.types.is_timestamp(arrow_type) or pa.types.is_date(arrow_type):
        return "datetime", ""
    if pa.types.is_dictionary(arrow_type):
        return "categorical", ""
    if is_numeric_type(arrow_type):
        if pa.types.is_integer(arrow_type) and abs(lowest := pc.min(column).as_py()) >= MAX_EXACT_INTEGER:
            column = pc.subtract(column, pa.scalar(lowest, arrow_type))  # as floats, large integers would coincide
        return _infer_kind_of_numbers(to_numbers(column), all_numeric)
    if not is_text(arrow_type):
        return "drop", f"type {arrow_type} is not supported"
    text = trim(column).drop_null()
    if not len(text):
        return "drop", "no values"
    try:
        to_datetime_parts(text, DATETIME_PARTS[:1])
    except InputError:
        n_distinct = pc.count_distinct(text).as_py()
        if n_distinct > MAX_CATEGORIES and n_distinct > len(text) / 2:
            return "drop", "almost every value is unique"
        return "categorical", ""
    return "datetime", ""


def _infer_kind_of_numbers(values: np.ndarray, all_numeric: bool) -> tuple[str, str]:
    present = values[~np.isnan(values)]
    if not len(present):
        return "drop", "no values"
    if all_numeric or has_fractions(present):
        return "numeric", ""
    if len(values) > 2 and len(present) == len(values) and (np.diff(values) == 1).all():
        return "drop", "row numbers"
    if len(np.unique(present[: 1000 * MAX_INTEGER_CATEGORIES])) > MAX_INTEGER_CATEGORIES:
        return "numeric", ""
    distinct = np.unique(present)
    if np.isin(distinct, (0, 1)).all():
        return "boolean", ""
    is_categorical = len(distinct) <= min(MAX_INTEGER_CATEGORIES, len(values) // 10)
    return ("categorical" if is_categorical else "numeric"), ""


def _numeric_values(kind: str, column: Any, parts: tuple[str, ...]) -> np.ndarray:
    """Values of a numeric, boolean or datetime column, (parts, N) in float64, with NaN for missing ones."""
    if kind == "datetime":
        return to_datetime_parts(column, parts)
    values = to_numbers(column, boolean=kind == "boolean")
    if kind == "boolean" and (invalid := ~(np.isnan(values) | (values == 0) | (values == 1))).any():
        raise InputError(f"row {int(invalid.argmax())} has {values[invalid][0]:g}; allowed are 0, 1, true and false")
    return values[None]


def _mean_std_and_median(values: np.ndarray) -> tuple[float, float, float]:
    """Statistics of numbers that are not missing; the standard deviation is 1 if they are equal up to rounding."""
    import polars as pl

    series: Any = pl.Series(values)
    mean, std = series.mean(), series.std(ddof=0)
    rounding = len(values) * sys.float_info.epsilon
    is_constant = std * std <= rounding * std * std + rounding * mean * rounding * mean  # as in scikit-learn
    return mean, 1.0 if is_constant else std, series.median()
