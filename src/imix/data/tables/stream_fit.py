"""Fits the columns of a streamed table, in one pass over its blocks and in bounded memory.

If a column has at most `MAX_DISTINCT` distinct values, they are counted, and the result is exact. If it has more:

- Numbers and dates: mean and standard deviation are exact up to rounding. The median, which replaces missing values, is
  that of `MEDIAN_SAMPLE` or more evenly spaced rows.
- Text: the number of distinct values is estimated (to about 2%), and rare values are discarded.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from imix.data.tables.columns import (
    ALMOST_UNIQUE,
    DATETIME_PARTS,
    FILE_PATHS,
    ROW_NUMBERS,
    CategoricalColumn,
    Column,
    NumericColumn,
    infer_kind,
    is_almost_unique,
    numeric_values,
    std_or_one,
)
from imix.data.tables.values import decode_dictionary, is_numeric_type, is_text, to_numbers, trim
from imix.errors import InputError

MAX_DISTINCT = 50_000  # distinct values of a column that are counted
MEDIAN_SAMPLE = 50_000
SKETCH_SIZE = 4096  # number of smallest hashes, from which the number of distinct values is estimated


class TypeConflict(Exception):
    """The blocks of a text file have different types, so the column must be read as text."""


class Moments:
    """Mean, squared deviations, range and median of numbers (P, N) without missing values."""

    def __init__(self, n_parts: int) -> None:
        self.count, self.stride = 0, 1
        self.mean, self.squares = np.zeros(n_parts), np.zeros(n_parts)
        self.low, self.high = np.full(n_parts, np.inf), np.full(n_parts, -np.inf)
        self.sample = np.empty((n_parts, 0))  # every `stride`-th number

    def add(self, values: np.ndarray, frequencies: np.ndarray | None = None) -> None:
        """Add values (P, N), each of which stands for `frequencies` (N,) rows."""
        if not values.shape[1]:
            return
        ends = np.arange(1, values.shape[1] + 1) if frequencies is None else np.cumsum(frequencies)
        n = int(ends[-1])
        sampled = np.arange(-self.count % self.stride, n, self.stride)
        self.sample = np.append(self.sample, values[:, np.searchsorted(ends, sampled, "right")], axis=1)
        while self.sample.shape[1] > 2 * MEDIAN_SAMPLE:
            self.sample, self.stride = self.sample[:, ::2], 2 * self.stride
        mean = np.average(values, axis=1, weights=frequencies)
        squares = np.average((values - mean[:, None]) ** 2, axis=1, weights=frequencies) * n
        self.merge(n, mean, squares)
        self.low, self.high = np.minimum(self.low, values.min(1)), np.maximum(self.high, values.max(1))

    def merge(self, n: int, mean: np.ndarray, squares: np.ndarray) -> None:
        """Add n numbers by their mean and the sum of their squared deviations from it."""
        total, delta = self.count + n, mean - self.mean
        self.squares = self.squares + squares + delta**2 * (self.count * n / total)
        self.mean, self.count = self.mean + delta * (n / total), total

    def mean_and_std(self, parts: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return the mean and standard deviation of these parts."""
        mean, std = self.mean[parts], np.sqrt(self.squares[parts] / self.count)
        return tuple(mean.tolist()), tuple(
            std_or_one(m, s, self.count) for m, s in zip(mean.tolist(), std.tolist(), strict=True)
        )


