"""CSV files: delimiters, headers, types, decimal commas and invalid files."""

import gzip
import subprocess
import sys
import time
from contextlib import suppress

import numpy as np
import pandas
import polars
import pytest
import torch

from imix import DataSettings, InputError
from imix.data import load
from imix.data.tables import csv_file, frame
from tests.data.tables.helpers import load_text


@pytest.fixture
def prices():
    """Fractions, integers with missing values (pandas writes 1,0), text with commas, and numeric classes."""
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


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_delimiters_and_line_endings(tmp_path, delimiter, end):
    lines = [["a", "b b", "c"], *[[str(i / 2), "x" if i % 2 else "y", "?"] for i in range(20)]]
    data = load_text(tmp_path / "t.csv", "\ufeff" + end.join(delimiter.join(line) for line in lines) + end)
    assert {column.name: column.kind for column in data.table.columns} == {"a": "numeric", "b b": "categorical"}
    assert len(data.train) == 20


def test_quotes_newlines_and_spaces_in_fields(tmp_path):
    data = load_text(tmp_path / "t.csv", 'a, b\n1.5, x\n2.5,"y\nz, ""w"""\n' + "3.5,x \n" * 18)
    assert [column.name for column in data.table.columns] == ["a", "b"]
    assert data.table.columns[1].values == ("x", 'y\nz, "w"')


def test_a_compressed_file_gives_the_same_rows(tmp_path, people_csv):
    (tmp_path / "people.csv.gz").write_bytes(gzip.compress(people_csv.read_bytes()))
    assert torch.equal(load(tmp_path / "people.csv.gz").train.inputs, load(people_csv).train.inputs)


def test_columns_of_a_file_without_header_are_numbered(tmp_path):
    np.savetxt(tmp_path / "t.csv", np.random.default_rng(0).normal(size=(30, 3)), delimiter=",")
    assert [column.name for column in load(tmp_path / "t.csv").table.columns] == ["0", "1", "2"]
    assert len(load(tmp_path / "t.csv").train) == 30


@pytest.mark.slow
@pytest.mark.parametrize(
    ("early", "late", "kind"),
    [("1", "2.5", "numeric"), ("", "2.5", "numeric"), ("1", "x", "categorical"), ("2020-01-01", "soon", "categorical")],
)
def test_types_are_inferred_from_the_whole_file_not_its_first_block(tmp_path, early, late, kind):
    text = "a,b\n" + f"{early},padding padding padding\n" * 60_000 + f"{late},padding\n" * 3
    kinds = {column.name: column.kind for column in load_text(tmp_path / "t.csv", text).table.columns}
    assert kinds == {"a": kind, "b": "categorical"}


def test_decimal_commas_give_the_same_numbers_as_decimal_points(prices, tmp_path):
    prices.to_csv(tmp_path / "points.csv", index=False)
    prices.to_csv(tmp_path / "commas.csv", index=False, sep=";", decimal=",")
    prices.to_csv(tmp_path / "other.csv", index=False, sep=";")
    data_settings = DataSettings(label="y", columns={"half": "categorical"})
    points, commas, other = (load(tmp_path / f"{name}.csv", data_settings) for name in ("points", "commas", "other"))
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


def test_a_table_fitted_with_decimal_points_encodes_decimal_commas_and_vice_versa(prices, tmp_path):
    paths = [tmp_path / "points.csv", tmp_path / "commas.csv"]
    prices.to_csv(paths[0], index=False)
    prices.to_csv(paths[1], index=False, sep=";", decimal=",")
    expected = load(prices).train.inputs
    for path in paths:
        data = load(path, DataSettings(test=str(paths[0])))
        for other in (data.test, *(load(source, table=data.table).train for source in (*paths, prices))):
            assert torch.equal(other.inputs, data.train.inputs)
        assert torch.equal(load(path, table=load(prices).table).train.inputs, expected)


