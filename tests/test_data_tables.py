"""Tables: kinds of columns, rows as numbers against a plain loop, files, labels, named tables, and what is wrong."""

import gzip
import json
import math
from datetime import datetime, timedelta

import numpy as np
import pandas
import polars
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

import imix
from imix import InputError, Reading, Settings
from imix.data import Table, csv_file, load, uci
from imix.data.columns import MANY
from imix.data.frame import as_frame

QUICK = Settings(epochs=2, batch_size=16, encoder="mlp:8-8", device="cpu")


def people(n=120, seed=0):
    """A table with every kind of column, gaps included, as a dict of lists."""
    rng = np.random.default_rng(seed)
    return {
        "row": list(range(n)),
        "name": [f"person {seed} {i}" for i in range(n)],
        "age": [None if i % 9 == 4 else float(a) for i, a in enumerate(rng.integers(18, 90, n))],
        "income": np.round(rng.lognormal(10, 1, n), 2).tolist(),
        "smoker": [bool(s) for s in rng.random(n) < 0.3],
        "city": [None if i % 11 == 3 else str(c) for i, c in enumerate(rng.choice(["Rome", "Oslo", "Łódź, PL"], n))],
        "rooms": rng.integers(1, 6, n).tolist(),
        "joined": [datetime(2020, 1, 1) + timedelta(days=int(d)) for d in rng.integers(0, 1500, n)],
        "empty": [None] * n,
        "target": [["lo", "mid", "hi"][i % 3] for i in range(n)],
    }


def expected_rows(train, rows):
    """The encoding as one would do it by hand: measured columns scaled in file order, then categories as flags."""

    def scale(value, values):
        mean = sum(values) / len(values)
        return (value - mean) / math.sqrt(sum((v - mean) ** 2 for v in values) / len(values))

    def median(values):
        s, n = sorted(values), len(values)
        return (s[(n - 1) // 2] + s[n // 2]) / 2

    parts = [lambda t: t.year, lambda t: t.month, lambda t: t.day, lambda t: t.weekday()]
    ages = [age for age in train["age"] if age is not None]
    known = {name: [v for i, v in enumerate(train[name]) if v not in train[name][:i]] for name in ("city", "rooms")}
    encoded = []
    for i in range(len(rows["age"])):
        age = rows["age"][i]
        row = [scale(median(ages) if age is None else age, ages), float(age is None)]
        row += [scale(rows["income"][i], train["income"]), float(rows["smoker"][i])]
        row += [scale(part(rows["joined"][i]), [part(t) for t in train["joined"]]) for part in parts]
        row += [float(rows[name][i] == value) for name in ("city", "rooms") for value in known[name]]
        encoded.append(row)
    return torch.tensor(encoded, dtype=torch.float64)


@pytest.fixture
def csv(tmp_path):
    path = tmp_path / "people.csv"
    pandas.DataFrame(people()).to_csv(path, index=False)
    return path


# --- rows as numbers -------------------------------------------------------------------------------------------------


def test_rows_are_encoded_as_by_hand(csv):
    data = load(csv, Reading(label="target"))
    expected = expected_rows(people(), people())
    torch.testing.assert_close(data.train.inputs.double(), expected, rtol=1e-6, atol=1e-6)


def test_new_rows_are_treated_as_the_training_rows_were(csv):
    table = load(csv, Reading(label="target")).table
    new = people(50, seed=1)
    expected = expected_rows(people(), new)
    found = torch.from_numpy(table.encode(as_frame(pandas.DataFrame(new)))).double()
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


def test_every_source_gives_the_same_rows(csv, tmp_path):
    table = pa.table(people())
    parquet.write_table(table, tmp_path / "people.parquet")
    expected = load(csv).train.inputs
    frames = (table, pandas.DataFrame(people()), polars.DataFrame(people()), polars.DataFrame(people()).lazy())
    for source in (tmp_path / "people.parquet", *frames):
        assert torch.equal(load(source).train.inputs, expected)


def test_kinds_are_found_out_and_what_is_left_out_is_said(csv):
    table = load(csv).table
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
    assert "without 'name': nearly every row has a value of its own" in str(table)


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
    ],
)
def test_the_kind_of_a_column(values, kind):
    frame = as_frame(pa.table({"x": pa.array(values), "other": np.arange(40) * 0.1}))
    found = {column.name: column.kind for column in Table.fit(frame).columns}
    assert found.get("x", "drop") == kind


def test_kinds_can_be_overridden(csv):
    reading = Reading(columns={"rooms": "numeric", "joined": "drop", "smoker": "categorical"})
    kinds = {column.name: column.kind for column in load(csv, reading).table.columns}
    assert (kinds["rooms"], kinds["smoker"], "joined" in kinds) == ("numeric", "categorical", False)


def test_categories_keep_their_most_frequent_values_up_to_a_number():
    values = [f"rare {i}" for i in range(MANY)] + ["often"] * 500 + ["sometimes"] * 50
    table = Table.fit(as_frame(pa.table({"x": values})))
    assert table.width == MANY
    assert {"often", "sometimes"} <= set(table.columns[0].values)


def test_categories_that_a_type_declares_are_kept_even_if_no_row_has_them():
    column = pandas.Categorical(["b", "b", "c"] * 5, categories=["a", "b", "c"])
    rows = load(pandas.DataFrame({"x": column})).train.inputs
    assert rows[:2].tolist() == [[0, 1, 0], [0, 1, 0]]


def test_an_unseen_category_is_no_error_and_has_no_flag(csv):
    table = load(csv).table
    new = people(3) | {"city": ["Lima", "Rome", None]}
    rows = table.encode(as_frame(pa.table(new)))
    at = [number for number, cell in enumerate(table.cells) if table.columns[cell].name == "city"]
    assert rows[:, at].sum(1).tolist() == [0, 1, 1]


def test_gaps_that_training_had_not_are_filled_with_the_median(csv):
    table = load(csv).table
    median = sorted(people()["income"])[59:61]
    rows = table.encode(as_frame(pa.table(people(2) | {"income": [None, sum(median) / 2]})))
    at = [table.columns[cell].name for cell in table.cells].index("income")
    assert rows[0, at] == rows[1, at]


def test_only_training_rows_are_learned_from(csv, tmp_path):
    other = people(60, seed=5) | {"income": [1e6 + i for i in range(60)], "city": ["Bern"] * 60}
    pandas.DataFrame(other).to_csv(tmp_path / "test.csv", index=False)
    alone = load(csv, Reading(label="target"))
    both = load(csv, Reading(label="target", test=str(tmp_path / "test.csv")))
    assert both.table == alone.table and torch.equal(both.train.inputs, alone.train.inputs)
    assert len(both.test) == 60


