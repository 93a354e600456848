"""Explanations: effect sizes of groups and robust z-scores of rows, in the table's original units."""

import numpy as np
import polars
import pytest

import imix
from imix.explore.explain import differences, input_columns, reasons


def columns_of(frame: polars.DataFrame, **options):
    data = imix.data.load(frame, imix.DataSettings(**options))
    return {column.name: column for column in input_columns(data, data.train.inputs.numpy())}


def test_encoded_columns_are_decoded():
    frame = polars.DataFrame(
        {
            "age": [31.5, None, 45.0, 62.0],
            "city": ["Rome", "Oslo", None, "Rome"],
            "member": [True, False, None, True],
            "since": polars.Series(["2020-03-01", "2021-03-01", "2020-03-01", "2022-03-01"]).str.to_date(),
        }
    )
    columns = columns_of(frame)
    np.testing.assert_allclose(columns["age"].values, [31.5, np.nan, 45, 62], rtol=1e-6)
    assert [columns["city"].categories[code] for code in columns["city"].values] == ["Rome", "Oslo", "missing", "Rome"]
    member = columns["member"]
    assert [member.categories[code] for code in member.values] == ["true", "false", "missing", "true"]
    np.testing.assert_allclose(columns["since (year)"].values, [2020, 2021, 2020, 2022], rtol=1e-6)


def test_categories_that_training_did_not_have_are_named():
    train = imix.data.load(polars.DataFrame({"city": ["Rome", "Oslo"] * 3, "v": np.arange(6.0) / 2}))
    new = imix.data.load(polars.DataFrame({"city": ["Bern", "Oslo"], "v": [0.0, 1.0]}), table=train.table)
    city = next(column for column in input_columns(new, new.train.inputs.numpy()) if column.categories)
    assert [city.categories[code] for code in city.values] == ["not seen in training", "Oslo"]


def test_a_group_differs_by_medians_and_shares_largest_effect_first():
    rng = np.random.default_rng(0)
    group = np.arange(2000) < 500
    frame = polars.DataFrame(
        {
            "age": 10 * group + rng.normal(size=2000),
            "noise": rng.normal(size=2000),
            "city": np.where(group, "Rome", "Oslo"),
        }
    )
    found = differences(list(columns_of(frame).values()), group)
    assert [each.column for each in found] == ["age", "city"]
    inside, outside = np.median(frame["age"].to_numpy()[group]), np.median(frame["age"].to_numpy()[~group])
    assert (found[0].inside, found[0].outside) == pytest.approx((inside, outside), rel=1e-5)
    assert (found[1].category, found[1].inside, found[1].outside) == ("Rome", 1.0, 0.0)
    assert found[1].effect == pytest.approx(np.pi)  # Cohen's h of 100% and 0%
    assert str(found[1]) == "city = Rome 100% (others 0%)"
    assert differences(list(columns_of(frame).values()), np.ones(2000, bool)) == []


def test_one_extreme_value_does_not_change_an_effect():
    values = np.arange(100.0)
    group = values >= 50
    effects = []
    for last in (99.0, 1e9):
        values[-1] = last
        columns = columns_of(polars.DataFrame({"v": values + 0.5}))
        effects.append(differences(list(columns.values()), group)[0].effect)
    assert effects[0] == pytest.approx(effects[1], rel=0.05)


def test_reasons_are_extreme_numbers_rare_categories_or_unusual_combinations():
    rng = np.random.default_rng(0)
    age, city = rng.normal(size=400), np.where(rng.random(400) < 0.5, "Rome", "Oslo").astype(object)
    age[0], city[1] = 12.0, "Bern"
    age[2:], city[2] = np.where(city[2:] == "Rome", 1.5, -1.5) + 0.1 * age[2:], "Oslo"
    age[2] = 1.5
    columns = list(columns_of(polars.DataFrame({"age": age, "city": city})).values())
    neighbors = np.flatnonzero((np.arange(400) > 2) & (city == "Oslo"))[:5]
    first, second, third = reasons(columns, np.array([0, 1, 2]), neighbors[None].repeat(3, 0))
    assert first.startswith("age = 12 (z +")
    assert second == "city = Bern (0.25% of rows)"
    assert third == "unusual combination; differs most from its neighbors in age"


def test_images_have_no_columns():
    digits = imix.data.load("digits")
    assert input_columns(digits, digits.train.inputs.flatten(1).numpy()) == []


def test_a_zero_is_shown_as_zero_after_decoding():
    rng = np.random.default_rng(0)
    frame = polars.DataFrame({"shade": [0.0, *rng.normal(140, 37, 200)], "other": rng.normal(size=201)})
    answer = imix.outliers(None, frame)
    assert answer.frame["reason"][0].startswith("shade = 0 (z ")
