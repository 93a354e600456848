"""Values: the same value is encoded in the same way, whatever file or type it comes from."""

from datetime import datetime

import numpy as np
import pandas
import polars
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

from imix import DataSettings, InputError
from imix.data import load
from imix.data.tables.frame import as_frame
from tests.data.tables.helpers import load_text


def test_codes_with_leading_zeros_stay_text_in_new_files(tmp_path):
    table = load_text(tmp_path / "t.csv", "zip\n" + "00123\n0123\nA12\n" * 10).table
    (tmp_path / "new.csv").write_text("zip\n00123\n0123\n")
    new = load(tmp_path / "new.csv", table=table).train.inputs
    assert sorted(new.tolist()) == [[0, 1, 0], [1, 0, 0]]


def test_integers_are_the_same_category_with_and_without_decimals(tmp_path):
    table = load_text(tmp_path / "t.csv", "a,b\n" + "1,0.5\n2,1.5\n3,7.5\n" * 20).table
    (tmp_path / "new.csv").write_text("a,b\n1.0,1\n2,1\n,1\n")
    one_hot = load(tmp_path / "new.csv", table=table).train.inputs[:, 1:]
    assert one_hot.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 0]]


@pytest.mark.parametrize(
    ("train", "new", "is_known"),
    [
        (["00123", "00456", "A7"], ["00123", "00456"], [1, 1]),
        (["1.0", "2.0", "x"], ["1.0", "2"], [1, 0]),
        (["True", "False", "maybe"], ["True", "true"], [1, 1]),
        (["2020-01-01", "unknown", "x"], ["2020-01-01", "2020-01-02"], [1, 0]),
        (["a", " ", "b"], ["a", " "], [1, 1]),
        ([" 1", " 2", "3"], ["1", " 2"], [1, 1]),
        (["1", "2", "3"], ["red", "3.0"], [0, 1]),
        (["01", "02", "03"], ["01", "2"], [1, 0]),
        ([str(2**53 + i) for i in range(3)], [str(2**53 + 1), str(2**53 + 5)], [1, 0]),
        (["-0.0", "2.0", "3.0"], ["0", "2"], [1, 1]),
    ],
)
def test_categories_of_test_files_and_new_files_match_those_of_the_training_file(tmp_path, train, new, is_known):
    paths = [tmp_path / "train.csv", tmp_path / "new.csv"]
    for path, values in zip(paths, (train * 20, new), strict=True):
        path.write_text("v,a\n" + "".join(f"{i * 0.37},{value}\n" for i, value in enumerate(values)))
    data = load(paths[0], DataSettings(test=str(paths[1])))
    assert data.test.inputs[:, 1:].sum(1).tolist() == is_known
    assert torch.equal(load(paths[1], table=data.table).train.inputs, data.test.inputs)
    assert torch.equal(load(paths[0], table=data.table).train.inputs, data.train.inputs)


@pytest.mark.parametrize("kind", ["b", "n", "s", "t", "f", "d"])
def test_a_categorical_column_is_the_same_from_csv_and_typed_files(tmp_path, kind):
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
    data = load(tmp_path / "t.csv", DataSettings(columns={"c": "categorical"}))
    for other in (tmp_path / "t.parquet", frame, frame.to_pandas(), polars.from_arrow(frame)):
        assert torch.equal(load(other, table=data.table).train.inputs, data.train.inputs)


def test_durations_and_time_zones_do_not_depend_on_how_they_are_stored():
    seconds = pa.array([5, 90, None, 7000], pa.duration("s"))
    times = pa.array([datetime(2020, 1, 1, h) for h in (0, 5, 11, 23)], pa.timestamp("us", "UTC"))
    table = pa.table({"d": seconds, "t": times})
    fitted = load(table).table
    other = pa.table({"d": seconds.cast(pa.duration("ns")), "t": times.cast(pa.timestamp("ns", "Asia/Tokyo"))})
    assert torch.equal(load(other, table=fitted).train.inputs, load(table, table=fitted).train.inputs)


def test_text_of_typed_sources_is_never_parsed_as_numbers():
    frame = pandas.DataFrame({"version": ["1.1", "1.10", "2.0"] * 5, "y": ["1.1", "1.2", "01"] * 5})
    data = load(frame, DataSettings(label="y"))
    assert data.table.columns[0].values == ("1.1", "1.10", "2.0")
    assert list(data.class_names) == ["01", "1.1", "1.2"]


def test_text_for_missing_values_is_missing_in_every_source(tmp_path):
    frame = pandas.DataFrame({"c": ["a", "?", "b", "NA"] * 5, "v": np.arange(20) * 0.5})
    frame.to_csv(tmp_path / "t.csv", index=False)
    data = load(tmp_path / "t.csv")
    assert torch.equal(load(frame, table=data.table).train.inputs, data.train.inputs)


def test_datetimes_with_a_time_zone_or_nanoseconds():
    text = pandas.DataFrame({"t": [f"2020-01-{day:02d}T09:00:00Z" for day in range(1, 29)]})
    typed = pandas.DataFrame({"t": pandas.to_datetime(text["t"])})
    assert torch.equal(load(text).train.inputs, load(typed).train.inputs)
    fine = pandas.DataFrame({"t": pandas.to_datetime(np.arange(40) * 86_400_000_000_001)})
    assert load(fine).table.kinds == {"t": "datetime"}


def test_numbers_are_not_dates():
    table = load(pandas.DataFrame({"t": pandas.date_range("2020-01-01", periods=9), "v": np.arange(9) * 0.5})).table
    with pytest.raises(InputError, match="column 't' cannot be read as datetime: it contains numbers; use ISO 8601"):
        table.encode(as_frame(pandas.DataFrame({"t": [1577836800, 1577923200], "v": [0.5, 1]})))


@pytest.mark.parametrize(
    ("good", "bad", "problem"),
    [
        ([], "03/12/2021", "is not a valid date"),
        (["2021-12-03"] * 1000, "03/12/2021", "is not a valid date"),
        (["2021-12-03", None, "2021-12-04 10:00"], "2021-13-04", "is not a valid date"),
        (["2021-12-03"], "2021-12-03T09:00:00Z", "has a time zone, but the first date has none"),
        (["2021-12-03T09:00:00Z"], "2021-12-03", "has no time zone, but the first date has one"),
    ],
)
def test_the_error_names_the_first_invalid_date_and_the_expected_format(tmp_path, good, bad, problem):
    frame = pandas.DataFrame({"v": 0.5, "on": [*good, bad, "2021-12-03", "then"]})
    message = (
        f"column 'on' cannot be read as datetime: '{bad}' {problem}; "
        "use ISO 8601 dates (2021-12-03), or a datetime column of a data frame or Parquet file"
    )
    table = load(pandas.DataFrame({"v": [0.5, 1.5], "on": ["2020-01-01", "2021-02-02"]})).table
    frame.to_csv(tmp_path / "t.csv", index=False)
    for data in (frame, frame.astype({"on": "category"}), tmp_path / "t.csv"):
        for options in ({"data_settings": DataSettings(columns={"on": "datetime"})}, {"table": table}):
            with pytest.raises(InputError) as error:
                load(data, **options)
            assert str(error.value) == message


def test_text_with_dates_is_a_datetime_column_in_frames_too():
    frame = pandas.DataFrame({"t": [f"2021-{month:02d}-15" for month in range(1, 13)], "e": ["", "a", "b"] * 4})
    table = load(frame).table
    assert table.kinds == {"t": "datetime", "e": "categorical"}
    assert None in table.columns[1].values and "" not in table.columns[1].values
