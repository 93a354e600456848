"""CSV files: read once, in blocks, into typed columns on disk, so that a file may be larger than memory."""

import codecs
import csv
import io
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from imix.data.frame import Frame, place_for_arrow
from imix.data.values import MISSING, WORDS
from imix.errors import InputError, StorageError, first_line, storing
from imix.progress import Told

COMPRESSIONS = {"": None, ".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
CSV = tuple(kind + compression for kind in (".csv", ".tsv") for compression in COMPRESSIONS)
BLOCK, LARGEST_BLOCK = 1 << 20, 1 << 30  # bytes parsed at a time; more where a row needs it
PATIENCE = 3  # columns that may turn out to be text after all, before all are read as text at once
DELIMITERS = ",;\t|"
WITH_COMMA = r"^[-+]?(?:\d+|\d*,\d+)(?:[eE][-+]?\d+)?$"  # a number, whole or with a decimal comma
FRACTION = r"(?<![^;\t|])\s*[-+]?\d*,\d+(?:[eE][-+]?\d+)?\s*(?![^;\t|])"  # one with a comma, between other delimiters


def read_csv(
    path: Path, kinds: Mapping[str, str] | None = None, header: str = "auto", label: str | None = None
) -> Frame:
    """A CSV file: comma, semicolon, tab or bar, plain or compressed, in UTF-8.

    The first line names the columns. With `header` "no", or "auto" and a first line of numbers other than 0, 1, 2, ...,
    it is a row, and the columns are called 0, 1, ... Types are found out from the whole file; a column whose kind is
    known to be categorical stays text, and so does the label, among whose classes may be one called "none". Where
    semicolons delimit, 2,5 is 2.5.
    """
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    skipped, delimiter, columns = _header(path, header)
    Frame(str(path), tuple(columns), 1, lambda name: None)  # names that occur twice are refused before the work
    text = pa.string()
    kept = {label, *(name for name, kind in (kinds or {}).items() if kind == "categorical")}
    gaps = [text for text in MISSING if label is None or text not in WORDS]  # other columns have theirs found later
    types = {name: text for name in columns if name in kept}
    block, failures = BLOCK, 0
    marks = ".," if delimiter == ";" else "."
    mark = "." if marks == "." else ""

    def start(mark: str) -> Any:
        return arrow_csv.open_csv(
            _open(path),
            arrow_csv.ReadOptions(block_size=block, column_names=columns, skip_rows=skipped),
            arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            arrow_csv.ConvertOptions(
                column_types=types, null_values=gaps, strings_can_be_null=True, decimal_point=mark
            ),
        )

    def fractions(mark: str) -> int:
        return sum(pa.types.is_floating(field.type) for field in start(mark).schema)

    table = None
    while table is None:
        try:
            mark = mark or max(marks, key=fractions)  # what most columns have; others are text at first
            types = {field.name: _lasting(field.type) for field in start(mark).schema} | types
            table = _on_disk(start(mark), path.name)
        except StorageError:
            raise
        except (pa.ArrowInvalid, OSError) as error:
            failed = [columns[int(number)] for number in re.findall(r"CSV column #(\d+)", str(error))]
            if failed and types.get(failed[0]) != text:  # the first block's type does not hold for the file
                failures += 1
                types = _wider(types, failed[0] if failures <= PATIENCE else None)
            elif "straddling" in str(error) and block < LARGEST_BLOCK:
                block *= 8
            else:
                hint = "; is it UTF-8?" if "UTF8" in str(error) else ""
                raise InputError(f"cannot read {path} as .csv: {first_line(error)}{hint}") from error

    _check_quotes(path, table)

    def column(name: str) -> Any:
        found = table.column(name)
        return _settled(found, marks) if types[name] == text and name not in kept else found

    return Frame(str(path), tuple(columns), table.num_rows, column, marks=marks)


def _header(path: Path, header: str) -> tuple[int, str, list[str]]:
    """How many lines to skip, the delimiter, and the names of the columns."""
    import pyarrow as pa

    try:
        with _open(path) as stream:
            start = codecs.getincrementaldecoder("utf-8-sig")().decode(stream.read(16 * BLOCK))
    except UnicodeDecodeError as error:
        raise InputError(f"cannot read {path} as .csv: {error}; is it UTF-8?") from error
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"cannot read {path} as .csv: {first_line(error)}") from error
    text = start.lstrip("\r\n")
    said = re.match(r"sep=(.)\r?\n", text)  # which is how some files tell Excel
    text = text[said.end() :] if said else text
    blank = start[: len(start) - len(text)].count("\n")
    unquoted = re.sub(r'"(?:[^"]|"")*"', "", text).splitlines() or [""]
    delimiter = said[1] if said else _delimiter(unquoted[0])
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        names = [name.strip() for name in next(reader, [])]
    except csv.Error as error:
        raise InputError(f"cannot read {path} as .csv: its first line: {error}") from error
    numbered = [str(number) for number in range(len(names))]
    if header == "no" or (
        header == "auto" and names != numbered and all(_is_number(name, delimiter) for name in names)
    ):
        return blank, delimiter, numbered
    return blank + reader.line_num, delimiter, names