@pytest.mark.slow
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
def test_decimal_commas_are_inferred_from_the_whole_file_not_its_first_block(tmp_path, early, late, kind):
    text = "a;b\n" + f"{early};padding, padding, padding\n" * 60_000 + f"{late};padding\n" * 3
    data = load_text(tmp_path / "t.csv", text, standardize="none")
    assert data.table.kinds == {"a": kind, "b": "categorical"}
    if kind == "numeric":
        assert data.train.inputs[-1, 0] == pytest.approx(float(late.replace(",", ".")))


def test_columns_of_one_file_may_use_different_decimal_marks(tmp_path):
    data = load_text(tmp_path / "t.csv", "a;b;c\n" + "1,5;2.5;0,5\n2,5;3.5;,25\n" * 5, standardize="none")
    assert data.train.inputs[:2].tolist() == [[1.5, 2.5, 0.5], [2.5, 3.5, 0.25]]


def test_commas_are_not_decimal_marks_unless_semicolons_delimit(tmp_path):
    for delimiter in "\t|":
        text = f"a{delimiter}b\n" + f"1,234{delimiter}1.5\n999{delimiter}2.5\n12,500{delimiter}3.5\n" * 9
        assert load_text(tmp_path / "t.csv", text).table.kinds == {"a": "categorical", "b": "numeric"}


def test_a_file_with_decimal_commas_and_without_header(tmp_path):
    data = load_text(tmp_path / "t.csv", "1,5;2,5;3,5\n4,5;5,5;9,5\n", standardize="none")
    assert data.train.inputs.tolist() == [[1.5, 2.5, 3.5], [4.5, 5.5, 9.5]]
    data = load_text(tmp_path / "t.csv", "x;1,5;2,5\ny;3,5;5,5\n", standardize="none", header="no")
    assert data.train.inputs[:, :2].tolist() == [[1.5, 2.5], [3.5, 5.5]]
    data = load_text(tmp_path / "t.csv", "1,5;;3,5;4,5\n4,5;5,5;9,5;2,5\n", header="no", columns={"1": "drop"})
    assert len(data.train) == 2


def test_text_with_commas_is_text_as_in_frames(tmp_path):
    frame = pandas.DataFrame({"size": ["1,5", "2,5", "large"] * 10, "v": np.arange(30) * 0.5})
    frame.to_csv(tmp_path / "t.csv", sep=";", index=False)
    frame[:2].to_csv(tmp_path / "new.csv", sep=";", index=False)
    table = load(frame).table
    assert table.columns[1].values == ("1,5", "2,5", "large")
    assert load(tmp_path / "t.csv").table == table
    assert load(tmp_path / "new.csv", table=table).train.inputs[:, 1:].tolist() == [[1, 0, 0], [0, 1, 0]]


def test_a_quoted_comma_is_not_a_decimal_comma_if_commas_delimit(tmp_path):
    assert load_text(tmp_path / "t.csv", "a,b\n" + '"1,500",0.5\n"2,500",1.5\n' * 5).table.kinds["a"] == "categorical"


@pytest.mark.parametrize(
    ("header", "rows", "columns"),
    [
        ("0,1,2", 3, ["0", "1", "2"]),
        ("2019,2020,2021", 4, ["0", "1", "2"]),
        ("0.5,1,2", 4, ["0", "1", "2"]),
        ("7,7,2", 4, ["0", "1", "2"]),
    ],
)
def test_a_first_line_of_numbers_is_data_unless_it_counts_the_columns(tmp_path, header, rows, columns):
    data = load_text(tmp_path / "t.csv", header + "\n" + "0.25,1.5,3.5\n1.25,2.5,0.5\n3.25,2.25,9.5\n")
    assert (len(data.train), list(data.table.kinds)) == (rows, columns)