def test_the_papers_way_scales_by_training_and_test_rows(csv, tmp_path):
    pandas.DataFrame(people(60, seed=5)).to_csv(tmp_path / "test.csv", index=False)
    data = load(csv, Reading(test=str(tmp_path / "test.csv"), standardise="all"))
    rows = torch.cat([data.train.inputs, data.test.inputs]).double()
    at = [data.table.columns[cell].name for cell in data.table.cells].index("income")
    torch.testing.assert_close(rows[:, at].mean(), torch.tensor(0.0).double(), atol=1e-6, rtol=0)
    torch.testing.assert_close(rows[:, at].std(unbiased=False), torch.tensor(1.0).double(), atol=1e-6, rtol=0)
    unscaled = load(csv, Reading(standardise="none")).train.inputs[:, at]
    torch.testing.assert_close(unscaled.double(), torch.tensor(people()["income"]).double())


def test_large_numbers_close_to_each_other_stay_apart():
    """Scaled in float64: in float32 these would all be the same number."""
    rows = load(pandas.DataFrame({"t": 1e9 + np.arange(0, 40, 2), "u": np.arange(20) * 0.5})).train.inputs
    assert len(rows[:, 0].unique()) == 20


def test_a_table_survives_json(csv):
    table = load(csv).table
    again = Table.from_json(json.loads(json.dumps(table.to_json())))
    assert again == table
    frame = as_frame(pa.table(people(30, seed=3)))
    assert np.array_equal(again.encode(frame), table.encode(frame))


def test_groups_are_the_measured_columns_and_each_category(csv):
    table = load(csv).table
    categories = [column.width for column in table.columns if column.kind == "categorical"]
    assert table.groups == (table.width - sum(categories), *categories)
    encoder = imix.encoders.build("mlp:16-16", (table.width,), table.groups)
    assert [layer.in_features for layer in encoder.layers[1].embeddings] == list(table.groups)


def test_one_partner_mixes_all_columns_of_a_row(csv):
    x = load(csv).train.inputs
    mixed, mix = imix.MixUp()(x)
    for i, (partner, lam) in enumerate(zip(mix.partner, mix.lam, strict=True)):
        torch.testing.assert_close(mixed[i], lam * x[i] + (1 - lam) * x[partner])


def test_arrays_with_gaps_are_tables_of_numbers(tmp_path):
    x = np.arange(40.0).reshape(10, 4)
    x[3, 1] = np.nan
    np.save(tmp_path / "x.npy", x)
    for data in (load(x), load(torch.from_numpy(x)), load(tmp_path / "x.npy")):
        assert data.train.shape == (5,)
        assert [column.kind for column in data.table.columns] == ["numeric"] * 4
        assert data.train.inputs[:, 2].tolist() == [float(i == 3) for i in range(10)]


# --- CSV files -------------------------------------------------------------------------------------------------------


def read(path, text, **options):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load(path, Reading(**options))


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_delimiters_and_line_ends(tmp_path, delimiter, end):
    lines = [["a", "b b", "c"], *[[str(i / 2), "x" if i % 2 else "y", "?"] for i in range(20)]]
    data = read(tmp_path / "t.csv", "\ufeff" + end.join(delimiter.join(line) for line in lines) + end)
    assert {column.name: column.kind for column in data.table.columns} == {"a": "numeric", "b b": "categorical"}
    assert len(data.train) == 20


def test_quotes_newlines_and_spaces_in_fields(tmp_path):
    data = read(tmp_path / "t.csv", 'a, b\n1.5, x\n2.5,"y\nz, ""w"""\n' + "3.5,x \n" * 18)
    assert [column.name for column in data.table.columns] == ["a", "b"]
    assert data.table.columns[1].values == ("x", 'y\nz, "w"')


def test_a_compressed_file(tmp_path, csv):
    (tmp_path / "people.csv.gz").write_bytes(gzip.compress(csv.read_bytes()))
    assert torch.equal(load(tmp_path / "people.csv.gz").train.inputs, load(csv).train.inputs)


def test_a_file_of_numbers_without_names(tmp_path):
    np.savetxt(tmp_path / "t.csv", np.random.default_rng(0).normal(size=(30, 3)), delimiter=",")
    assert [column.name for column in load(tmp_path / "t.csv").table.columns] == ["0", "1", "2"]
    assert len(load(tmp_path / "t.csv").train) == 30


@pytest.mark.parametrize(
    ("early", "late", "kind"),
    [("1", "2.5", "numeric"), ("", "2.5", "numeric"), ("1", "x", "categorical"), ("2020-01-01", "soon", "categorical")],
)
def test_types_hold_for_the_whole_file_not_its_first_block(tmp_path, early, late, kind):
    text = "a,b\n" + f"{early},padding padding padding\n" * 60_000 + f"{late},padding\n" * 3
    kinds = {column.name: column.kind for column in read(tmp_path / "t.csv", text).table.columns}
    assert kinds == {"a": kind, "b": "categorical"}


def test_text_that_looks_like_numbers_stays_text_where_the_run_knows_categories(tmp_path):
    table = read(tmp_path / "t.csv", "zip\n" + "00123\n0123\nA12\n" * 10).table
    (tmp_path / "new.csv").write_text("zip\n00123\n0123\n")
    new = load(tmp_path / "new.csv", table=table).train.inputs
    assert sorted(new.tolist()) == [[0, 1, 0], [1, 0, 0]]


def test_whole_numbers_are_the_same_category_however_they_are_written(tmp_path):
    table = read(tmp_path / "t.csv", "a,b\n" + "1,0.5\n2,1.5\n3,7.5\n" * 20).table
    (tmp_path / "new.csv").write_text("a,b\n1.0,1\n2,1\n,1\n")
    flags = load(tmp_path / "new.csv", table=table).train.inputs[:, 1:]
    assert flags.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 0]]


# --- decimal commas ---------------------------------------------------------------------------------------------------


@pytest.fixture
def prices():
    """Fractions, whole numbers with gaps (pandas writes 1,0), text with commas, and classes that are numbers."""
    rng = np.random.default_rng(0)
    return pandas.DataFrame(
        {
            "price": np.where(np.arange(60) % 7 == 3, np.nan, rng.normal(0, 1234, 60)),
            "tiny": rng.normal(0, 1e-9, 60),
            "rooms": [1.0, 2.0, None, 3.0] * 15,
            "place": ["Rome, IT", "1,5 km off", "Oslo"] * 20,
            "half": [0.5, 1.5, 2.0] * 20,
            "y": [0.0, 1.0, None] * 20,
        }
    )


def test_decimal_commas_give_the_numbers_that_points_give(prices, tmp_path):
    prices.to_csv(tmp_path / "points.csv", index=False)
    prices.to_csv(tmp_path / "commas.csv", index=False, sep=";", decimal=",")
    prices.to_csv(tmp_path / "other.csv", index=False, sep=";")
    reading = Reading(label="y", columns={"half": "categorical"})
    points, commas, other = (load(tmp_path / f"{name}.csv", reading) for name in ("points", "commas", "other"))
    assert commas.table.kinds == {
        "price": "numeric",
        "tiny": "numeric",
        "rooms": "categorical",
        "place": "categorical",
        "half": "categorical",
    }
    for data in (commas, other):
        assert data.table == points.table
        assert torch.equal(data.train.inputs, points.train.inputs)
        assert torch.equal(data.train.labels, points.train.labels)
        assert list(data.class_names) == ["0", "1"]


