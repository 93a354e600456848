"""CSV files, parsed with polars; files that it refuses, or that have short or blank lines, are parsed with arrow."""

import codecs
import csv
import io
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from imix.data.tables.frame import Frame, arrow_path, check_names
from imix.data.tables.values import MISSING, POSSIBLE_CLASS_NAMES, is_text, trim
from imix.errors import InputError, first_line

if TYPE_CHECKING:
    import polars as pl

COMPRESSIONS = {"": None, ".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
CSV_SUFFIXES = tuple(suffix + compression for suffix in (".csv", ".tsv") for compression in COMPRESSIONS)
MAX_HEADER_SIZE = 16 << 20  # bytes
MAX_INSPECTED = 200_000  # values of the first rows that decide which types are tried
BLOCK_SIZE = 1 << 22  # bytes that are searched at a time
MAX_ROW_SIZE = 1 << 30  # bytes
DELIMITERS = ",;\t|"
FIRST_LINE = r'(?:[^"\r\n]|"[^"]*")*'  # quotes may contain line breaks
COMMA_FIELD = r"(?<![^;\t|])\s*[-+]?\d*,\d+(?:[eE][-+]?\d+)?\s*(?![^;\t|])"  # a decimal comma between other delimiters


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

    layout = _read_layout(path, header)
    check_names(str(path), layout.columns)
    known = (kinds or {}) | ({} if label is None else {label: "categorical"})
    # polars gets numbers instead of names: it cannot export a name with a null byte.
    text_columns = {str(i) for i, name in enumerate(layout.columns) if known.get(name) == "categorical"}
    # With a label, "none" is not null here; in other columns it is replaced when their text is converted.
    null_values = [value for value in MISSING if label is None or value not in POSSIBLE_CLASS_NAMES]
    decimal_marks = ".," if layout.delimiter == ";" else "."
    try:
        parsed = _parse(path, layout, null_values, text_columns)
        table = None if _is_irregular(path, layout, parsed) else parsed.rechunk().to_arrow()
    except (pl.exceptions.PolarsError, OSError):
        table = None
    try:
        table = _parse_with_arrow(path, layout, null_values) if table is None else table
    except (pa.ArrowException, OSError) as error:
        hint = "; is it UTF-8?" if "UTF8" in str(error) else ""
        raise InputError(f"cannot read {path} as .csv: {first_line(error)}{hint}") from error
    columns = [
        column if str(i) in text_columns else _convert_text(column, decimal_marks)
        for i, column in enumerate(table.columns)
    ]
    return Frame(str(path), pa.table(columns, layout.columns), decimal_marks=decimal_marks)


def _read_layout(path: Path, header: str) -> Layout:
    import pyarrow as pa

    try:
        with _open(path) as stream:
            start = codecs.getincrementaldecoder("utf-8-sig")().decode(stream.read(MAX_HEADER_SIZE))
    except UnicodeDecodeError as error:
        raise InputError(f"cannot read {path} as .csv: {error}; is it UTF-8?") from error
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"cannot read {path} as .csv: {first_line(error)}") from error
    blank_lines, separator_line, delimiter = re.match(r"([\r\n]*)(sep=([\t -~])\r?\n)?", start).groups("")
    skipped = blank_lines + separator_line
    text = start[len(skipped) :]
    if not delimiter:  # the most frequent one in the first line, without counting decimal commas
        first = re.sub(r'"[^"]*"', "", re.match(FIRST_LINE, text)[0])
        delimiter = max(DELIMITERS, key=re.sub(COMMA_FIELD, "", first).count)
    lines = io.StringIO(text, newline="")
    try:
        names = [name.strip() for name in next(csv.reader(lines, delimiter=delimiter), [])]
    except csv.Error as error:
        raise InputError(f"cannot read the first line of {path} as .csv: {error}") from error
    numbered = [str(number) for number in range(len(names))]
    has_names = header == "yes" or (names == numbered or not all(_is_number(name, delimiter) for name in names))
    if header != "no" and has_names:
        skipped += text[: lines.tell()]
    else:
        names = numbered
    return Layout(skipped, delimiter, "\n" if "\n" in start else "\r", names)


def _is_number(text: str, delimiter: str) -> bool:
    try:
        float(text.replace(",", ".") if delimiter == ";" else text)
    except ValueError:
        return False
    return True


def _open(path: Path) -> Any:
    import pyarrow as pa

    return pa.input_stream(arrow_path(path), compression=COMPRESSIONS.get(path.suffix.lower()))