def test_the_header_option_decides_what_the_first_line_is(tmp_path):
    text = "2019,2020\n0.25,1.5\n1.25,2.5\n"
    assert list(load_text(tmp_path / "t.csv", text, header="yes").table.kinds) == ["2019", "2020"]
    assert len(load_text(tmp_path / "t.csv", "x,y\nz,y\n", header="no").train) == 2


def test_quoted_column_names_may_have_newlines_and_delimiters(tmp_path):
    data = load_text(tmp_path / "t.csv", '"price\n(EUR)";"Last, First, Middle"\n' + '1.5;"A, B"\n2.5;"C, D"\n' * 5)
    assert data.table.kinds == {"price\n(EUR)": "numeric", "Last, First, Middle": "categorical"}
    assert len(data.train) == 10


def test_a_long_field_in_the_first_row(tmp_path):
    assert len(load_text(tmp_path / "t.csv", "t,b\n" + "x" * 140_000 + ",1.5\nx,2.5\n").train) == 2


def test_many_columns_that_become_text_late_are_read_in_three_passes(tmp_path, monkeypatch):
    passes = []
    parse = polars.read_csv
    monkeypatch.setattr(polars, "read_csv", lambda *args, **options: passes.append(1) or parse(*args, **options))
    rows = [",".join(["7"] * 39 + [str(i / 8)]) for i in range(20_000)] + [",".join(["x"] * 39 + ["0.25"])]
    data = load_text(tmp_path / "t.csv", "\n".join([",".join(f"c{i}" for i in range(40)), *rows]))
    assert list(data.table.kinds.values()) == ["numeric"] + ["categorical"] * 39
    assert len(passes) == 3


def test_uppercase_suffix_blank_lines_and_long_rows(tmp_path):
    assert len(load_text(tmp_path / "T.CSV", "\n\na,b\n\n1.5,2.5\n\n2.5,4\n").train) == 2
    wide = ",".join(f"c{i}" for i in range(200)) + "\n" + 3 * (",".join(["0." + "1" * 6000] * 200) + "\n")
    assert load_text(tmp_path / "wide.csv", wide).train.shape == (200,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "has no columns"),
        (b"a,b\n", "has no rows"),
        (b"a,b\n1,2\n1,2,3\n", "Expected 2 columns, got 3"),
        (b"a,a\n1,2\n", "several columns called 'a'"),
        ("a,b\n1,café\n".encode("latin-1") * 3, "UTF-8"),
        (b"a,b\n1.5,inf\n2,1\n", "column 'b' .* has 1 infinite values, the first in row 0"),
        (b"a\n" + b"".join(b"text %d\n" % i for i in range(300)), "no column to learn from .*'a': almost every"),
    ],
)
def test_invalid_csv_files_are_an_error(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        load_text(tmp_path / "t.csv", text)


@pytest.mark.parametrize("ending", ["", ",", ',"x, y"'])
def test_a_short_row_is_an_error_that_names_it_even_if_the_last_column_has_missing_values(tmp_path, ending):
    rows = ['1.5,"a, b",2', '2.5,"c ""d"", e",', "3.5,f,4"] * 10
    assert len(load_text(tmp_path / "t.csv", "a,b,c\n" + "\n".join(rows)).train) == 30
    rows[17] = f"7{ending}"
    with pytest.raises(InputError, match="Row #19: Expected 3 columns, got"):
        load_text(tmp_path / "t.csv", "a,b,c\n" + "\n".join(rows))


def test_missing_values_and_delimiters_in_text_do_not_need_the_slow_parser(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_file, "_parse_with_arrow", None)
    rows = '1.5,"a, b",2.5\n2.5,"c ""d"", e",\n,"",NA\n'
    data = load_text(tmp_path / "t.csv", '"a,b",b,c\n' + rows * 10)
    assert data.table.kinds == {"a,b": "numeric", "c": "numeric", "b": "categorical"}
    assert data.train.inputs[:3, -3:].tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]