def test_files_with_points_and_commas_are_the_same_to_a_run(prices, tmp_path):
    paths = [tmp_path / "points.csv", tmp_path / "commas.csv"]
    prices.to_csv(paths[0], index=False)
    prices.to_csv(paths[1], index=False, sep=";", decimal=",")
    expected = load(prices).train.inputs
    for path in paths:
        data = load(path, Reading(test=str(paths[0])))
        for other in (data.test, *(load(each, table=data.table).train for each in (*paths, prices))):
            assert torch.equal(other.inputs, data.train.inputs)
        assert torch.equal(load(path, table=load(prices).table).train.inputs, expected)


@pytest.mark.parametrize(
    ("early", "late", "kind"),
    [
        ("7", "2,5", "numeric"),
        ("", "2,5", "numeric"),
        ("1,5", "2", "numeric"),
        ("1,5", "-2,5e-3", "numeric"),
        ("1,5", "x", "categorical"),
        ("1,5", "1.234,5", "categorical"),
        ("1,5", "2.5", "categorical"),
    ],
)
def test_decimal_commas_hold_for_the_whole_file_not_its_first_block(tmp_path, early, late, kind):
    text = "a;b\n" + f"{early};padding, padding, padding\n" * 60_000 + f"{late};padding\n" * 3
    data = read(tmp_path / "t.csv", text, standardise="none")
    assert data.table.kinds == {"a": kind, "b": "categorical"}
    if kind == "numeric":
        assert data.train.inputs[-1, 0] == pytest.approx(float(late.replace(",", ".")))


def test_points_and_commas_may_stand_in_columns_of_one_file(tmp_path):
    data = read(tmp_path / "t.csv", "a;b;c\n" + "1,5;2.5;0,5\n2,5;3.5;,25\n" * 5, standardise="none")
    assert data.train.inputs[:2].tolist() == [[1.5, 2.5, 0.5], [2.5, 3.5, 0.25]]


def test_commas_may_be_of_thousands_where_no_semicolons_are(tmp_path):
    for delimiter in "\t|":
        text = f"a{delimiter}b\n" + f"1,234{delimiter}1.5\n999{delimiter}2.5\n12,500{delimiter}3.5\n" * 9
        assert read(tmp_path / "t.csv", text).table.kinds == {"a": "categorical", "b": "numeric"}


def test_a_file_of_numbers_with_decimal_commas_and_without_names(tmp_path):
    data = read(tmp_path / "t.csv", "1,5;2,5;3,5\n4,5;5,5;9,5\n", standardise="none")
    assert data.train.inputs.tolist() == [[1.5, 2.5, 3.5], [4.5, 5.5, 9.5]]
    data = read(tmp_path / "t.csv", "x;1,5;2,5\ny;3,5;5,5\n", standardise="none", header="no")
    assert data.train.inputs[:, :2].tolist() == [[1.5, 2.5], [3.5, 5.5]]
    data = read(tmp_path / "t.csv", "1,5;;3,5;4,5\n4,5;5,5;9,5;2,5\n", header="no", columns={"1": "drop"})
    assert len(data.train) == 2


def test_text_with_commas_is_text_as_it_is_in_frames(tmp_path):
    frame = pandas.DataFrame({"size": ["1,5", "2,5", "large"] * 10, "v": np.arange(30) * 0.5})
    frame.to_csv(tmp_path / "t.csv", sep=";", index=False)
    frame[:2].to_csv(tmp_path / "new.csv", sep=";", index=False)
    table = load(frame).table
    assert table.columns[1].values == ("1,5", "2,5", "large")
    assert load(tmp_path / "t.csv").table == table
    assert load(tmp_path / "new.csv", table=table).train.inputs[:, 1:].tolist() == [[1, 0, 0], [0, 1, 0]]


def test_a_quoted_comma_between_digits_is_no_decimal_comma_where_commas_delimit(tmp_path):
    assert read(tmp_path / "t.csv", "a,b\n" + '"1,500",0.5\n"2,500",1.5\n' * 5).table.kinds["a"] == "categorical"


# --- the same value is the same, wherever it comes from ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("train", "new", "seen"),
    [
        (["00123", "00456", "A7"], ["00123", "00456"], [1, 1]),
        (["1.0", "2.0", "x"], ["1.0", "2"], [1, 0]),
        (["True", "False", "maybe"], ["True", "true"], [1, 1]),
        (["2020-01-01", "unknown", "x"], ["2020-01-01", "2020-01-02"], [1, 0]),
        (["a", " ", "b"], ["a", " "], [1, 1]),
        ([" 1", " 2", "3"], ["1", " 2"], [1, 1]),
        (["1", "2", "3"], ["red", "3.0"], [0, 1]),
        (["01", "02", "03"], ["01", "2"], [1, 1]),
        ([str(2**53 + i) for i in range(3)], [str(2**53 + 1), str(2**53 + 5)], [1, 0]),
        (["-0.0", "2.0", "3.0"], ["0", "2"], [1, 1]),
    ],
)
def test_a_test_file_and_a_new_file_mean_what_the_training_file_means(tmp_path, train, new, seen):
    paths = [tmp_path / "train.csv", tmp_path / "new.csv"]
    for path, values in zip(paths, (train * 20, new), strict=True):
        path.write_text("v,a\n" + "".join(f"{i * 0.37},{value}\n" for i, value in enumerate(values)))
    data = load(paths[0], Reading(test=str(paths[1])))
    assert data.test.inputs[:, 1:].sum(1).tolist() == seen
    assert torch.equal(load(paths[1], table=data.table).train.inputs, data.test.inputs)
    assert torch.equal(load(paths[0], table=data.table).train.inputs, data.train.inputs)


def test_labels_of_a_test_file_mean_what_those_of_the_training_file_mean(tmp_path):
    (tmp_path / "train.csv").write_text("v,y\n" + "0.5,01\n1.5,02\n2.5,x\n3.5,1\n" * 5)
    (tmp_path / "test.csv").write_text("v,y\n0.5,02\n0.5,01\n")
    data = load(tmp_path / "train.csv", Reading(label="y", test=str(tmp_path / "test.csv")))
    assert list(data.class_names) == ["01", "1", "02", "x"]
    assert data.test.labels.tolist() == [2, 0]