def _parse(path: Path, layout: Layout, null_values: list[str], text_columns: set[str]) -> "pl.DataFrame":
    """Parse with the types of the first rows or, if they do not fit the whole file, as text that is then converted."""
    import polars as pl

    names = [str(i) for i in range(len(layout.columns))]
    source: Any = arrow_path(path)
    if path.suffix.lower() == ".bz2":
        with _open(path) as stream:
            source = stream.read()

    def parse(**types: Any) -> pl.DataFrame:
        return pl.read_csv(
            source,
            has_header=False,
            new_columns=names,
            skip_lines=layout.skipped.count(layout.end_of_line),
            separator=layout.delimiter,
            eol_char=layout.end_of_line,
            null_values=null_values,
            raise_if_empty=False,
            glob=False,
            **types,
        )

    try:
        as_text = dict.fromkeys(text_columns, pl.String)
        parsed = parse(infer_schema_length=100 + MAX_INSPECTED // len(names), schema_overrides=as_text)
        return parsed.cast({pl.Int128: pl.Float64})
    except pl.exceptions.ComputeError:
        parsed = parse(infer_schema=False)
    for dtype in (pl.Int64, pl.Float64):
        texts = [name for name, kind in parsed.schema.items() if kind == pl.String and name not in text_columns]
        numbers = parsed.select(texts).cast(dtype, strict=False)
        nulls = zip(texts, numbers.null_count().row(0), parsed.select(texts).null_count().row(0), strict=True)
        parsed = parsed.with_columns(numbers.select([name for name, after, before in nulls if after == before]))
    return parsed


def _is_irregular(path: Path, layout: Layout, parsed: "pl.DataFrame") -> bool:
    """Whether there are no rows, or rows with too few values or none, which polars fills with null values.

    Such a row has no value in the last column. If there are any, the delimiters of the whole file are counted.
    """
    import polars as pl

    width = len(layout.columns)
    if not parsed.height or parsed.width != width:
        return True
    if not parsed.to_series(width - 1).null_count():
        return False
    in_text = parsed.select(pl.col(pl.String).str.count_matches(layout.delimiter, literal=True).sum())
    expected = parsed.height * (width - 1) + sum(in_text.row(0)) + layout.skipped.count(layout.delimiter)
    return width == 1 or _count(path, layout.delimiter) != expected


def _count(path: Path, character: str) -> int:
    total = 0
    with _open(path) as stream:
        while block := stream.read_buffer(BLOCK_SIZE):
            total += np.count_nonzero(np.frombuffer(block, np.uint8) == ord(character))
    return total


def _parse_with_arrow(path: Path, layout: Layout, null_values: list[str]) -> Any:
    """Parse all columns as text, without blank lines; raises an error that names the row if a row is malformed."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    with _open(path) as stream:
        table = arrow_csv.read_csv(
            stream,
            arrow_csv.ReadOptions(
                block_size=MAX_ROW_SIZE,
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
    if any(value is not None and "\n" in value for value in last_row) and _count(path, '"') % 2:
        # The last row would contain all the rows that follow the quote.
        raise InputError(f"cannot read {path} as .csv: a quote in row {table.num_rows} is never closed")
    return table


def _convert_text(column: Any, decimal_marks: str) -> Any:
    """Convert text to numbers, booleans or dates if all values allow it; the first values are tried alone first."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not is_text(column.type):
        return column

    def from_commas(text: Any) -> Any:
        if "," not in decimal_marks or pc.any(pc.match_substring(text, ".")).as_py():
            raise pa.ArrowInvalid("no decimal commas")
        return pc.replace_substring(text, ",", ".").cast(pa.float64())

    def from_clock(text: Any) -> Any:
        dates = pc.binary_join_element_wise(pa.scalar("1970-01-01", text.type), text, pa.scalar(" ", text.type))
        return dates.cast(pa.timestamp("s")).cast(pa.time32("s"))

    types = (pa.int64(), pa.float64(), pa.bool_(), pa.timestamp("s"), pa.timestamp("us"))
    conversions: list[Callable[[Any], Any]] = [
        from_commas,
        *(lambda text, t=t: text.cast(t) for t in types),
        from_clock,
    ]
    for convert in conversions:
        try:
            convert(trim(column.slice(0, 1000)))
            return convert(trim(column))
        except pa.ArrowInvalid:
            continue
    return column
