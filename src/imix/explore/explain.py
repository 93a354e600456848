"""The columns in which a group or a sample differs from the others, with robust effect sizes."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

import numpy as np

from imix.data import Data
from imix.data.tables.columns import CategoricalColumn, Column
from imix.data.tables.table import Table

MAX_COLUMNS = 500  # tables with more columns are explained by the first ones
NORMAL_MAD, NORMAL_IQR = 1.4826, 0.7413  # times MAD or IQR: the standard deviation of normal numbers
MISSING, UNSEEN = "missing", "not seen in training"
ROUNDING = 1e-7  # encoded values have float32 precision: decoded ones below this part of the mean are 0
MIN_Z = 2.5  # smallest robust z-score that is a reason
MIN_EFFECT = 0.2  # smallest effect, by convention, that is not negligible


@dataclass(frozen=True, eq=False)
class InputColumn:
    """The values of a column: numbers, NaN if missing; or, with `categories`, positions in `categories`."""

    name: str
    values: np.ndarray
    categories: tuple[str, ...] = ()

    @cached_property
    def scale(self) -> float:
        """A robust standard deviation of numbers; 0 if all are the same."""
        values = self.values[np.isfinite(self.values)]
        if not len(values):
            return 0.0
        low, median, high = np.percentile(values, [25, 50, 75])
        for scale in (NORMAL_MAD * np.median(np.abs(values - median)), NORMAL_IQR * (high - low), values.std()):
            if scale > 1e-6 * max(abs(low), abs(high), 1e-30):  # more than half of the values may be equal
                return float(scale)
        return 0.0


def input_columns(data: Data, encoded: np.ndarray) -> list[InputColumn]:
    """Return the columns of encoded rows (N, width) with their original scale and categories.

    Only rows of tables and arrays have columns.
    """
    if data.table is None:
        is_array = len(data.train.shape or ()) == 1
        return [InputColumn(str(i), encoded[:, i]) for i in range(encoded.shape[1])][:MAX_COLUMNS] if is_array else []
    return _decode(data.table, encoded)


def _decode(table: Table, encoded: np.ndarray) -> list[InputColumn]:
    columns, start = [], 0
    for column in table.columns[:MAX_COLUMNS]:
        columns += _decode_column(column, encoded[:, start : start + column.width])
        start += column.width
    return columns


def _decode_column(column: Column, x: np.ndarray) -> list[InputColumn]:
    if isinstance(column, CategoricalColumn):
        codes = np.where(x.any(1), x.argmax(1), column.width)
        names = [MISSING if value is None else str(value) for value in column.values]
        return [InputColumn(column.name, codes, (*names, UNSEEN))]
    missing = x[:, -1] > 0 if column.has_missing else np.zeros(len(x), bool)
    if column.kind == "boolean":
        codes = np.where(missing, 2, np.round(x[:, 0])).astype(int)
        return [InputColumn(column.name, codes, ("false", "true", MISSING))]
    parts = []
    for i, part in enumerate(column.parts):
        values = np.where(missing, np.nan, x[:, i].astype(np.float64) * column.std[i] + column.mean[i])
        values[np.abs(values) < ROUNDING * abs(column.mean[i])] = 0.0
        parts.append(InputColumn(f"{column.name} ({part})" if part else column.name, values))
    return parts


@dataclass(frozen=True)
class Difference:
    """How a column of a group differs from the other samples.

    Parameters
    ----------
    column : str
        Name of the column.
    category : str or None
        The category that is more or less frequent; None for numbers.
    inside, outside : float
        Median, or share of the category, in the group and among the other samples.
    effect : float
        Difference of the medians divided by the robust standard deviation of all values; for shares Cohen's h.
    """

    column: str
    category: str | None
    inside: float
    outside: float
    effect: float

    def __str__(self) -> str:
        if self.category is None:
            return f"{self.column} {self.inside:.5g} (others {self.outside:.5g})"
        return f"{self.column} = {self.category} {100 * self.inside:.0f}% (others {100 * self.outside:.0f}%)"


def differences(columns: Sequence[InputColumn], group: np.ndarray) -> list[Difference]:
    """Return what sets the samples of a mask (N,) apart from the others, largest effect first, one per column."""
    found = [_difference(column, group) for column in columns] if 0 < group.sum() < len(group) else []
    kept = [each for each in found if each is not None and abs(each.effect) >= MIN_EFFECT]
    return sorted(kept, key=lambda each: -abs(each.effect))


def _difference(column: InputColumn, group: np.ndarray) -> Difference | None:
    inside, outside = column.values[group], column.values[~group]
    if column.categories:
        n = len(column.categories)
        shares = np.bincount(inside, minlength=n) / len(inside), np.bincount(outside, minlength=n) / len(outside)
        effects = 2 * np.arcsin(np.sqrt(shares[0])) - 2 * np.arcsin(np.sqrt(shares[1]))  # Cohen's h
        top = int(np.abs(effects).argmax())
        return Difference(
            column.name, column.categories[top], float(shares[0][top]), float(shares[1][top]), float(effects[top])
        )
    scale, inside, outside = column.scale, inside[np.isfinite(inside)], outside[np.isfinite(outside)]
    if scale == 0 or not len(inside) or not len(outside):
        return None
    medians = float(np.median(inside)), float(np.median(outside))
    return Difference(column.name, None, *medians, (medians[0] - medians[1]) / scale)


def reasons(columns: Sequence[InputColumn], rows: np.ndarray, neighbors: np.ndarray, n: int = 3) -> list[str]:
    """Return what is unusual about `rows` (M,): extreme numbers and rare categories, by robust z-score.

    If no value is unusual, return the columns in which the row differs most from its `neighbors` (M, k).
    """
    if not columns:
        return [""] * len(rows)
    scores = np.stack([_z_scores(column)[rows] for column in columns])  # (columns, M)
    texts = []
    for i, row in enumerate(rows):
        top = [c for c in np.argsort(-np.abs(scores[:, i]), kind="stable")[:n] if abs(scores[c, i]) >= MIN_Z]
        if top:
            texts.append("; ".join(_describe(columns[c], row, scores[c, i]) for c in top))
        else:
            texts.append(_unlike_neighbors(columns, row, neighbors[i], n))
    return texts


def _z_scores(column: InputColumn) -> np.ndarray:
    """Robust z-scores (N,) of numbers; for a category, the z-score of an equally rare normal value."""
    if column.categories:
        counts = np.bincount(column.values, minlength=len(column.categories))
        shares = np.clip(counts / len(column.values), 1e-12, 1)
        return np.array([-NormalDist().inv_cdf(share / 2) for share in shares])[column.values]
    scale = column.scale
    return (
        np.nan_to_num((column.values - np.nanmedian(column.values)) / scale) if scale else np.zeros(len(column.values))
    )


def _describe(column: InputColumn, row: int, score: float) -> str:
    if column.categories:
        share = (column.values == column.values[row]).mean()
        return f"{column.name} = {column.categories[column.values[row]]} ({100 * share:.2g}% of rows)"
    return f"{column.name} = {column.values[row]:.5g} (z {score:+.1f})"


def _unlike_neighbors(columns: Sequence[InputColumn], row: int, neighbors: np.ndarray, n: int) -> str:
    """Name the columns in which a row differs most from its nearest neighbors."""
    gaps = []
    for column in columns:
        value, others = column.values[row], column.values[neighbors]
        if column.categories:
            gaps.append(float((others != value).mean()))
        else:
            scale = column.scale
            gaps.append(abs(float(np.nan_to_num(value - np.nanmedian(others)))) / scale if scale else 0.0)
    top = [columns[c].name for c in np.argsort(-np.array(gaps), kind="stable")[:n] if gaps[c] > 0]
    return f"unusual combination; differs most from its neighbors in {', '.join(top)}" if top else "unusual combination"
