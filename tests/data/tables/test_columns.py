"""Columns: inferred kinds, categories, and missing values."""

from datetime import datetime

import numpy as np
import pandas
import pyarrow as pa
import pytest

from imix.data import Table, load
from imix.data.tables.columns import MAX_CATEGORIES
from imix.data.tables.frame import as_frame
from tests.data.tables.helpers import people


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([0, 1, 1, 0] * 10, "boolean"),
        ([0.0, 1.0, None, 0.0] * 10, "boolean"),
        ([1, 2, 3, None] * 10, "categorical"),
        ([1.5, 2.5] * 20, "numeric"),
        (list(range(0, 80, 2)), "numeric"),
        (["a", "b"] * 20, "categorical"),
        ([datetime(2020, 1, 1), None] * 20, "datetime"),
        (list(range(5, 45)), "drop"),
        ([None] * 40, "drop"),
        ([[1, 2]] * 40, "drop"),
        ([b"x"] * 40, "drop"),
        ([f"id {i}" for i in range(40)], "drop"),
        ([f"id {i}" for i in range(39)] + ["id 0"], "categorical"),
        ([f"{i:02}" for i in range(8)] * 5, "categorical"),
    ],
)
def test_inferred_kind_of_a_column(values, kind):
    frame = as_frame(pa.table({"x": pa.array(values), "other": np.arange(40) * 0.1}))
    kinds = {column.name: column.kind for column in Table.fit(frame).columns}
    assert kinds.get("x", "drop") == kind


def test_a_categorical_column_keeps_its_most_frequent_values():
    values = [f"rare {i}" for i in range(MAX_CATEGORIES)] + ["often"] * 500 + ["sometimes"] * 50
    table = Table.fit(as_frame(pa.table({"x": values})))
    assert table.width == MAX_CATEGORIES
    assert {"often", "sometimes"} <= set(table.columns[0].values)


def test_missing_values_are_a_category_even_if_there_are_too_many_categories():
    values = [f"v{i % (MAX_CATEGORIES + 20)}" for i in range(2000)] + [None]
    assert None in Table.fit(as_frame(pa.table({"x": values}))).columns[0].values


def test_declared_categories_are_kept_even_if_no_row_has_them():
    column = pandas.Categorical(["b", "b", "c"] * 5, categories=["a", "b", "c"])
    rows = load(pandas.DataFrame({"x": column})).train.inputs
    assert rows[:2].tolist() == [[0, 1, 0], [0, 1, 0]]


def test_an_unseen_category_is_encoded_as_zeros(people_csv):
    table = load(people_csv).table
    new = people(3) | {"city": ["Lima", "Rome", None]}
    rows = table.encode(as_frame(pa.table(new)))
    city = [i for i, cell in enumerate(table.cells) if table.columns[cell].name == "city"]
    assert rows[:, city].sum(1).tolist() == [0, 1, 1]


def test_missing_values_that_training_did_not_have_are_filled_with_the_median(people_csv):
    table = load(people_csv).table
    median = sorted(people()["income"])[59:61]
    rows = table.encode(as_frame(pa.table(people(2) | {"income": [None, sum(median) / 2]})))
    index = [table.columns[cell].name for cell in table.cells].index("income")
    assert rows[0, index] == rows[1, index]


def test_large_close_numbers_stay_distinct_after_scaling():
    """In float32 these would all be the same number."""
    rows = load(pandas.DataFrame({"t": 1e9 + np.arange(0, 40, 2), "u": np.arange(20) * 0.5})).train.inputs
    assert len(rows[:, 0].unique()) == 20


@pytest.mark.parametrize("start", [1_700_000_000_000_000_000, -(2**62), 2**63 + 5])
def test_kind_of_large_close_integers(start):
    order = np.random.default_rng(0).permutation(1000)
    column = np.array([start + int(number) for number in order], np.uint64 if start > 2**63 else np.int64)
    many = load(pandas.DataFrame({"id": column, "v": np.random.default_rng(1).normal(size=1000)}))
    assert many.table.kinds["id"] == "numeric"
    few = load(pandas.DataFrame({"id": column // 10**6 * 10**6 + column % 3, "v": order * 0.5}))
    assert few.table.kinds["id"] == "categorical"


@pytest.mark.parametrize(
    "values",
    [
        np.full(30, 2**64 - 1, np.uint64),
        np.full(30, -(2**63)),
        np.full(30, 2**60),
        np.array([2**64 - 2, 2**64 - 1] * 15, np.uint64),
        np.array([-(2**60), 1 - 2**60] * 15),
    ],
    ids=["constant uint64", "constant negative", "constant", "two uint64", "two negative"],
)
def test_columns_of_a_few_large_integers_are_not_booleans(values):
    frame = pandas.DataFrame({"id": values, "x": np.arange(30) % 7})
    data = load(frame)
    assert data.table.kinds["id"] in ("numeric", "categorical")
    assert data.train.inputs.isfinite().all()
