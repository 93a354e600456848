"""Columns that are fitted block by block: the same as from all rows at once."""

from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

from imix import InputError
from imix.data.tables import stream_fit
from imix.data.tables.columns import CategoricalColumn, NumericColumn, infer_kind
from imix.data.tables.stream_fit import ColumnStatistics
from tests.data.tables.helpers import people

N = 3000
RNG = np.random.default_rng(0)
NUMBERS = RNG.normal(50, 10, N)
COLUMNS = {
    **people(N),
    "normal": NUMBERS,
    "with missing": np.where(NUMBERS > 55, np.nan, NUMBERS),
    "few integers": RNG.integers(0, 5, N),
    "consecutive integers": np.arange(N) // 300,
    "many integers": RNG.integers(0, 50_000, N),
    "far from zero": 1e9 + RNG.normal(0, 1, N),
    "constant": np.full(N, 7.3),
    "constant date": [datetime(2020, 5, 17)] * N,
    "bits": RNG.integers(0, 2, N),
    "large integers": 2**60 + RNG.integers(0, 9, N),
    "seconds": [datetime(2020, 1, 1) + timedelta(seconds=int(s)) for s in RNG.integers(0, 10**7, N)],
    "dates as text": [str(datetime(2020, 1, 1) + timedelta(days=int(d))) for d in RNG.integers(0, 900, N)],
    "durations": pa.array(RNG.integers(0, 10**6, N), pa.duration("ms")),
    "skewed text": [f"word {word}" for word in RNG.zipf(1.5, N)],
    "declared": pa.DictionaryArray.from_arrays(RNG.integers(0, 2, N).astype(np.int8), ["b", "a", "never"]),
    "lists": [[1]] * N,
}


def fit_at_once(name, column):
    """The kind and the fitted column of all rows."""
    kind, reason = infer_kind(column)
    if kind == "drop":
        return reason
    is_categorical = kind == "categorical"
    return CategoricalColumn.fit(name, column) if is_categorical else NumericColumn.fit(name, kind, column, [column])


def fit_in_blocks(name, column, size=271, kind=None):
    """The same, block by block."""
    statistics = ColumnStatistics(name, kind)
    for start in range(0, len(column), size):
        statistics.add(column.slice(start, size))
    kind, reason = statistics.infer()
    return reason if kind == "drop" else statistics.fit([statistics])


def assert_equal(fitted, expected):
    """Assert that columns are equal, numbers up to rounding."""
    if not isinstance(expected, NumericColumn):
        assert fitted == expected
        return
    for name, value in vars(expected).items():
        if name in ("mean", "std", "median"):
            assert vars(fitted)[name] == pytest.approx(value, rel=1e-8, abs=1e-12), name
        else:
            assert vars(fitted)[name] == value, name


@pytest.mark.parametrize("name", COLUMNS)
def test_few_distinct_values_give_the_column_that_all_rows_give(name):
    column = pa.chunked_array([pa.array(COLUMNS[name], from_pandas=True)])
    assert_equal(fit_in_blocks(name, column), fit_at_once(name, column))


@pytest.mark.parametrize("name", COLUMNS)
def test_many_distinct_values_give_the_same_column_except_for_the_median(name, monkeypatch):
    monkeypatch.setattr(stream_fit, "MAX_DISTINCT", 400)
    monkeypatch.setattr(stream_fit, "SKETCH_SIZE", 256)
    monkeypatch.setattr(stream_fit, "MEDIAN_SAMPLE", 500)
    column = pa.chunked_array([pa.array(COLUMNS[name], from_pandas=True)])
    fitted, expected = fit_in_blocks(name, column), fit_at_once(name, column)
    if isinstance(expected, NumericColumn):
        assert np.abs(np.subtract(fitted.median, expected.median) / expected.std).max() < 0.15
        fitted = NumericColumn(**{**vars(fitted), "median": expected.median})
    elif name == "skewed text":  # rare categories are approximate
        assert set(expected.values[:50]) <= set(fitted.values) and fitted.width == expected.width
        return
    assert_equal(fitted, expected)


def test_the_median_of_a_few_rows_is_exact():
    column = pa.chunked_array([pa.array([1.0, None, 4.0, 2.0, 9.0, 4.0])])
    assert fit_in_blocks("x", column, size=2, kind="numeric").median == (4.0,)
    assert fit_in_blocks("x", column.slice(0, 4), size=2, kind="numeric").median == (2.0,)


def test_a_column_without_values_is_refused_if_its_kind_is_given():
    with pytest.raises(InputError, match="column 'x' has no values"):
        fit_in_blocks("x", pa.chunked_array([pa.array([None, None], pa.float64())]), kind="numeric")


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(stream_fit, "MAX_DISTINCT", 100)
    monkeypatch.setattr(stream_fit, "SKETCH_SIZE", 64)
    monkeypatch.setattr(stream_fit, "MEDIAN_SAMPLE", 50)
    numbers, words = ColumnStatistics("x", None), ColumnStatistics("y", None)
    for start in range(0, 20_000, 500):
        numbers.add(pa.chunked_array([np.random.default_rng(start).normal(size=500)]))
        words.add(pa.chunked_array([[f"{i // 3}" for i in range(start, start + 500)]]))
    assert numbers.distinct is None and numbers.moments.sample.size <= 2 * 50
    assert len(words.distinct) <= 100 and len(words.hashes) <= 64
    assert words.infer()[0] == "categorical"  # a third of the values are distinct


def test_missing_values_and_declared_kinds_are_kept_among_many_values(monkeypatch):
    monkeypatch.setattr(stream_fit, "MAX_DISTINCT", 100)
    text = [None, *(f"{i % 900}" for i in range(2000))]
    column = pa.chunked_array([text])
    assert None in fit_in_blocks("x", column, kind="categorical").values
    numbers = pa.chunked_array([[i * i % 1000 for i in range(2000)]])
    fitted, expected = fit_in_blocks("x", numbers, kind="categorical"), CategoricalColumn.fit("x", numbers)
    assert fitted.numeric and set(fitted.values[:10]) & set(expected.values)