def _delimiter(line: str) -> str:
    """What is most frequent in a file's first line, where commas of numbers do not count."""
    return max(DELIMITERS, key=re.sub(FRACTION, "", line).count)


def _open(path: Path) -> Any:
    import pyarrow as pa

    return pa.input_stream(place_for_arrow(path), compression=COMPRESSIONS.get(path.suffix.lower()))


def _check_quotes(path: Path, table: Any) -> None:
    """Refuse a file with a quote that is never closed: its last row would hold all the rows that follow it."""
    last = [column[-1].as_py() for column in table.columns if table.num_rows]
    if not any(isinstance(value, str) and "\n" in value for value in last):
        return
    quotes = 0
    with _open(path) as stream:
        while block := stream.read(BLOCK):
            quotes += block.count(b'"')
    if quotes % 2:
        raise InputError(f"cannot read {path} as .csv: a quote in row {table.num_rows} is never closed")


def _is_number(text: str, delimiter: str) -> bool:
    try:
        float(text.replace(",", ".") if delimiter == ";" else text)
    except ValueError:
        return False
    return True


def _lasting(found: Any) -> Any:
    """The type under which to read a column whose first block has that one."""
    import pyarrow as pa

    if pa.types.is_date(found):
        return pa.timestamp("s")  # times of day may follow
    return pa.string() if pa.types.is_null(found) or pa.types.is_binary(found) else found


def _wider(types: dict[str, Any], failed: str | None) -> dict[str, Any]:
    """Types for another try: fractions where whole numbers failed, else text; text for all where `failed` is None."""
    import pyarrow as pa

    if failed is None:
        return dict.fromkeys(types, pa.string())
    if pa.types.is_integer(types[failed]):
        return {name: pa.float64() if pa.types.is_integer(kind) else kind for name, kind in types.items()}
    return types | {failed: pa.string()}


def _on_disk(reader: Any, name: str) -> Any:
    """All blocks in a temporary file that is mapped into memory, and gone when nobody needs it any more."""
    import pyarrow as pa

    with tempfile.NamedTemporaryFile(prefix="imix-", suffix=".arrow") as file:
        place, rows, size, told = Path(file.name), 0, 0, Told(f"reading {name}", unit="rows so far")
        with storing(place):
            writer = pa.ipc.new_file(file.name, reader.schema)
        for block in reader:
            rows, size = rows + block.num_rows, size + block.nbytes
            with storing(place, size):
                writer.write_batch(block)
            told(rows)
        with storing(place, size):
            writer.close()
        return pa.ipc.open_file(pa.memory_map(file.name)).read_all()


def _settled(column: Any, marks: str) -> Any:
    """A column that was read as text, as numbers, booleans or times if all of it is that."""
    import pyarrow as pa
    import pyarrow.compute as pc

    trimmed = pc.utf8_trim_whitespace(column)
    trimmed = pc.if_else(pc.is_in(trimmed, pa.array(MISSING)), None, trimmed)
    for kind in (pa.int64(), pa.float64(), pa.bool_(), pa.timestamp("s"), pa.timestamp("us")):
        try:
            return trimmed.cast(kind)
        except pa.ArrowInvalid:
            continue
    if "," in marks and pc.all(pc.match_substring_regex(trimmed, WITH_COMMA)).as_py():
        return pc.replace_substring(trimmed, ",", ".").cast(pa.float64())
    return trimmed
