"""Table: fitting and encoding against a plain loop, scaling, JSON, and errors that name the column."""

import json
import math

import numpy as np
import pandas
import pyarrow as pa
import pytest
import torch

import imix
from imix import DataSettings, InputError
from imix.data import Table, load
from imix.data.tables.frame import as_frame
from tests.data.tables.helpers import people


def expected_rows(train, rows):
    """Encode rows with plain loops: the scaled numeric columns, then the one-hot vectors of categorical columns."""

    def scale(value, values):
        mean = sum(values) / len(values)
        return (value - mean) / math.sqrt(sum((v - mean) ** 2 for v in values) / len(values))

    def median(values):
        s, n = sorted(values), len(values)
        return (s[(n - 1) // 2] + s[n // 2]) / 2

    parts = [lambda t: t.year, lambda t: t.month, lambda t: t.day, lambda t: t.weekday()]
    ages = [age for age in train["age"] if age is not None]
    categories = {
        name: [v for i, v in enumerate(train[name]) if v not in train[name][:i]] for name in ("city", "rooms")
    }
    encoded = []
    for i in range(len(rows["age"])):
        age = rows["age"][i]
        row = [scale(median(ages) if age is None else age, ages), float(age is None)]
        row += [scale(rows["income"][i], train["income"]), float(rows["smoker"][i])]
        row += [scale(part(rows["joined"][i]), [part(t) for t in train["joined"]]) for part in parts]
        row += [float(rows[name][i] == value) for name in ("city", "rooms") for value in categories[name]]
        encoded.append(row)
    return torch.tensor(encoded, dtype=torch.float64)


def test_encoding_matches_a_plain_loop(people_csv):
    data = load(people_csv, DataSettings(label="target"))
    expected = expected_rows(people(), people())
    torch.testing.assert_close(data.train.inputs.double(), expected, rtol=1e-6, atol=1e-6)


def test_new_rows_are_encoded_with_the_statistics_of_the_training_rows(people_csv):
    table = load(people_csv, DataSettings(label="target")).table
    new = people(50, seed=1)
    expected = expected_rows(people(), new)
    encoded = torch.from_numpy(table.encode(as_frame(pandas.DataFrame(new)))).double()
    torch.testing.assert_close(encoded, expected, rtol=1e-6, atol=1e-6)


def test_kinds_are_inferred_and_ignored_columns_are_listed_with_their_reason(people_csv):
    table = load(people_csv).table
    kinds = {column.name: column.kind for column in table.columns}
    assert kinds == {
        "age": "numeric",
        "income": "numeric",
        "smoker": "boolean",
        "joined": "datetime",
        "city": "categorical",
        "rooms": "categorical",
        "target": "categorical",
    }
    assert set(table.ignored) == {"row", "name", "empty"}
    assert "ignored 'name': almost every value is unique" in str(table)


def test_kinds_can_be_overridden(people_csv):
    data_settings = DataSettings(columns={"rooms": "numeric", "joined": "drop", "smoker": "categorical"})
    kinds = {column.name: column.kind for column in load(people_csv, data_settings).table.columns}
    assert (kinds["rooms"], kinds["smoker"], "joined" in kinds) == ("numeric", "categorical", False)


def test_test_rows_do_not_affect_the_fitted_table(people_csv, tmp_path):
    other = people(60, seed=5) | {"income": [1e6 + i for i in range(60)], "city": ["Bern"] * 60}
    pandas.DataFrame(other).to_csv(tmp_path / "test.csv", index=False)
    alone = load(people_csv, DataSettings(label="target"))
    both = load(people_csv, DataSettings(label="target", test=str(tmp_path / "test.csv")))
    assert both.table == alone.table and torch.equal(both.train.inputs, alone.train.inputs)
    assert len(both.test) == 60


def test_standardize_all_scales_by_training_and_test_rows(people_csv, tmp_path):
    pandas.DataFrame(people(60, seed=5)).to_csv(tmp_path / "test.csv", index=False)
    data = load(people_csv, DataSettings(test=str(tmp_path / "test.csv"), standardize="all"))
    rows = torch.cat([data.train.inputs, data.test.inputs]).double()
    index = [data.table.columns[cell].name for cell in data.table.cells].index("income")
    torch.testing.assert_close(rows[:, index].mean(), torch.tensor(0.0).double(), atol=1e-6, rtol=0)
    torch.testing.assert_close(rows[:, index].std(unbiased=False), torch.tensor(1.0).double(), atol=1e-6, rtol=0)
    unscaled = load(people_csv, DataSettings(standardize="none")).train.inputs[:, index]
    torch.testing.assert_close(unscaled.double(), torch.tensor(people()["income"]).double())


def test_standardize_all_names_the_column_that_the_test_rows_lack(people_csv, tmp_path):
    for change, message in [
        ({"income": "much"}, "column 'income' cannot be read as numeric: .*much"),
        ({"joined": None}, None),
        (None, r"test.csv has no column 'income'"),
    ]:
        frame = pandas.DataFrame(people(9))
        frame = frame.drop(columns="income") if change is None else frame.assign(**change)
        frame.to_csv(tmp_path / "test.csv", index=False)
        data_settings = DataSettings(test=str(tmp_path / "test.csv"), standardize="all")
        if message is None:
            assert len(load(people_csv, data_settings).test) == 9
        else:
            with pytest.raises(InputError, match=message):
                load(people_csv, data_settings)


def test_a_table_can_be_stored_as_json(people_csv):
    table = load(people_csv).table
    restored = Table.from_json(json.loads(json.dumps(table.to_json())))
    assert restored == table
    frame = as_frame(pa.table(people(30, seed=3)))
    assert np.array_equal(restored.encode(frame), table.encode(frame))


def test_groups_are_the_numeric_columns_and_each_categorical_column(people_csv):
    table = load(people_csv).table
    categories = [column.width for column in table.columns if column.kind == "categorical"]
    assert table.groups == (table.width - sum(categories), *categories)
    encoder = imix.encoders.build("mlp:16-16", (table.width,), table.groups)
    assert [layer.in_features for layer in encoder.layers[1].embeddings] == list(table.groups)


def test_mixup_mixes_all_columns_of_a_row_with_the_same_partner(people_csv):
    x = load(people_csv).train.inputs
    mixed, mix = imix.MixUp()(x)
    for i, (partner, lam) in enumerate(zip(mix.partner, mix.lam, strict=True)):
        torch.testing.assert_close(mixed[i], lam * x[i] + (1 - lam) * x[partner])


def test_empty_columns_of_new_rows_are_missing_values():
    table = load(pandas.DataFrame(people())).table
    empty = pandas.DataFrame(people(4)).assign(**dict.fromkeys(("age", "smoker", "city", "rooms", "joined"), np.nan))
    assert np.isfinite(table.encode(as_frame(empty))).all()


def test_values_too_large_for_float32_are_an_error():
    table = load(pandas.DataFrame({"v": [0.5, 1.5, 2.5, 4.5]})).table
    with pytest.raises(InputError, match="column 'v' has values that are too large, the first in row 1"):
        table.encode(as_frame(pandas.DataFrame({"v": [0.5, 1e300]})))
    with pytest.raises(InputError, match="column 'v' has values that are too large"):
        load(pandas.DataFrame({"v": [1e200, -1e200, 1e201]}))
    with pytest.raises(InputError, match="column 'v' has values that are too large"):
        load(pandas.DataFrame({"v": [1e39, 1.5, 7e39]}), DataSettings(standardize="none"))


def test_a_column_of_another_type_is_an_error_that_names_the_column(people_csv):
    table = load(people_csv).table
    for column, values, message in [
        ("age", ["old", "young"], "column 'age' cannot be read as numeric: .*young"),
        ("joined", ["soon", "later"], "column 'joined' cannot be read as datetime: 'soon' is not a valid date"),
        ("smoker", [0, 7], "column 'smoker' cannot be read as boolean: row 1 has 7; allowed are 0, 1"),
        (
            "income",
            [1.0, math.inf],
            "column 'income' cannot be read as numeric: it has 1 infinite values, the first in row 1",
        ),
    ]:
        with pytest.raises(InputError, match=message):
            table.encode(as_frame(pa.table(people(2) | {column: values})))


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("chruned", " (did you mean 'churned'?)"),
        ("CHURNED", " (did you mean 'churned'?)"),
        ("tota", " (did you mean 'Total' or 'total'?)"),
        ("color", ""),
    ],
)
def test_an_unknown_column_name_is_an_error_with_a_suggestion(name, suggestion):
    frame = pandas.DataFrame({f"c{i}": [0.5, 1.5] for i in range(10)} | {"Total": 1, "total": 2, "churned": [0, 1]})
    for data_settings in (DataSettings(label=name), DataSettings(columns={name: "drop"})):
        with pytest.raises(InputError) as error:
            load(frame, data_settings)
        assert f"the data has no column '{name}'{suggestion}; its columns are 'c0', " in str(error.value)
        assert str(error.value).endswith("and 3 more")


def test_a_table_whose_columns_have_one_value_each_is_refused():
    frame = pandas.DataFrame({"size": 32, "kind": "photo", "y": ["cat", "dog"] * 20})
    with pytest.raises(InputError, match=r"no column to learn from .'size': the same in every row; 'kind': the same"):
        load(frame, DataSettings(label="y"))
    assert load(frame.assign(x=range(0, 120, 3)), DataSettings(label="y")).train.shape == (3,)
