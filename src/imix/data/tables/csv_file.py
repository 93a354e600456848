"""CSV files, parsed with polars; files that it refuses, or that have short or blank lines, are parsed with arrow."""

import codecs
import csv
import io
import itertools
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from imix.data.tables.frame import Frame, arrow_path, check_names
from imix.data.tables.values import MISSING, POSSIBLE_CLASS_NAMES, is_text, trim
from imix.errors import InputError, first_line

COMPRESSIONS = {"": None, ".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
CSV_SUFFIXES = tuple(suffix + compression for suffix in (".csv", ".tsv") for compression in COMPRESSIONS)
MAX_HEADER_SIZE = 16 << 20  # bytes
MAX_INSPECTED = 200_000  # values of the first rows that decide which types are tried
MAX_ROW_SIZE = 64 << 20  # bytes
MAX_BLOCK_SIZE = 1 << 30  # bytes that arrow parses at a time
MAX_FIELD_SIZE = 16 << 20  # bytes
SCANNED_SIZE = 1 << 16  # bytes that fit into a cache
DELIMITERS = ",;\t|"
FIRST_LINE = r'(?:[^"\r\n]|"[^"]*")*'  # quotes may contain line breaks
PADDED = r"^\s*0\d"  # a code such as 00123
COMMA_FIELD = r"(?<![^;\t|]) *[-+]?\d*,\d+(?:[eE][-+]?\d+)? *(?![^;\t|])"  # a decimal comma between other delimiters

WORD = r"^\s*[A-EGHJ-MO-SU-Za-eghj-mo-su-z]"  # other words may be true, false, infinite or missing


class Layout(NamedTuple):
    """How a file is divided into columns."""

    skipped: str
    """Everything before the first row of data."""
    delimiter: str
    end_of_line: str
    columns: list[str]


def read_csv(
    path: Path, kinds: Mapping[str, str] | None = None, header: str = "auto", label: str | None = None
) -> Frame:
    """Read a CSV file in UTF-8, delimited by commas, semicolons, tabs or bars, plain or compressed.

    Parameters
    ----------
    path : Path
        The file.
    kinds : dict of str to str, optional
        Kinds of columns that are known. Categorical columns are kept as text.
    header : {"auto", "yes", "no"}
        Whether the first line has the column names. "auto" reads it as data if it consists of numbers other than
        0, 1, 2, ... Columns without names are called 0, 1, ...
    label : str, optional
        The label column. It is kept as text, in which "none" is a class and not a missing value.

    Returns
    -------
    Frame
        Types are inferred from the whole file. If semicolons delimit, 2,5 is read as 2.5.
    """
    import polars as pl
    import pyarrow as pa
    import pyarrow.compute as pc

    table = None
    try:
        content = _read(path)
        layout = _read_layout(content[:MAX_HEADER_SIZE], header)
        check_names(str(path), layout.columns)
        text_columns = {label, *(name for name, kind in (kinds or {}).items() if kind == "categorical")}
        is_text_column = [name in text_columns for name in layout.columns]
        # With a label, "none" is not null here; in other columns it is replaced when their text is converted.
        null_values = [value for value in MISSING if label is None or value not in POSSIBLE_CLASS_NAMES]
        with suppress(pl.exceptions.PolarsError):
            table = _parse_with_polars(content, layout, null_values, is_text_column)
        if table is None:
            table = _parse_with_arrow(content, layout, null_values)
    except (pa.ArrowException, csv.Error, UnicodeDecodeError, OSError) as error:
        hint = "; is it UTF-8?" if "utf" in str(error).lower() else ""
        raise InputError(f"cannot read {path} as .csv: {first_line(error)}{hint}") from error
    decimal_marks = ".," if layout.delimiter == ";" else "."
    columns = table.columns
    for i, column in enumerate(columns):
        if is_text(column.type) and (size := pc.max(pc.binary_length(column)).as_py() or 0) > MAX_FIELD_SIZE:
            raise InputError(
                f"column {layout.columns[i]!r} of {path} has a value of {size:,} bytes; at most {MAX_FIELD_SIZE:,} are "
                "read (is a quote never closed?)"
            )
        if is_text_column[i]:
            columns[i] = pc.if_else(pc.is_in(column, pa.array(null_values, column.type)), None, column)
        elif is_text(column.type):
            columns[i] = _convert_text(column, decimal_marks)
    return Frame(str(path), pa.table(columns, layout.columns), decimal_marks=decimal_marks)


def _read(path: Path) -> bytes:
    """Read and decompress a file. It is not memory-mapped: if it were truncated, the system would kill the process."""
    import pyarrow as pa

    content = io.BytesIO()
    with pa.input_stream(arrow_path(path), compression=COMPRESSIONS.get(path.suffix.lower())) as stream:
        while block := stream.read(MAX_ROW_SIZE):
            if len(block) == MAX_ROW_SIZE and b"\n" not in block and b"\r" not in block:
                raise InputError(f"cannot read {path} as .csv: a row has more than {MAX_ROW_SIZE:,} bytes")
            content.write(block)
    return content.getvalue()


def _read_layout(content: bytes, header: str) -> Layout:
    start = codecs.getincrementaldecoder("utf-8-sig")().decode(content)
    text = start.lstrip("\r\n")
    separator_line = re.match(r"sep=([^\r\n])\r?\n", text)  # tells Excel the delimiter
    if separator_line and not re.fullmatch(r"[\t !#-/:-@\[-`{-~]", separator_line[1]):
        raise csv.Error(f"the delimiter in its first line must be an ASCII symbol; got {separator_line[1]!r}")
    text = text[separator_line.end() :] if separator_line else text
    first = re.sub(r'"[^"]*"', "", next(re.finditer(FIRST_LINE, text))[0])
    # The most frequent delimiter of the first line, without counting decimal commas.
    delimiter = separator_line[1] if separator_line else max(DELIMITERS, key=re.sub(COMMA_FIELD, "", first).count)
    lines = io.StringIO(text, newline="")
    names = [name.strip() for name in next(csv.reader(lines, delimiter=delimiter), [])]
    mark = "." if delimiter == ";" else ","
    numbered = [str(number) for number in range(len(names))]
    try:
        is_data = names != numbered and bool([float(name.replace(",", mark)) for name in names])
    except ValueError:
        is_data = False
    if header == "no" or (header == "auto" and is_data):
        names = numbered
    else:
        text = text[lines.tell() :]
    return Layout(start[: len(start) - len(text)], delimiter, "\n" if "\n" in start else "\r", names)


def _parse_with_polars(content: bytes, layout: Layout, null_values: list[str], is_text_column: list[bool]) -> Any:
    """Parse with the types of the first rows or, if they do not fit the whole file, as text; None if it is irregular.

    Looking for null values takes half as long again as parsing numbers, so they are looked for only if there seem to be
    any. The columns are named 0, 1, ..., because polars does not support null bytes in names.
    """
    import polars as pl

    width = len(layout.columns)

    def parse(columns: Sequence[int] = range(width), **types: Any) -> pl.DataFrame:
        return pl.read_csv(
            content,
            has_header=False,
            columns=columns,
            new_columns=[str(i) for i in columns],
            skip_lines=layout.skipped.count(layout.end_of_line),
            separator=layout.delimiter,
            eol_char=layout.end_of_line,
            raise_if_empty=False,
            **types,
        )

    as_text = {str(i): pl.String for i in range(width) if is_text_column[i]}
    inferred: dict[str, Any] = {"infer_schema_length": 100 + MAX_INSPECTED // width, "schema_overrides": as_text}
    parsed = None
    for types in (inferred, inferred | {"null_values": null_values}):
        with suppress(pl.exceptions.ComputeError):
            parsed = parse(**types)
            start = parsed.head(1000).select(pl.col(pl.String).is_in(null_values).any())
            if not any(start.row(0)):
                break
    if parsed is None:
        parsed = parse(infer_schema=False, null_values=null_values)
    if not parsed.height or parsed.width != width:
        return None
    integers = [i for i, dtype in enumerate(parsed.dtypes) if dtype.is_integer()]
    if integers and _may_have_padding(content):  # parse the columns with codes such as 00123 as text
        texts = parse(integers, infer_schema=False, null_values=null_values)
        parsed = parsed.with_columns(text for text in texts if text.str.contains(PADDED).any())
    # polars fills short and blank lines with null values, also in the last column. If that has any, count delimiters.
    if parsed.to_series(width - 1).null_count():
        in_text = parsed.select(pl.col(pl.String).str.count_matches(layout.delimiter, literal=True).sum())
        expected = parsed.height * (width - 1) + sum(in_text.row(0)) + layout.skipped.count(layout.delimiter)
        if width == 1 or content.count(layout.delimiter.encode()) != expected:
            return None
    return parsed.cast({pl.Int128: pl.Float64}).rechunk().to_arrow()


def _may_have_padding(content: bytes) -> bool:
    """Whether a value may start with 0 and another digit."""
    for start in range(0, len(content), SCANNED_SIZE):
        before = content[start - 2 : start] if start > 1 else b"\n" + content[:start]
        characters = np.frombuffer(before + content[start : start + SCANNED_SIZE], np.uint8)
        is_digit = characters - np.uint8(ord("0")) < 10
        found = (characters[1:-1] == ord("0")) & is_digit[2:] & ~is_digit[:-2]
        if found.any() and (characters[:-2][found] != ord(".")).any():
            return True
    return False


def _parse_with_arrow(content: bytes, layout: Layout, null_values: list[str]) -> Any:
    """Parse all columns as text, without blank lines; raises an error that names the row if a row is malformed."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    table = arrow_csv.read_csv(
        pa.BufferReader(content),
        arrow_csv.ReadOptions(
            use_threads=False,  # with threads, errors do not name the row
            block_size=MAX_BLOCK_SIZE,
            column_names=layout.columns,
            skip_rows=layout.skipped.count(layout.end_of_line),
        ),
        arrow_csv.ParseOptions(delimiter=layout.delimiter, newlines_in_values=True),
        arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(layout.columns, pa.large_string()),
            null_values=null_values,
            strings_can_be_null=True,
        ),
    )
    last_row = [column[-1].as_py() for column in table.columns if table.num_rows]
    if any(value is not None and "\n" in value for value in last_row) and content.count(b'"') % 2:
        # The last row would contain all the rows that follow the quote.
        raise csv.Error(f"a quote in row {table.num_rows} is never closed")
    return table


def _convert_text(column: Any, decimal_marks: str) -> Any:
    """Convert text to numbers, booleans, dates or times if all values allow it; the first rows are tried first."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def from_commas(text: Any) -> Any:
        if pc.any(pc.match_substring(text, ".")).as_py():
            raise pa.ArrowInvalid("points and commas")
        return pc.replace_substring(text, ",", ".").cast(pa.float64())

    def from_clock(text: Any) -> Any:
        with_date = pc.binary_join_element_wise(pa.scalar("1970-01-01", text.type), text, pa.scalar(" ", text.type))
        return with_date.cast(pa.timestamp("s")).cast(pa.time32("s"))

    if pc.any(pc.match_substring_regex(column.slice(0, 1000), WORD)).as_py():
        return column
    types = (pa.int64(), pa.float64(), pa.bool_(), pa.timestamp("s"), pa.timestamp("us"))
    conversions = [*(partial(pc.cast, target_type=each) for each in types), from_clock]
    conversions += [from_commas] if "," in decimal_marks else []
    for prepare, convert in itertools.product((lambda text: text, trim), conversions):
        with suppress(pa.ArrowInvalid):
            convert(prepare(column.slice(0, 1000)))
            converted = convert(prepare(column))
            is_code = pa.types.is_integer(converted.type) and pc.any(pc.match_substring_regex(column, PADDED)).as_py()
            return column if is_code else converted
    return column