class ColumnStatistics:
    """What `Table.fit` needs to know about a column.

    Parameters
    ----------
    name : str
        Name of the column.
    kind : str, optional
        Its kind, if it is known.
    decimal_marks : str
        As in `Frame`.
    """

    def __init__(self, name: str, kind: str | None, decimal_marks: str = "") -> None:
        self.name, self.kind, self.decimal_marks = name, kind, decimal_marks
        self.reason = "dropped by the user" if kind == "drop" else ""
        self.is_inferred, self.is_declared = kind is None, False
        self.rows, self.n_missing = 0, 0  # n_missing is counted with `moments` only
        self.type: Any = None
        self.distinct: Any = None  # pyarrow.ChunkedArray of values; `frequencies` are the rows that have each of them
        self.frequencies = np.empty(0, np.int64)
        self.hashes: np.ndarray | None = None  # smallest hashes of text with too many values to count
        self.moments: Moments | None = None  # of numbers or dates with too many values to count
        self.last_row_number: float | None = None  # NaN if the column has other values

    def add(self, column: Any) -> None:
        """Add the rows of a block."""
        import pyarrow as pa

        if self.kind == "drop":
            return
        if pa.types.is_dictionary(column.type):
            self.kind, self.is_inferred, self.is_declared = self.kind or "categorical", False, True
            self._count(pa.concat_arrays([chunk.dictionary for chunk in column.chunks]), 0)
            column = decode_dictionary(column)
        column = self._common_type(column)
        self.rows += len(column)
        if self.is_inferred and not _is_supported(column.type):
            self.kind, self.reason = infer_kind(column)
        elif self.moments is not None or (_has_many_values(column) and self._start_moments(column)):
            self._add_numbers(numeric_values(self.kind or "", column, self.parts))
        else:
            if pa.types.is_floating(column.type) and self.kind != "categorical":
                to_numbers(column)  # raises an error that names the row if a value is infinite
            counted = column.value_counts()
            self._count(counted.field("values"), counted.field("counts").to_numpy())
            if len(self.distinct) > MAX_DISTINCT and not self._start_moments(self.distinct):
                self._forget_rare_values()

    @property
    def parts(self) -> tuple[str, ...]:
        """Parts of a date that are encoded; one empty part for other kinds."""
        return DATETIME_PARTS if self.kind == "datetime" else ("",)

    def infer(self) -> tuple[str, str]:
        """Return the kind of the column, and the reason if it is "drop"."""
        if self.is_inferred and self.moments is not None and not np.isnan(self.last_row_number or 0.0):
            return "drop", ROW_NUMBERS
        if self.is_inferred and self.hashes is not None:
            if (inferred := infer_kind(self.distinct)) == ("drop", FILE_PATHS):
                return inferred
            missing = trim(self.distinct).is_null().to_numpy()
            n_present = self.rows - int(self.frequencies[missing].sum())
            n_distinct = (SKETCH_SIZE - 1) * 2.0**64 / float(self.hashes[-1])
            return ("drop", ALMOST_UNIQUE) if is_almost_unique(n_distinct, n_present) else ("categorical", "")
        if self.kind is None:
            self.kind, self.reason = infer_kind(self.distinct, frequencies=self.frequencies)
        return self.kind, self.reason

    def fit(self, scaling: Sequence["ColumnStatistics"]) -> Column:
        """Return the fitted column, scaled by the rows of `scaling` together; `infer` must have been called."""
        kind = self.kind or "categorical"
        if kind == "categorical":
            # As in a table in memory, missing values come after the categories that the type declares.
            order = self.distinct.is_null().to_numpy().argsort(kind="stable") if self.is_declared else slice(None)
            values = self.distinct.take(order) if self.is_declared else self.distinct
            return CategoricalColumn.fit(self.name, values, self.decimal_marks, self.frequencies[order])
        moments, median, has_missing = self._numbers()
        if not moments.count:
            raise InputError(f"column {self.name!r} has no values; exclude it with `columns={{{self.name!r}: 'drop'}}`")
        varying = np.flatnonzero(moments.high > moments.low) if kind == "datetime" else np.array([0])
        varying = varying if len(varying) else np.array([0])
        parts, total = tuple(self.parts[i] for i in varying), Moments(len(self.parts))
        for statistics in scaling:
            part = statistics._numbers()[0]
            total.merge(part.count, part.mean, part.squares)
        scale = total.mean_and_std(varying) if scaling else None
        return NumericColumn.scaled(self.name, kind, parts, scale, tuple(median[varying].tolist()), has_missing)

    def _common_type(self, column: Any) -> Any:
        """Convert a block of a text file, whose type is inferred from the block, to a type that fits all blocks."""
        import pyarrow as pa

        before, now = self.type, column.type
        if before is None or pa.types.is_null(before) or (pa.types.is_integer(before) and pa.types.is_floating(now)):
            self.type = now
        elif pa.types.is_timestamp(before) and pa.types.is_timestamp(now):
            self.type = before if before == now else pa.timestamp("us")
        elif not (
            before == now or pa.types.is_null(now) or (pa.types.is_floating(before) and pa.types.is_integer(now))
        ):
            raise TypeConflict(self.name)
        if self.distinct is not None and self.distinct.type != self.type:
            self.distinct = self.distinct.cast(self.type, safe=False)  # rounds large integers if others have fractions
        return column if now == self.type else column.cast(self.type, safe=False)

    def _start_moments(self, column: Any) -> bool:
        """Collect numbers instead of distinct values from now on, unless `column` shows that this is text."""
        if self.hashes is not None:
            return False
        kind = self.kind or ("numeric" if is_numeric_type(column.type) else infer_kind(column)[0])
        if kind not in ("numeric", "datetime", "boolean"):
            return False
        self.kind, self.moments = kind, Moments(len(DATETIME_PARTS) if kind == "datetime" else 1)
        if self.distinct is not None:
            self._add_numbers(numeric_values(kind, self.distinct, self.parts), self.frequencies)
        self.distinct = None
        return True

    def _add_numbers(self, values: np.ndarray, frequencies: np.ndarray | None = None) -> None:
        assert self.moments is not None
        if len(values) == 1 and values.size:
            first = values[0, 0] - 1 if self.last_row_number is None else self.last_row_number
            is_row_numbers = (np.diff(values[0], prepend=first) == 1).all() and (
                frequencies is None or frequencies.max() == 1
            )
            self.last_row_number = float(values[0, -1]) if is_row_numbers else np.nan
        else:
            self.last_row_number = np.nan
        missing = np.isnan(values[0])
        if missing.any():
            self.n_missing += int(missing.sum() if frequencies is None else frequencies[missing].sum())
            values, frequencies = values[:, ~missing], None if frequencies is None else frequencies[~missing]
        self.moments.add(values, frequencies)

    def _numbers(self) -> tuple[Moments, np.ndarray, bool]:
        """Return the moments, the median (P,), and whether values are missing."""
        if self.moments is not None:
            return self.moments, np.median(self.moments.sample, axis=1), self.n_missing > 0
        values, moments = numeric_values(self.kind or "", self.distinct, self.parts), Moments(len(self.parts))
        present = ~np.isnan(values[0])
        values, frequencies = values[:, present], self.frequencies[present]
        moments.add(values, frequencies)
        return moments, _weighted_median(values, frequencies), not present.all()

    def _count(self, values: Any, frequencies: Any) -> None:
        """Add values, and how often they occur; `distinct` stays in the order of their first occurrence."""
        import pyarrow as pa

        weights = np.append(self.frequencies, np.broadcast_to(frequencies, len(values)))
        chunks = [values] if self.distinct is None else [*self.distinct.chunks, values]
        encoded = pa.chunked_array(chunks).combine_chunks().dictionary_encode("encode")
        self.distinct = pa.chunked_array([encoded.dictionary])
        self.frequencies = np.bincount(encoded.indices.to_numpy(), weights, len(encoded.dictionary)).astype(np.int64)

    def _forget_rare_values(self) -> None:
        """Keep missing and the most frequent values, and the smallest hashes of all values."""
        import polars as pl

        values = trim(self.distinct) if is_text(self.type) else self.distinct
        if self.is_inferred:
            hashes: Any = pl.Series(values.drop_null()).hash().to_numpy()
            self.hashes = np.union1d(hashes if self.hashes is None else self.hashes, hashes)[:SKETCH_SIZE]
        ranks = np.where(values.is_null().to_numpy(), np.inf, self.frequencies)
        keep = np.sort(np.argsort(-ranks, kind="stable")[: MAX_DISTINCT // 2])
        self.distinct, self.frequencies = self.distinct.take(keep), self.frequencies[keep]


def _weighted_median(values: np.ndarray, frequencies: np.ndarray) -> np.ndarray:
    """Return the median of each row of values (P, N), each of which stands for `frequencies` (N,) rows."""
    if not values.shape[1]:
        return np.full(len(values), np.nan)
    order = values.argsort(axis=1)
    ends = frequencies[order].cumsum(axis=1)
    n = int(frequencies.sum())
    middle = [(ends > i).argmax(axis=1) for i in ((n - 1) // 2, n // 2)]
    ordered = np.take_along_axis(values, order, axis=1)
    return np.mean([ordered[np.arange(len(values)), i] for i in middle], axis=0)


def _has_many_values(column: Any) -> bool:
    """Whether the first rows show that there are too many values to count."""
    import pyarrow.compute as pc

    return len(column) > MAX_DISTINCT and pc.count_distinct(column.slice(0, 4 * MAX_DISTINCT)).as_py() > MAX_DISTINCT


def _is_supported(arrow_type: Any) -> bool:
    import pyarrow as pa

    other = (pa.types.is_null, pa.types.is_boolean, pa.types.is_timestamp, pa.types.is_date)
    return is_text(arrow_type) or is_numeric_type(arrow_type) or any(test(arrow_type) for test in other)
