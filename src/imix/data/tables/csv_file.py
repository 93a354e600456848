"""CSV files: parsed once, in blocks, into typed columns on disk, so that a file may be larger than memory."""

import codecs
import csv
import io
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from imix.data.tables.frame import Frame, arrow_path
from imix.data.tables.values import MISSING, POSSIBLE_CLASS_NAMES
from imix.errors import InputError, StorageError, first_line, storage_errors
from imix.progress import ProgressLine

COMPRESSIONS = {"": None, ".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
CSV_SUFFIXES = tuple(suffix + compression for suffix in (".csv", ".tsv") for compression in COMPRESSIONS)
BLOCK_SIZE, MAX_BLOCK_SIZE = 1 << 20, 1 << 30  # bytes parsed at a time; the size grows if a row does not fit
MAX_TYPE_CHANGES = 3  # after this many columns had to change their type, all columns are read as text
DELIMITERS = ",;\t|"
COMMA_NUMBER = r"^[-+]?(?:\d+|\d*,\d+)(?:[eE][-+]?\d+)?$"  # an integer, or a number with a decimal comma
COMMA_FIELD = r"(?<![^;\t|])\s*[-+]?\d*,\d+(?:[eE][-+]?\d+)?\s*(?![^;\t|])"  # such a number between other delimiters


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
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    skip_rows, delimiter, columns = _read_header(path, header)
    Frame(str(path), tuple(columns), 1, lambda name: None)  # fail early if names occur twice
    text = pa.string()
    text_columns = {label, *(name for name, kind in (kinds or {}).items() if kind == "categorical")}
    # With a label, "none" is not null here; in other columns _convert_text replaces it afterwards.
    null_values = [value for value in MISSING if label is None or value not in POSSIBLE_CLASS_NAMES]
    types = {name: text for name in columns if name in text_columns}
    block_size, type_changes = BLOCK_SIZE, 0
    decimal_marks = ".," if delimiter == ";" else "."
    decimal_mark = "." if decimal_marks == "." else ""

    def open_reader(mark: str) -> Any:
        return arrow_csv.open_csv(
            _open(path),
            arrow_csv.ReadOptions(block_size=block_size, column_names=columns, skip_rows=skip_rows),
            arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            arrow_csv.ConvertOptions(
                column_types=types, null_values=null_values, strings_can_be_null=True, decimal_point=mark
            ),
        )

    def count_float_columns(mark: str) -> int:
        return sum(pa.types.is_floating(field.type) for field in open_reader(mark).schema)

    table = None
    while table is None:
        try:
            # The mark that fits most columns; columns with the other one are text until _convert_text.
            decimal_mark = decimal_mark or max(decimal_marks, key=count_float_columns)
            types = {field.name: _general_type(field.type) for field in open_reader(decimal_mark).schema} | types
            table = _write_to_disk(open_reader(decimal_mark), path.name)
        except StorageError:
            raise
        except (pa.ArrowInvalid, OSError) as error:
            failed = [columns[int(number)] for number in re.findall(r"CSV column #(\d+)", str(error))]
            if failed and types.get(failed[0]) != text:  # the type of the first block does not fit the whole file
                type_changes += 1
                types = _widen_types(types, failed[0] if type_changes <= MAX_TYPE_CHANGES else None)
            elif "straddling" in str(error) and block_size < MAX_BLOCK_SIZE:
                block_size *= 8
            else:
                hint = "; is it UTF-8?" if "UTF8" in str(error) else ""
                raise InputError(f"cannot read {path} as .csv: {first_line(error)}{hint}") from error

    _check_quotes(path, table)

    def read_column(name: str) -> Any:
        column = table.column(name)
        is_untyped = types[name] == text and name not in text_columns
        return _convert_text(column, decimal_marks) if is_untyped else column

    return Frame(str(path), tuple(columns), table.num_rows, read_column, decimal_marks=decimal_marks)


def _read_header(path: Path, header: str) -> tuple[int, str, list[str]]:
    """Return the number of lines to skip, the delimiter and the column names."""
    import pyarrow as pa

    try:
        with _open(path) as stream:
            start = codecs.getincrementaldecoder("utf-8-sig")().decode(stream.read(16 * BLOCK_SIZE))
    except UnicodeDecodeError as error:
        raise InputError(f"cannot read {path} as .csv: {error}; is it UTF-8?") from error
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"cannot read {path} as .csv: {first_line(error)}") from error
    text = start.lstrip("\r\n")
    separator_line = re.match(r"sep=(.)\r?\n", text)  # tells Excel the delimiter
    text = text[separator_line.end() :] if separator_line else text
    skipped = start[: len(start) - len(text)].count("\n")
    unquoted = re.sub(r'"(?:[^"]|"")*"', "", text).splitlines() or [""]
    delimiter = separator_line[1] if separator_line else _find_delimiter(unquoted[0])
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        names = [name.strip() for name in next(reader, [])]
    except csv.Error as error:
        raise InputError(f"cannot read the first line of {path} as .csv: {error}") from error
    numbered = [str(number) for number in range(len(names))]
    if header == "no" or (
        header == "auto" and names != numbered and all(_is_number(name, delimiter) for name in names)
    ):
        return skipped, delimiter, numbered
    return skipped + reader.line_num, delimiter, names