@pytest.mark.parametrize("kind", ["b", "n", "s", "t", "f", "d"])
def test_a_forced_category_is_the_same_from_csv_and_typed_files(tmp_path, kind):
    columns = {
        "b": [True, False, None] * 10,
        "n": [1, 2, None] * 10,
        "s": ["x", "y", None] * 10,
        "t": [datetime(2020, 1, 1), datetime(2020, 1, 2, 3, 4, 5), None] * 10,
        "f": pa.array([0.1, 0.5, None] * 10, pa.float32()),
        "d": pa.array([2**53, 2**53 + 1, None] * 10, pa.decimal128(20, 0)),
    }
    frame = pa.table({"v": np.arange(30) * 0.37, "c": columns[kind]})
    frame.to_pandas().to_csv(tmp_path / "t.csv", index=False)
    parquet.write_table(frame, tmp_path / "t.parquet")
    data = load(tmp_path / "t.csv", Reading(columns={"c": "categorical"}))
    for other in (tmp_path / "t.parquet", frame, frame.to_pandas(), polars.from_arrow(frame)):
        assert torch.equal(load(other, table=data.table).train.inputs, data.train.inputs)


def test_durations_and_zones_do_not_depend_on_how_they_are_stored():
    seconds = pa.array([5, 90, None, 7000], pa.duration("s"))
    times = pa.array([datetime(2020, 1, 1, h) for h in (0, 5, 11, 23)], pa.timestamp("us", "UTC"))
    table = pa.table({"d": seconds, "t": times})
    fitted = load(table).table
    other = pa.table({"d": seconds.cast(pa.duration("ns")), "t": times.cast(pa.timestamp("ns", "Asia/Tokyo"))})
    assert torch.equal(load(other, table=fitted).train.inputs, load(table, table=fitted).train.inputs)


def test_text_of_typed_sources_is_never_taken_for_numbers():
    frame = pandas.DataFrame({"version": ["1.1", "1.10", "2.0"] * 5, "y": ["1.1", "1.2", "01"] * 5})
    data = load(frame, Reading(label="y"))
    assert data.table.columns[0].values == ("1.1", "1.10", "2.0")
    assert list(data.class_names) == ["01", "1.1", "1.2"]


def test_words_for_gaps_are_gaps_in_every_source(tmp_path):
    frame = pandas.DataFrame({"c": ["a", "?", "b", "NA"] * 5, "v": np.arange(20) * 0.5})
    frame.to_csv(tmp_path / "t.csv", index=False)
    data = load(tmp_path / "t.csv")
    assert torch.equal(load(frame, table=data.table).train.inputs, data.train.inputs)


def test_times_with_a_zone_or_nanoseconds_in_text_or_not():
    text = pandas.DataFrame({"t": [f"2020-01-{day:02d}T09:00:00Z" for day in range(1, 29)]})
    typed = pandas.DataFrame({"t": pandas.to_datetime(text["t"])})
    assert torch.equal(load(text).train.inputs, load(typed).train.inputs)
    fine = pandas.DataFrame({"t": pandas.to_datetime(np.arange(40) * 86_400_000_000_001)})
    assert load(fine).table.kinds == {"t": "datetime"}


def test_numbers_are_no_times():
    table = load(pandas.DataFrame({"t": pandas.date_range("2020-01-01", periods=9), "v": np.arange(9) * 0.5})).table
    with pytest.raises(InputError, match="column 't' cannot be read as datetime: it holds numbers; dates are ISO 8601"):
        table.encode(as_frame(pandas.DataFrame({"t": [1577836800, 1577923200], "v": [0.5, 1]})))


@pytest.mark.parametrize(
    ("good", "bad", "wrong"),
    [
        ([], "03/12/2021", "is in another form"),
        (["2021-12-03"] * 1000, "03/12/2021", "is in another form"),
        (["2021-12-03", None, "2021-12-04 10:00"], "2021-13-04", "is in another form"),
        (["2021-12-03"], "2021-12-03T09:00:00Z", "has a zone, and the first has none"),
        (["2021-12-03T09:00:00Z"], "2021-12-03", "has no zone, and the first has one"),
    ],
)
def test_the_first_value_that_is_no_date_is_named_and_what_would_be_one(tmp_path, good, bad, wrong):
    frame = pandas.DataFrame({"v": 0.5, "on": [*good, bad, "2021-12-03", "then"]})
    said = (
        f"column 'on' cannot be read as datetime: '{bad}' {wrong}; "
        "dates are ISO 8601 (2021-12-03), or come as a datetime column of a frame or Parquet file"
    )
    known = load(pandas.DataFrame({"v": [0.5, 1.5], "on": ["2020-01-01", "2021-02-02"]})).table
    frame.to_csv(tmp_path / "t.csv", index=False)
    for data in (frame, frame.astype({"on": "category"}), tmp_path / "t.csv"):
        for how in ({"reading": Reading(columns={"on": "datetime"})}, {"table": known}):
            with pytest.raises(InputError) as error:
                load(data, **how)
            assert str(error.value) == said


def test_arrays_of_any_byte_order_and_precision():
    x = np.random.default_rng(0).normal(size=(20, 3))
    expected = load(pandas.DataFrame(x)).train.inputs
    assert torch.equal(load(pandas.DataFrame(x.astype(">f8"))).train.inputs, expected)
    x[0, 0] = np.nan
    for array in (x.astype(">f8"), x.astype(np.longdouble)):
        assert torch.equal(load(array).train.inputs, load(x).train.inputs)
    assert load(torch.randn(8, 3).bfloat16()).train.inputs.dtype == torch.float32


def test_the_index_that_pandas_puts_into_parquet_is_no_column(tmp_path):
    pandas.DataFrame({"v": np.arange(9) * 0.5}).sample(frac=1, random_state=0).to_parquet(tmp_path / "t.parquet")
    assert list(load(tmp_path / "t.parquet").table.kinds) == ["v"]


def test_large_whole_numbers_stay_apart_as_labels(tmp_path):
    ids = [2**60, 2**60 + 1, 2**60 + 2]
    frame = pandas.DataFrame({"v": [0.5, 1.5, 2.5], "y": ids})
    frame.to_csv(tmp_path / "t.csv", index=False)
    for source in (frame, tmp_path / "t.csv"):
        assert list(load(source, Reading(label="y")).class_names) == [str(i) for i in ids]


def test_text_with_dates_is_of_times_in_frames_too():
    frame = pandas.DataFrame({"t": [f"2021-{month:02d}-15" for month in range(1, 13)], "e": ["", "a", "b"] * 4})
    table = load(frame).table
    assert table.kinds == {"t": "datetime", "e": "categorical"}
    assert None in table.columns[1].values and "" not in table.columns[1].values


def test_a_gap_is_a_category_even_among_many():
    values = [f"v{i % (MANY + 20)}" for i in range(2000)] + [None]
    assert None in Table.fit(as_frame(pa.table({"x": values}))).columns[0].values


def test_columns_that_are_empty_in_a_new_table_are_gaps():
    table = load(pandas.DataFrame(people())).table
    empty = pandas.DataFrame(people(4)).assign(**dict.fromkeys(("age", "smoker", "city", "rooms", "joined"), np.nan))
    assert np.isfinite(table.encode(as_frame(empty))).all()


def test_masked_values_of_an_array_are_gaps():
    x = np.ma.masked_array(np.arange(12.0).reshape(6, 2), mask=[[0, 1]] + [[0, 0]] * 5)
    assert load(x).train.inputs[:, 2].tolist() == [1, 0, 0, 0, 0, 0]