def test_blank_lines_are_skipped_and_rows_without_values_are_not(tmp_path):
    data = load_text(tmp_path / "t.csv", "a,b\n" + "1.5,x\n\n,\n2.5,y\n" * 10 + "\n")
    assert len(data.train) == 30
    assert len(load_text(tmp_path / "t.csv", "a\n1.5\n\n2.5\n4\n\n").train) == 3


def test_quotes_within_words_are_kept(tmp_path):
    data = load_text(tmp_path / "t.csv", "a,b\n" + '1.5,5" pipe\n2.5,"x, ""y"""\n3,z\n' * 9)
    assert data.table.columns[1].values == ('5" pipe', 'x, "y"', "z")


def test_times_of_day_are_numbers(tmp_path):
    text = "t\n" + "".join(f"{minute // 60:02d}:{minute % 60:02d}\n" for minute in range(0, 1440, 7))
    data = load_text(tmp_path / "t.csv", text, standardize="none")
    assert data.table.kinds == {"t": "numeric"} and data.train.inputs[:3, 0].tolist() == [0, 420, 840]


def test_a_file_with_one_row_of_text_can_be_loaded(tmp_path):
    assert len(load_text(tmp_path / "t.csv", "a,b\nx1,y1\n").train) == 1


def test_an_excel_separator_line_is_not_the_header(tmp_path):
    path = tmp_path / "excel.csv"
    path.write_text("sep=;\r\na;b\r\n" + "1,5;x\r\n2,25;y\r\n" * 20, newline="")
    table = load(path).table
    assert table.kinds == {"a": "numeric", "b": "categorical"}


def test_an_unknown_column_hints_at_a_first_line_that_was_read_as_data(tmp_path):
    path = tmp_path / "years.csv"
    path.write_text("2019,2020\n" + "1.5,3\n2.5,4\n" * 20)
    with pytest.raises(
        InputError, match=r"no column '2020'; its columns are '0', '1' \(the first line .*`header='yes'`"
    ):
        load(path, DataSettings(label="2020"))
    data = load(path, DataSettings(label="2020", header="yes"))
    assert data.class_names == ["3", "4"]


@pytest.mark.parametrize(
    "first_line",
    ["\t" * 60_000, " " * 200_000, ("1,5" + " " * 50 + "\t") * 4000, "1" * 60_000, "a\t" * 250_000, '"' * 60_001],
    ids=["tabs", "spaces", "decimal commas", "digits", "names", "quotes"],
)
def test_any_first_line_takes_linear_time(tmp_path, first_line):
    started = time.process_time()
    with suppress(InputError):
        load_text(tmp_path / "t.csv", f"{first_line}\n1\t2\n3\t4\n")
    assert time.process_time() - started < 2


def test_duplicate_names_are_listed_up_to_a_limit(tmp_path):
    names = "\t".join([f"column {i}" for i in range(1000)] * 2)
    with pytest.raises(InputError, match=r"several columns called .* and 990 more") as error:
        load_text(tmp_path / "t.csv", f"{names}\n")
    assert len(str(error.value)) < 500


def test_too_many_columns_are_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(frame, "MAX_COLUMNS", 3)
    with pytest.raises(InputError, match="has 4 columns; at most 3 are read"):
        load_text(tmp_path / "t.csv", "a,b,c,d\n1,2,3,4\n")