def _find_delimiter(line: str) -> str:
    """Return the most frequent delimiter of the first line, without counting decimal commas."""
    return max(DELIMITERS, key=re.sub(COMMA_FIELD, "", line).count)


def _open(path: Path) -> Any:
    import pyarrow as pa

    return pa.input_stream(arrow_path(path), compression=COMPRESSIONS.get(path.suffix.lower()))


def _check_quotes(path: Path, table: Any) -> None:
    """Raise an error if a quote is never closed: the last row would contain all the rows that follow the quote."""
    last_row = [column[-1].as_py() for column in table.columns if table.num_rows]
    if not any(isinstance(value, str) and "\n" in value for value in last_row):
        return
    quotes = 0
    with _open(path) as stream:
        while block := stream.read(BLOCK_SIZE):
            quotes += block.count(b'"')
    if quotes % 2:
        raise InputError(f"cannot read {path} as .csv: a quote in row {table.num_rows} is never closed")


def _is_number(text: str, delimiter: str) -> bool:
    try:
        float(text.replace(",", ".") if delimiter == ";" else text)
    except ValueError:
        return False
    return True


def _general_type(inferred: Any) -> Any:
    """Return the type to read a column with, given the type that was inferred from the first block."""
    import pyarrow as pa

    if pa.types.is_date(inferred):
        return pa.timestamp("s")  # later rows may have a time of day
    return pa.string() if pa.types.is_null(inferred) or pa.types.is_binary(inferred) else inferred


def _widen_types(types: dict[str, Any], failed: str | None) -> dict[str, Any]:
    """Return types for the next attempt: floats if integers failed, otherwise text; all text if `failed` is None."""
    import pyarrow as pa

    if failed is None:
        return dict.fromkeys(types, pa.string())
    if pa.types.is_integer(types[failed]):
        return {name: pa.float64() if pa.types.is_integer(kind) else kind for name, kind in types.items()}
    return types | {failed: pa.string()}


def _write_to_disk(reader: Any, name: str) -> Any:
    """Write all blocks to a temporary file and map it into memory; the file disappears with the last reference."""
    import pyarrow as pa

    with tempfile.NamedTemporaryFile(prefix="imix-", suffix=".arrow") as file:
        path, rows, size = Path(file.name), 0, 0
        progress = ProgressLine(f"reading {name}", unit="rows so far")
        with storage_errors(path):
            writer = pa.ipc.new_file(file.name, reader.schema)
        for block in reader:
            rows, size = rows + block.num_rows, size + block.nbytes
            with storage_errors(path, size):
                writer.write_batch(block)
            progress(rows)
        with storage_errors(path, size):
            writer.close()
        return pa.ipc.open_file(pa.memory_map(file.name)).read_all()


def _convert_text(column: Any, decimal_marks: str) -> Any:
    """Convert a column that was read as text to numbers, booleans or dates if all of its values allow it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    trimmed = pc.utf8_trim_whitespace(column)
    trimmed = pc.if_else(pc.is_in(trimmed, pa.array(MISSING)), None, trimmed)
    for arrow_type in (pa.int64(), pa.float64(), pa.bool_(), pa.timestamp("s"), pa.timestamp("us")):
        try:
            return trimmed.cast(arrow_type)
        except pa.ArrowInvalid:
            continue
    if "," in decimal_marks and pc.all(pc.match_substring_regex(trimmed, COMMA_NUMBER)).as_py():
        return pc.replace_substring(trimmed, ",", ".").cast(pa.float64())
    return trimmed