def test_values_of_any_kind_come_through_or_are_named():
    odd = {
        "interval": pandas.cut(np.arange(40.0), 4),
        "mixed": [1, pandas.NA, "x", None] * 10,
        "huge": [2**70, 5, 2**70, 7] * 10,
        "nested": [[1], [2]] * 20,
        "complex": [1j, 2j] * 20,
        "whole": pandas.array([1, None] * 20, dtype="Int64"),
        "period": pandas.period_range("2020-01", periods=40, freq="M"),
    }
    data = load(pandas.DataFrame(odd | {"v": np.arange(40) * 0.5}))
    assert torch.isfinite(data.train.inputs).all()
    assert {"interval", "mixed", "whole", "v"} <= set(data.table.kinds)
    with pytest.raises(InputError, match="column 'nested' cannot be read as categorical"):
        load(pa.table({"nested": [[1], [2]]}), Reading(columns={"nested": "categorical"}))
    with pytest.raises(InputError, match="column 'nested' cannot be read as a label"):
        load(pa.table({"nested": [[1], [2]], "v": [0.5, 1]}), Reading(label="nested"))


def test_values_too_large_for_the_encoder_are_named():
    table = load(pandas.DataFrame({"v": [0.5, 1.5, 2.5, 4.5]})).table
    with pytest.raises(InputError, match="column 'v' has values that are too large, the first in row 1"):
        table.encode(as_frame(pandas.DataFrame({"v": [0.5, 1e300]})))
    with pytest.raises(InputError, match="column 'v' has values that are too large"):
        load(pandas.DataFrame({"v": [1e200, -1e200, 1e201]}))
    with pytest.raises(InputError, match="column 'v' has values that are too large"):
        load(pandas.DataFrame({"v": [1e39, 1.5, 7e39]}), Reading(standardise="none"))


def test_what_was_an_input_cannot_be_the_label():
    frame = pandas.DataFrame(people())
    run = imix.pretrain(frame, QUICK, progress=False)
    with pytest.raises(InputError, match=r"column 'target' was an input of this run.*train with --columns target drop"):
        imix.evaluate(run, frame, label="target")


def test_several_labels_are_kept_out_of_training_and_asked_for_one_by_one():
    frame = pandas.DataFrame(people())
    run = imix.pretrain(frame, QUICK, Reading(columns={"target": "drop", "smoker": "drop"}), progress=False)
    assert not {"target", "smoker"} & run.table.kinds.keys()
    for label in ("target", "smoker"):
        assert imix.evaluate(run, frame, "knn", label=label).constants["train"] == 96


def test_scaling_by_all_rows_names_what_the_test_rows_lack(csv, tmp_path):
    for change, message in [
        ({"income": "much"}, "column 'income' cannot be read as numeric: .*much"),
        ({"joined": None}, None),
        (None, r"test.csv has no column 'income'"),
    ]:
        frame = pandas.DataFrame(people(9))
        frame = frame.drop(columns="income") if change is None else frame.assign(**change)
        frame.to_csv(tmp_path / "test.csv", index=False)
        reading = Reading(test=str(tmp_path / "test.csv"), standardise="all")
        if message is None:
            assert len(load(csv, reading).test) == 9
        else:
            with pytest.raises(InputError, match=message):
                load(csv, reading)


# --- what is wrong with a file ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "rows", "columns"),
    [
        ("0,1,2", 3, ["0", "1", "2"]),
        ("2019,2020,2021", 4, ["0", "1", "2"]),
        ("0.5,1,2", 4, ["0", "1", "2"]),
        ("7,7,2", 4, ["0", "1", "2"]),
    ],
)
def test_a_first_line_of_numbers(tmp_path, header, rows, columns):
    data = read(tmp_path / "t.csv", header + "\n" + "0.25,1.5,3.5\n1.25,2.5,0.5\n3.25,2.25,9.5\n")
    assert (len(data.train), list(data.table.kinds)) == (rows, columns)


def test_whether_the_first_line_names_columns_can_be_told(tmp_path):
    text = "2019,2020\n0.25,1.5\n1.25,2.5\n"
    assert list(read(tmp_path / "t.csv", text, header="yes").table.kinds) == ["2019", "2020"]
    assert len(read(tmp_path / "t.csv", "x,y\nz,y\n", header="no").train) == 2


def test_names_with_newlines_and_delimiters_within_quotes(tmp_path):
    data = read(tmp_path / "t.csv", '"price\n(EUR)";"Last, First, Middle"\n' + '1.5;"A, B"\n2.5;"C, D"\n' * 5)
    assert data.table.kinds == {"price\n(EUR)": "numeric", "Last, First, Middle": "categorical"}
    assert len(data.train) == 10


def test_a_long_field_in_the_first_row(tmp_path):
    assert len(read(tmp_path / "t.csv", "t,b\n" + "x" * 140_000 + ",1.5\nx,2.5\n").train) == 2


def test_many_columns_that_turn_to_text_late_are_read_in_a_few_passes(tmp_path, monkeypatch):
    passes = []
    real = csv_file._on_disk
    monkeypatch.setattr(csv_file, "_on_disk", lambda *given: passes.append(1) or real(*given))
    rows = [",".join(["7"] * 40)] * 20_000 + [",".join(["x"] * 40)]
    data = read(tmp_path / "t.csv", "\n".join([",".join(f"c{i}" for i in range(40)), *rows]))
    assert set(data.table.kinds.values()) == {"categorical"}
    assert len(passes) <= csv_file.PATIENCE + 2


def test_a_files_text_columns_are_not_kept_in_memory(tmp_path):
    rows = ["late," * 9 + "late"] * 20_000
    (tmp_path / "t.csv").write_text("\n".join([",".join("abcdefghij"), *rows]))
    frame = csv_file.read_csv(tmp_path / "t.csv")
    before = pa.total_allocated_bytes()
    one = frame.column("a").nbytes
    for name in frame.columns:
        frame.column(name)
    assert pa.total_allocated_bytes() - before < 2 * one


def test_names_in_capitals_blank_lines_and_long_rows(tmp_path):
    assert len(read(tmp_path / "T.CSV", "\n\na,b\n\n1.5,2.5\n\n2.5,4\n").train) == 2
    wide = ",".join(f"c{i}" for i in range(200)) + "\n" + 3 * (",".join(["0." + "1" * 6000] * 200) + "\n")
    assert read(tmp_path / "wide.csv", wide).train.shape == (200,)


def test_a_test_file_for_data_that_is_no_table_is_refused(tmp_path):
    with pytest.raises(InputError, match="test samples in a place of their own"):
        load("digits", Reading(test="t.csv"))
    with pytest.raises(InputError, match="test samples in a place of their own"):
        load(pandas.DataFrame(people()), reading=Reading(test="t.csv"))


