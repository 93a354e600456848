"""Columns of a table: infers the kind of a column, fits it to the training rows, and encodes new values as numbers.

A `NumericColumn` (kind numeric, boolean or datetime) becomes one scaled number, or one per part of a date. If training
rows had missing values, it also gets an indicator. A `CategoricalColumn` becomes a one-hot vector.
"""

import math
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from imix.data.media.references import AUDIO_SUFFIXES, IMAGE_SUFFIXES
from imix.data.tables.values import (
    MAX_EXACT_INTEGER,
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
ALMOST_UNIQUE, ROW_NUMBERS = "almost every value is unique", "row numbers"  # reasons to drop a column
MAX_SMALL_TABLE = 10  # rows; in a larger table, text that is different in every row is dropped
FILE_PATHS, BYTES = "paths of files", "bytes"  # reasons to drop a column
DATETIME_PARTS = ("year", "month", "day", "weekday", "hour", "minute", "second")

MEDIA_FILE = f"(?i)({'|'.join(map(re.escape, (*IMAGE_SUFFIXES, *AUDIO_SUFFIXES)))})$"


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
        values = numeric_values(kind, train, parts)
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
            scaling = np.concatenate([numeric_values(kind, column, parts) for column in scaling_columns], 1)
            scaling = scaling[:, ~np.isnan(scaling[0])]
            mean, std, _ = zip(*map(_mean_std_and_median, scaling), strict=True)
        return cls.scaled(name, kind, parts, (mean, std) if scaling_columns else None, median, has_missing)

    @classmethod
    def scaled(
        cls,
        name: str,
        kind: str,
        parts: tuple[str, ...],
        mean_and_std: tuple[tuple[float, ...], tuple[float, ...]] | None,
        median: tuple[float, ...],
        has_missing: bool,
    ) -> "NumericColumn":
        """Build a column from its statistics; without mean and std, or if it is boolean, it is not scaled."""
        if kind == "boolean" or mean_and_std is None:
            mean_and_std = (0.0,) * len(parts), (1.0,) * len(parts)
        if not all(map(math.isfinite, sum(mean_and_std, ()))):
            raise InputError(f"column {name!r} has values that are too large to be standardized")
        return cls(name, kind, parts, *mean_and_std, median, has_missing)

    def is_valid(self) -> bool:
        """Whether the values of a stored column can come from `fit`."""
        allowed = DATETIME_PARTS if self.kind == "datetime" else ("",)
        return (
            self.kind in ("numeric", "boolean", "datetime")
            and self.parts == tuple(part for part in allowed if part in self.parts) != ()
            and len(self.parts) == len(self.mean) == len(self.std) == len(self.median)
            and all(map(math.isfinite, self.mean + self.median))
            and all(0 < std < math.inf for std in self.std)
        )

    @property
    def width(self) -> int:
        """Number of features that encode the column."""
        return len(self.parts) + self.has_missing

    def encode(self, column: Any) -> np.ndarray:
        """Scale the values, fill missing ones with the median and append the indicator, if any: (width, N)."""
        values = numeric_values(self.kind, column, self.parts)
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
    def fit(
        cls, name: str, train: Any, decimal_marks: str = "", frequencies: np.ndarray | None = None
    ) -> "CategoricalColumn":
        """Collect the values of a column's training rows and the categories that its type declares.

        With `frequencies` (N,), each value stands for that many rows.
        """
        import pyarrow as pa

        numeric = is_numeric_column(train, decimal_marks)
        codes, names = to_codes(train, numeric)
        counts: dict[str | None, int] = {}
        if pa.types.is_dictionary(train.type):
            declared = pa.chunked_array([chunk.dictionary for chunk in train.chunks])
            counts = {value: 0 for value in to_codes(declared, numeric)[1] if value is not None}
        counts |= zip(names, np.bincount(codes, frequencies).tolist(), strict=True)
        if len(counts) > MAX_CATEGORIES:
            ranked = sorted(counts, key=lambda value: (value is not None, -counts[value]))  # None is always kept
            counts = dict.fromkeys(ranked[:MAX_CATEGORIES], 0)
        return cls(name, tuple(counts), numeric)

    def is_valid(self) -> bool:
        """Whether the values of a stored column can come from `fit`."""
        return 0 < len(self.values) == len(set(self.values))

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


def infer_kind(column: Any, all_numeric: bool = False, frequencies: np.ndarray | None = None) -> tuple[str, str]:
    """Infer the kind of a column, and the reason if it is "drop"; with `all_numeric`, numbers are always "numeric".

    With `frequencies` (N,), the column has distinct values, each of which stands for that many rows.
    """
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
            # As floats, large integers would coincide. An offset of 2 or -2 keeps them from looking like booleans.
            column = pc.subtract(column, pa.scalar(lowest - (2 if lowest > 0 else -2), arrow_type))
        n_rows = len(column) if frequencies is None else int(frequencies.sum())
        return _infer_kind_of_numbers(to_numbers(column), all_numeric, n_rows)
    if pa.types.is_binary(arrow_type) or pa.types.is_large_binary(arrow_type):
        return "drop", BYTES
    if not is_text(arrow_type):
        return "drop", f"type {arrow_type} is not supported"
    trimmed = trim(column)
    text = trimmed.drop_null()
    n_present = len(text) if frequencies is None else int(frequencies[trimmed.is_valid().to_numpy()].sum())
    if not len(text):
        return "drop", "no values"
    try:
        to_datetime_parts(text, DATETIME_PARTS[:1])
    except InputError:
        # The first values usually decide, without a pass over the whole column.
        if all(pc.all(pc.match_substring_regex(part, MEDIA_FILE)).as_py() for part in (text[:1000], text)):
            return "drop", FILE_PATHS
        n_distinct = pc.count_distinct(text).as_py()
        if is_almost_unique(n_distinct, n_present):
            return "drop", ALMOST_UNIQUE
        return "categorical", ""
    return "datetime", ""


def is_almost_unique(n_distinct: float, n_present: int) -> bool:
    """Whether text is dropped because it identifies rows."""
    is_unique = n_distinct == n_present > MAX_SMALL_TABLE
    return n_distinct > n_present / 2 and (n_distinct > MAX_CATEGORIES or is_unique)


def _infer_kind_of_numbers(values: np.ndarray, all_numeric: bool, n_rows: int) -> tuple[str, str]:
    present = values[~np.isnan(values)]
    if not len(present):
        return "drop", "no values"
    if all_numeric or has_fractions(present):
        return "numeric", ""
    if n_rows > 2 and len(present) == n_rows and (np.diff(values) == 1).all():
        return "drop", ROW_NUMBERS
    if len(np.unique(present[: 1000 * MAX_INTEGER_CATEGORIES])) > MAX_INTEGER_CATEGORIES:
        return "numeric", ""
    distinct = np.unique(present)
    if np.isin(distinct, (0, 1)).all():
        return "boolean", ""
    is_categorical = len(distinct) <= min(MAX_INTEGER_CATEGORIES, n_rows // 10)
    return ("categorical" if is_categorical else "numeric"), ""


def numeric_values(kind: str, column: Any, parts: tuple[str, ...]) -> np.ndarray:
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
    return mean, std_or_one(mean, std, len(values)), series.median()


def std_or_one(mean: float, std: float, n: int) -> float:
    """Return the standard deviation of n numbers, or 1 if they are equal up to rounding."""
    rounding = n * sys.float_info.epsilon
    is_constant = std * std <= rounding * std * std + rounding * mean * rounding * mean  # as in scikit-learn
    return 1.0 if is_constant else std
