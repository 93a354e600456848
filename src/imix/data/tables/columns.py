"""Columns of a table: infers the kind of a column, fits it to the training rows, and encodes new values as numbers.

A `NumericColumn` (kind numeric, boolean or datetime) becomes one scaled number, or one per part of a date. If training
rows had missing values, it also gets an indicator. A `CategoricalColumn` becomes a one-hot vector. Both use
scikit-learn's StandardScaler and OneHotEncoder, and keep the fitted state as plain values for the run's JSON.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from imix.data.tables.values import (
    describe_bad_date,
    has_fractions,
    is_numeric_column,
    is_numeric_type,
    to_datetime_parts,
    to_numbers,
    to_text,
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
        from sklearn.preprocessing import StandardScaler

        parts: tuple[str, ...] = DATETIME_PARTS if kind == "datetime" else ("",)
        values = _numeric_values(kind, train, parts)
        present = ~np.isnan(values[:, 0])
        if not present.any():
            raise InputError(f"column {name!r} has no values; exclude it with `columns={{{name!r}: 'drop'}}`")
        if kind == "datetime":
            varying = np.flatnonzero(np.ptp(values[present], axis=0) > 0).tolist() or [0]
            parts, values = tuple(DATETIME_PARTS[i] for i in varying), values[:, varying]
        mean, std = np.zeros(len(parts)), np.ones(len(parts))
        if kind != "boolean" and scaling_columns:
            arrays = [values if column is train else _numeric_values(kind, column, parts) for column in scaling_columns]
            with np.errstate(all="ignore"):
                scaler = StandardScaler().fit(arrays[0] if len(arrays) == 1 else np.concatenate(arrays))
            mean, std = scaler.mean_, scaler.scale_
        if not (np.isfinite(mean).all() and np.isfinite(std).all()):
            raise InputError(f"column {name!r} has values that are too large to be standardized")
        median = np.median(values[present], axis=0)
        has_missing = not bool(present.all())
        return cls(name, kind, parts, tuple(mean.tolist()), tuple(std.tolist()), tuple(median.tolist()), has_missing)

    @property
    def width(self) -> int:
        """Number of features that encode the column."""
        return len(self.parts) + self.has_missing

    def encode(self, column: Any) -> np.ndarray:
        """Scale the values, fill missing ones with the median and append the indicator, if any: (N, width)."""
        from sklearn.preprocessing import StandardScaler

        values = _numeric_values(self.kind, column, self.parts)
        missing = np.isnan(values)
        scaler = StandardScaler().set_output(transform="default")  # whatever sklearn.set_config says
        scaler.mean_, scaler.scale_ = np.array(self.mean), np.array(self.std)
        scaler.var_, scaler.n_features_in_ = scaler.scale_**2, len(self.parts)
        scaled = scaler.transform(np.where(missing, self.median, values))
        return np.column_stack([scaled, missing[:, 0]]) if self.has_missing else scaled


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
        value_counts = to_text(train, numeric).value_counts().to_pylist()
        counts: dict[str | None, int] = {}
        if pa.types.is_dictionary(train.type):
            declared = pa.chunked_array([chunk.dictionary for chunk in train.chunks])
            counts = dict.fromkeys(to_text(declared, numeric).drop_null().to_pylist(), 0)
        counts |= {entry["values"]: entry["counts"] for entry in value_counts}
        if len(counts) > MAX_CATEGORIES:
            ranked = sorted(counts, key=lambda value: (value is not None, -counts[value]))  # None is always kept
            counts = dict.fromkeys(ranked[:MAX_CATEGORIES], 0)
        return cls(name, tuple(counts), numeric)

    @property
    def width(self) -> int:
        """Number of features that encode the column."""
        return len(self.values)

    def encode(self, column: Any) -> np.ndarray:
        """One-hot vectors of the rows, (N, width); a value that was not seen in training becomes zeros."""
        from sklearn.preprocessing import OneHotEncoder

        values = np.array([self.values], dtype=object)
        encoder = OneHotEncoder(categories=list(values), handle_unknown="ignore", sparse_output=False, dtype=np.float32)
        encoder.set_output(transform="default").fit(values[:, :1])  # whatever sklearn.set_config says
        return encoder.transform(to_text(column, self.numeric).to_numpy()[:, None])


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
    if not pa.types.is_string(arrow_type):
        return "drop", f"type {arrow_type} is not supported"
    text = to_text(column, numeric=False).drop_null()
    if not len(text):
        return "drop", "no values"
    try:
        to_datetime_parts(text, DATETIME_PARTS[:1])
    except pa.ArrowInvalid:
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
    """Values of a numeric, boolean or datetime column, (N, parts) in float64, with NaN for missing ones."""
    import pyarrow as pa

    if kind == "datetime":
        try:
            return to_datetime_parts(column, parts)
        except pa.ArrowInvalid as error:
            raise InputError(describe_bad_date(column)) from error
    values = to_numbers(column, boolean=kind == "boolean")
    invalid = ~(np.isnan(values) | (values == 0) | (values == 1))
    if kind == "boolean" and invalid.any():
        raise InputError(f"row {int(invalid.argmax())} has {values[invalid][0]:g}; allowed are 0, 1, true and false")
    return values[:, None]