def test_columns_called_by_numbers(tmp_path):
    frame = pandas.DataFrame(np.random.default_rng(0).normal(size=(20, 3))).assign(**{"3": [0, 1] * 10})
    data = load(frame, Reading(label=3, columns={0: "drop"}))
    assert (list(data.table.kinds), data.train.classes) == (["1", "2"], 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "no columns in"),
        (b"a,b\n", "no rows"),
        (b"a,b\n1,2\n1,2,3\n", "Expected 2 columns, got 3"),
        (b"a,a\n1,2\n", "several columns called 'a'"),
        ("a,b\n1,café\n".encode("latin-1") * 3, "UTF-8"),
        (b"a,b\n1.5,inf\n2,1\n", "column 'b' .* has 1 infinite values, the first in row 0"),
        (b"a,b\nx1,y1\n", None),
        (b"a\n" + b"".join(b"text %d\n" % i for i in range(300)), "no column to learn from .*'a': nearly every row"),
    ],
)
def test_csv_files_that_cannot_be_used(tmp_path, text, message):
    if message is None:
        assert len(read(tmp_path / "t.csv", text).train) == 1
        return
    with pytest.raises(InputError, match=message):
        read(tmp_path / "t.csv", text)


def test_a_parquet_file_that_is_none(tmp_path):
    (tmp_path / "t.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(InputError, match=r"cannot read .*t.parquet as .parquet"):
        load(tmp_path / "t.parquet")


# --- labels ----------------------------------------------------------------------------------------------------------


def test_a_self_supervised_method_never_sees_the_label(csv, tmp_path):
    frame = pandas.DataFrame(people())
    shuffled = frame.assign(target=frame["target"].sample(frac=1, random_state=0).to_numpy())
    runs = [imix.pretrain(f, QUICK, Reading(label="target"), progress=False) for f in (frame, shuffled)]
    for a, b in zip(*(run.encoder.state_dict().values() for run in runs), strict=True):
        assert torch.equal(a, b)
    assert "target" not in [column.name for column in runs[0].table.columns]


@pytest.mark.parametrize(
    ("values", "names", "numbers"),
    [
        (["b", "a", None, "b"], ["a", "b"], [1, 0, -1, 1]),
        ([10, 9, 10, 2], ["2", "9", "10"], [2, 1, 2, 0]),
        ([1.0, None, 0.0, 1.0], ["0", "1"], [1, -1, 0, 1]),
        ([True, False, None, True], ["false", "true"], [1, 0, -1, 1]),
    ],
)
def test_labels_become_class_numbers(values, names, numbers):
    data = load(pa.table({"x": [0.5, 1.5, 2.5, 4.5], "y": pa.array(values)}), reading=Reading(label="y"))
    assert (list(data.class_names), data.train.labels.tolist()) == (names, numbers)


def test_rows_without_a_label_are_trained_on_and_not_evaluated_on():
    frame = pandas.DataFrame(people())
    frame.loc[::2, "target"] = None
    run = imix.pretrain(frame, QUICK, Reading(label="target"), progress=False)
    assert run.config["data"]["samples"] == 120
    result = imix.evaluate(run, frame, "knn")
    assert (result.constants["train"], result.constants["test"]) == (48, "12 held out of train")
    with pytest.raises(InputError, match="60 rows have none"):
        imix.pretrain(frame, Settings(method="supclr", encoder="mlp:8-8"), Reading(label="target"), progress=False)


def test_labels_that_are_no_classes_or_not_there_are_refused(csv, tmp_path):
    with pytest.raises(InputError, match=r"no column 'targte' \(did you mean 'target'\?\); it has .*'target'"):
        load(csv, Reading(label="targte"))
    with pytest.raises(InputError, match=r"'income' of .* has fractions or infinite values, and labels are classes"):
        load(csv, Reading(label="income"))
    with pytest.raises(InputError, match="no values"):
        load(csv, Reading(label="empty"))
    unseen = pandas.DataFrame(people(4)).assign(target=["lo", "hi", "top", "mid"])
    unseen.to_csv(tmp_path / "test.csv", index=False)
    with pytest.raises(InputError, match=r"labels that the training samples have not: \['top'\]"):
        load(csv, Reading(label="target", test=str(tmp_path / "test.csv")))
    with pytest.raises(InputError, match="choose one"):
        load(pandas.DataFrame(people(4)), Reading(label="target"), labels=[0, 1, 0, 1])


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("chruned", " (did you mean 'churned'?)"),
        ("CHURNED", " (did you mean 'churned'?)"),
        ("tota", " (did you mean 'Total' or 'total'?)"),
        ("colour", ""),
    ],
)
def test_a_name_that_no_column_has_is_refused_with_what_may_be_meant(given, meant):
    frame = pandas.DataFrame({f"c{i}": [0.5, 1.5] for i in range(10)} | {"Total": 1, "total": 2, "churned": [0, 1]})
    for reading in (Reading(label=given), Reading(columns={given: "drop"})):
        with pytest.raises(InputError) as error:
            load(frame, reading)
        assert f"the data has no column '{given}'{meant}; it has 'c0', " in str(error.value)
        assert str(error.value).endswith("and 3 more")


# --- runs ------------------------------------------------------------------------------------------------------------


def test_a_run_embeds_new_files_with_other_columns_around_and_no_label(csv, tmp_path):
    run = imix.pretrain(csv, QUICK, Reading(label="target"), out=tmp_path / "run", progress=False)
    new = pandas.DataFrame(people(40, seed=2)).drop(columns=["target", "name", "row", "empty"])
    new[new.columns[::-1]].to_csv(tmp_path / "new.csv", index=False)
    found = imix.embed(tmp_path / "run", tmp_path / "new.csv")
    with torch.no_grad():
        expected = run.encoder(torch.from_numpy(run.table.encode(as_frame(new)))).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    new.rename(columns={"age": "Age"}).to_csv(tmp_path / "new.csv", index=False)
    with pytest.raises(InputError, match="lacks 'age' and has 'Age', not seen in training"):
        imix.embed(tmp_path / "run", tmp_path / "new.csv")
    new.assign(extra=1).to_csv(tmp_path / "new.csv", index=False)
    with pytest.raises(InputError, match="has 'extra', not seen in training"):
        imix.embed(tmp_path / "run", tmp_path / "new.csv")
    assert np.array_equal(imix.embed(tmp_path / "run", tmp_path / "new.csv", columns={"extra": "drop"}), found)


def test_a_column_of_another_type_is_refused_by_name(csv):
    table = load(csv).table
    for column, values, message in [
        ("age", ["old", "young"], "column 'age' cannot be read as numeric: .*young"),
        ("joined", ["soon", "later"], "column 'joined' cannot be read as datetime: 'soon' is in another form"),
        ("smoker", [0, 7], "column 'smoker' cannot be read as boolean: row 1 has 7"),
        (
            "income",
            [1.0, math.inf],
            "column 'income' cannot be read as numeric: it has 1 infinite values, the first in row 1",
        ),
    ]:
        with pytest.raises(InputError, match=message):
            table.encode(as_frame(pa.table(people(2) | {column: values})))