@pytest.mark.parametrize("delimiter", ["é", "€", '"', "a", "1"])
def test_a_separator_that_cannot_delimit_is_an_error(tmp_path, delimiter):
    with pytest.raises(InputError, match=f"the delimiter in its first line must be an ASCII symbol; got '{delimiter}'"):
        load_text(tmp_path / "t.csv", f"sep={delimiter}\na{delimiter}b\n1{delimiter}2\n")


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_rows_and_fields_have_a_maximum_size(tmp_path, monkeypatch, suffix):
    def load_bytes(content):
        (tmp_path / f"t{suffix}").write_bytes(gzip.compress(content) if suffix == ".csv.gz" else content)
        return load(tmp_path / f"t{suffix}")

    monkeypatch.setattr(csv_file, "MAX_ROW_SIZE", 10_000)
    monkeypatch.setattr(csv_file, "MAX_FIELD_SIZE", 1000)
    rows = b"1,2\n" * 10_000
    assert len(load_bytes(b"a,b\n3," + b"x" * 1000 + b"\n" + rows).train) == 10_001
    with pytest.raises(InputError, match=r"column 'b' of .* has a value of 1,001 bytes; at most 1,000 are read"):
        load_bytes(b"a,b\n3," + b"x" * 1001 + b"\n" + rows)
    with pytest.raises(InputError, match="a row has more than 10,000 bytes"):
        load_bytes(b"a,b\n3," + b"x" * 30_000 + b"\n" + rows)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_file_that_shrinks_while_it_is_read_does_not_kill_the_process(tmp_path, suffix):
    """Reading a memory-mapped file behind its end would be a SIGBUS."""
    table = polars.DataFrame({f"c{i}": np.random.default_rng(i).normal(size=30_000) for i in range(4)})
    path = tmp_path / f"t.{suffix}"
    table.write_csv(path) if suffix == "csv" else table.write_parquet(path)
    module, name = ("polars", "read_csv") if suffix == "csv" else ("pyarrow.parquet", "ParquetFile.read")
    script = f"""
import importlib, os
from imix import InputError
from imix.data import load
module = importlib.import_module({module!r})
*owner, name = {name!r}.split(".")
owner = getattr(module, owner[0]) if owner else module
read = getattr(owner, name)
def shrink_and_read(*arguments, **options):
    os.truncate({str(path)!r}, 4096)
    return read(*arguments, **options)
setattr(owner, name, shrink_and_read)
try:
    print(len(load({str(path)!r}).train))
except InputError as error:
    print(error)
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "30000" if suffix == "csv" else "cannot read" in result.stdout


@pytest.mark.parametrize("codes", [["007", "12", "345"], ["07", "8", "9"], [" 01", "2", ""], ["1", "2", "03"]])
@pytest.mark.parametrize("early", [["5"] * 9, []])
def test_zero_padded_codes_stay_text(tmp_path, codes, early):
    values = (early + codes) * 10
    text = "code,size,when\n" + "".join(f"{code},{i * 0.5},01/02/2021\n" for i, code in enumerate(values))
    for name, content in (("t.csv", text), ("irregular.csv", text.replace("code", "\ncode", 1) + "\n\n")):
        data = load_text(tmp_path / name, content)
        (column,) = (column for column in data.table.columns if column.name == "code")
        assert {value for value in column.values if value} == {code.strip() for code in values if code}


def test_numbers_with_zeros_are_no_codes(tmp_path):
    rows = [f"{i},{'0.50' if i % 2 else '10'},{i * 100},-0{i % 7}" for i in range(40, 90)]
    data = load_text(tmp_path / "t.csv", "a,b,c,d\n" + "\n".join(rows) + "\n")
    assert data.table.kinds == {"b": "numeric", "c": "numeric", "d": "numeric"}


def test_padding_is_found_at_the_border_of_two_blocks(tmp_path, monkeypatch):
    text = "a,b\n" + "5,0.5\n" * 30 + "07,1.5\n" * 30
    for size in range(1, 9):
        monkeypatch.setattr(csv_file, "SCANNED_SIZE", size)
        assert set(load_text(tmp_path / "t.csv", text).table.columns[1].values) == {"5", "07"}


def test_a_code_can_be_declared_to_be_a_number(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n" + "".join(f"{i:03},{i * 0.5}\n" for i in range(0, 60, 3)))
    data = load(tmp_path / "t.csv", DataSettings(columns={"a": "numeric"}))
    assert torch.allclose(data.train.inputs[:, 0], data.train.inputs[:, 1])