def test_new_rows_without_a_column_may_have_it_empty(csv, tmp_path):
    run = imix.pretrain(csv, QUICK, Reading(label="target"), progress=False)
    for name in ("age", "smoker", "joined", "city", "rooms"):
        new = pandas.DataFrame(people(9)).drop(columns=name)
        with pytest.raises(InputError, match=f"it lacks '{name}'"):
            imix.embed(run, new)
        new.assign(**{name: None}).to_csv(tmp_path / "new.csv", index=False)
        assert np.isfinite(imix.embed(run, tmp_path / "new.csv")).all()
        assert np.array_equal(imix.embed(run, tmp_path / "new.csv"), imix.embed(run, new.assign(**{name: None})))


def test_a_run_on_arrays_refuses_tables_and_the_other_way_round(csv):
    run = imix.pretrain(np.random.default_rng(0).normal(size=(40, 3)), QUICK, progress=False)
    with pytest.raises(InputError, match="trained on arrays without gaps"):
        imix.embed(run, pa.table({"a": [0.5, 1.5], "b": [0.5, 2.5], "c": [0.5, 3.5]}))
    run = imix.pretrain(csv, QUICK, progress=False)
    with pytest.raises(InputError, match=r"lacks 'age'.* and has '0'"):
        imix.embed(run, np.ones((4, 3)))


def test_a_run_is_not_resumed_on_another_table(csv, tmp_path):
    imix.pretrain(csv, QUICK, out=tmp_path / "run", progress=False)
    pandas.DataFrame(people(seed=9)).to_csv(csv, index=False)
    with pytest.raises(InputError, match="its table had other columns or values"):
        imix.pretrain(csv, QUICK, out=tmp_path / "run", resume=True, progress=False)


def test_what_columns_are_is_printed(csv, capsys):
    imix.pretrain(csv, QUICK)
    assert "2 numeric ('age', 'income'), 1 boolean ('smoker'), 3 categorical" in capsys.readouterr().err


def test_new_rows_may_have_an_empty_label_column_and_labels_of_their_own():
    frame = pandas.DataFrame(people())
    run = imix.pretrain(frame, QUICK, Reading(label="target"), progress=False)
    assert imix.embed(run, frame.assign(target=None)).shape == (120, 2)
    result = imix.evaluate(run, frame.drop(columns="target"), "knn", labels=frame["target"])
    assert result.constants["train"] == 96
    with pytest.raises(InputError, match="has no column 'typo'"):
        imix.evaluate(run, frame, "knn", label="typo")
    with pytest.raises(InputError, match="column 'target' is empty"):
        imix.evaluate(run, frame.assign(target=None), "knn", label="target")


def test_a_label_column_with_fractions_in_new_rows_can_be_left_out():
    frame = pandas.DataFrame(people())
    run = imix.pretrain(frame, QUICK, Reading(label="target"), progress=False)
    new = frame.assign(target=np.arange(120) + 0.5)
    with pytest.raises(InputError, match="use --columns target drop"):
        imix.embed(run, new)
    assert imix.embed(run, new, columns={"target": "drop"}).shape == (120, 2)


def test_columns_that_the_run_has_not_seen_are_left_out_if_told(csv, tmp_path):
    imix.pretrain(csv, QUICK, Reading(label="target", columns={"name": "drop"}), out=tmp_path / "run", progress=False)
    pandas.DataFrame(people()).drop(columns="name").assign(extra=1).to_csv(tmp_path / "new.csv", index=False)
    with pytest.raises(InputError, match="has 'extra'"):
        imix.evaluate(tmp_path / "run", tmp_path / "new.csv", "knn")
    told = {"columns": {"extra": "drop"}, "test": str(tmp_path / "new.csv")}
    assert imix.evaluate(tmp_path / "run", tmp_path / "new.csv", "knn", **told).constants["test"] == 120
    with pytest.raises(InputError, match="column 'age' is numeric in this run, and cannot be drop now"):
        imix.embed(tmp_path / "run", csv, columns={"age": "drop"})


def test_a_run_from_before_tables_can_be_read(tmp_path):
    run = imix.pretrain(np.random.default_rng(0).normal(size=(40, 3)), QUICK, out=tmp_path / "run", progress=False)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    del config["data"]["table"], config["data"]["reading"]
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    assert imix.embed(tmp_path / "run", np.ones((2, 3))).shape == (2, run.encoder[-1].width)


# --- named tables ----------------------------------------------------------------------------------------------------


@pytest.fixture
def forest(tmp_path, monkeypatch):
    """A file like UCI's, 40 rows, of which the first 12 train."""
    monkeypatch.setattr(uci, "COVTYPE_TRAIN", 12)
    rng = np.random.default_rng(0)
    rows = np.zeros((40, 55), int)
    rows[:, :10] = rng.integers(0, 3000, (40, 10))
    rows[np.arange(40), 10 + rng.integers(0, 4, 40)] = 1
    rows[np.arange(40), 14 + rng.integers(0, 40, 40)] = 1
    rows[:, 54] = np.arange(40) % 7 + 1
    text = "".join(",".join(map(str, row)) + "\n" for row in rows)
    (tmp_path / "covtype.data.gz").write_bytes(gzip.compress(text.encode()))
    return rows


def test_covtype_has_the_papers_columns_split_and_groups(forest, tmp_path):
    data = load("covtype", Reading(data_dir=str(tmp_path), standardise="none"))
    assert (len(data.train), len(data.test), data.train.classes) == (12, 28, 7)
    assert data.table.groups == (10, 4, 40)
    rows = torch.cat([data.train.inputs, data.test.inputs])
    assert torch.equal(rows, torch.from_numpy(forest[:, :54]).float())
    assert torch.equal(torch.cat([data.train.labels, data.test.labels]), torch.from_numpy(forest[:, 54] - 1))


@pytest.mark.parametrize(("standardise", "rows"), [("train", slice(12)), ("all", slice(None))])
def test_covtype_is_standardised_by_training_rows_or_the_whole_file(forest, tmp_path, standardise, rows):
    data = load("covtype", Reading(data_dir=str(tmp_path), standardise=standardise))
    x = forest[:, :10].astype(float)
    expected = (x - x[rows].mean(0)) / x[rows].std(0)
    np.testing.assert_allclose(data.train.inputs[:, :10], expected[:12], rtol=1e-5, atol=1e-6)
    assert torch.equal(data.train.inputs[:, 10:], torch.from_numpy(forest[:12, 10:54]).float())


def test_a_run_on_covtype_remembers_where_the_file_was(forest, tmp_path):
    reading = Reading(data_dir=str(tmp_path))
    imix.pretrain("covtype", QUICK, reading, out=tmp_path / "run", progress=False)
    assert imix.evaluate(tmp_path / "run", protocol="knn").constants["test"] == 28
    assert imix.embed(tmp_path / "run", "covtype", data_dir=str(tmp_path)).shape == (40, 2)


def test_columns_of_a_named_table_can_be_left_out(forest, tmp_path):
    reading = Reading(data_dir=str(tmp_path), columns={"Soil_Type": "drop"})
    assert load("covtype", reading).table.groups == (10, 4)


def test_higgs_draws_its_training_rows_and_tests_on_the_last(tmp_path, monkeypatch):
    monkeypatch.setattr(uci, "HIGGS_TEST", 50)
    monkeypatch.setattr(uci, "HIGGS_ROWS", {"higgs100k": 30, "higgs1m": 60})
    rows = np.random.default_rng(0).normal(size=(200, 29))
    rows[:, 0] = np.arange(200) % 2
    np.savetxt(tmp_path / "HIGGS.csv", rows, delimiter=",")
    small = load("higgs100k", Reading(data_dir=str(tmp_path), standardise="none"))
    large = load("higgs1m", Reading(data_dir=str(tmp_path)))
    assert (len(small.train), len(small.test), len(large.train), small.train.shape) == (30, 50, 60, (28,))
    np.testing.assert_allclose(small.test.inputs, rows[150:, 1:], rtol=1e-6)
    assert small.test.labels.tolist() == rows[150:, 0].tolist()
    drawn = {tuple(row) for row in small.train.inputs.tolist()}
    assert len(drawn) == 30 and drawn <= {tuple(row) for row in rows[:150, 1:].astype(np.float32).tolist()}


@pytest.mark.parametrize(
    ("name", "folder", "message"),
    [
        ("higgs100k", None, "UCI's data set 280.*--data-dir"),
        ("higgs1m", ".", "there is none of HIGGS.csv.gz"),
        ("covtype", ".", "there is none of covtype.data.gz"),
    ],
)
def test_files_that_are_not_there_are_asked_for(name, folder, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        load(name, Reading(data_dir=folder))


def test_a_file_that_is_not_ucis_is_refused(tmp_path):
    np.savetxt(tmp_path / "covtype.data", np.ones((3, 4)), delimiter=",")
    with pytest.raises(InputError, match="not UCI's file: it has 3 rows of 4 columns; 55 columns"):
        load("covtype", Reading(data_dir=str(tmp_path)))


# --- what a stranger's table may hold --------------------------------------------------------------------------------


def test_a_class_called_none_is_a_class_and_a_gap_elsewhere(tmp_path):
    path = tmp_path / "risk.csv"
    rows = [("none", 1.5, "x"), ("mild", "None", "none"), ("NA", 2.5, "x"), ("", 3.5, "y"), ("severe", 4.5, "y")] * 8
    path.write_text("risk,dose,arm\n" + "".join(f"{risk},{dose},{arm}\n" for risk, dose, arm in rows))
    data = load(path, Reading(label="risk"))
    assert data.class_names == ["mild", "none", "severe"]
    assert (data.train.labels < 0).sum() == 16  # NA and nothing
    assert data.table.kinds == {"dose": "numeric", "arm": "categorical"}
    without = load(path, Reading(columns={"risk": "drop"}))
    assert torch.equal(data.train.inputs, without.train.inputs)


def test_what_rows_without_a_label_do_to_an_evaluation_is_said(tmp_path):
    path = tmp_path / "some.csv"
    rows = ["a", "b", "", "a", "b"] * 10
    path.write_text("y,v,w\n" + "".join(f"{y},{n * 0.37 % 1},{n * 0.73 % 1}\n" for n, y in enumerate(rows)))
    run = imix.pretrain(path, QUICK, Reading(label="y"), progress=False)
    found = imix.evaluate(run, protocol="knn", constants=imix.evaluation.KNN(k=3))
    assert found.constants["unlabelled"] == 10 and found.constants["train"] == 32 and "unlabelled 10" in str(found)


def test_a_line_that_tells_excel_the_delimiter_is_no_header(tmp_path):
    path = tmp_path / "excel.csv"
    path.write_text("sep=;\r\na;b\r\n" + "1,5;x\r\n2,25;y\r\n" * 20, newline="")
    table = load(path).table
    assert table.kinds == {"a": "numeric", "b": "categorical"}


def test_a_first_line_that_was_taken_for_a_row_is_hinted_at(tmp_path):
    path = tmp_path / "years.csv"
    path.write_text("2019,2020\n" + "1.5,3\n2.5,4\n" * 20)
    with pytest.raises(InputError, match=r"no column '2020'; it has '0', '1', since its first line .*--header yes"):
        load(path, Reading(label="2020"))
    data = load(path, Reading(label="2020", header="yes"))
    assert data.class_names == ["3", "4"]


def test_sparse_columns_of_pandas_are_numbers():
    values = np.random.default_rng(0).normal(size=200) * (np.arange(200) % 3 == 0)
    sparse = pandas.DataFrame({"a": pandas.arrays.SparseArray(values, fill_value=0.0)})
    dense = pandas.DataFrame({"a": values})
    assert torch.equal(load(sparse).train.inputs, load(dense).train.inputs)


@pytest.mark.parametrize("start", [1_700_000_000_000_000_000, -(2**62), 2**63 + 5])
def test_large_whole_numbers_that_lie_close_are_told_apart(start):
    order = np.random.default_rng(0).permutation(1000)
    column = np.array([start + int(number) for number in order], np.uint64 if start > 2**63 else np.int64)
    many = load(pandas.DataFrame({"id": column, "v": np.random.default_rng(1).normal(size=1000)}))
    assert many.table.kinds["id"] == "numeric"
    few = load(pandas.DataFrame({"id": column // 10**6 * 10**6 + column % 3, "v": order * 0.5}))
    assert few.table.kinds["id"] == "categorical"


def test_a_folder_of_tables_is_told_to_be_one_file(tmp_path):
    pandas.DataFrame({"a": [0.5, 1.5]}).to_parquet(tmp_path / "part-0.parquet")
    with pytest.raises(InputError, match="a table is one file"):
        load(tmp_path)


def test_gaps_are_named_to_a_run_that_was_trained_without():
    x = np.random.default_rng(0).normal(size=(40, 3))
    run = imix.pretrain(x, QUICK, progress=False)
    with pytest.raises(InputError, match="trained on arrays without gaps"):
        imix.embed(run, np.where(x > 1, np.nan, x))


def test_labels_that_are_empty_text_or_infinite():
    x = np.random.default_rng(0).normal(size=(4, 2))
    assert load(x, labels=["a", "", "b", "a"]).train.labels.tolist() == [0, -1, 1, 0]
    assert load(x, labels=np.array(["a", "", None, "b"], dtype=object)).train.labels.tolist() == [0, -1, -1, 1]
    frame = pandas.DataFrame({"a": x[:, 0], "y": [1.0, np.inf, 2.0, 1.0]})
    with pytest.raises(InputError, match=r"'y' .* infinite"):
        load(frame, Reading(label="y"))
    assert torch.equal(load(x.astype(object)).train.inputs, load(x).train.inputs)
