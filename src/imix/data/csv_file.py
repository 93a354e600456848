"""CSV files: read once, in blocks, into typed columns on disk, so that a file may be larger than memory."""

import csv
import re
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from imix.data.frame import Frame
from imix.errors import InputError

SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".csv.bz2", ".csv.zst")
BLOCK = 1 << 20  # bytes parsed at a time
DELIMITERS = ",;\t|"
MISSING = ("", "?", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "-nan", "NULL", "null", "None", "none", "<NA>", "NaT")


def read_csv(path: Path, kinds: Mapping[str, str] | None = None, names: tuple[str, ...] = ()) -> Frame:
    """A CSV file: comma, semicolon, tab or bar, plain or compressed, in UTF-8.

    The first line names the columns, unless all of it is numbers (then they are called 0, 1, ...) or `names` are given.
    Types are found out from the whole file; a column whose kind is known to be categorical stays text.
    """
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    delimiter, first = _first_line(path)
    named = not all(map(_is_number, first))
    columns = [name.strip() for name in first] if named else list(names or map(str, range(len(first))))
    Frame(str(path), tuple(columns), 1, lambda name: None)  # names that occur twice are refused before the work
    text = {name for name, kind in (kinds or {}).items() if kind == "categorical"}
    options = {
        "read_options": arrow_csv.ReadOptions(block_size=BLOCK, column_names=columns, skip_rows=int(named)),
        "parse_options": arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
    }

    def start(types: dict[str, Any]) -> Any:
        convert = arrow_csv.ConvertOptions(column_types=types, null_values=MISSING, strings_can_be_null=True)
        return arrow_csv.open_csv(path, convert_options=convert, **options)

    try:
        types = {name: pa.string() for name in columns if name in text}
        types = {field.name: _lasting(field.type) for field in start(types).schema}
        while True:
            try:
                table = _on_disk(start(types), path.name)
                break
            except pa.ArrowInvalid as error:
                # What the first block looked like does not hold for the file: such a column is read as text.
                failed = re.findall(r"CSV column #(\d+)", str(error))
                if not failed or types[columns[int(failed[0])]] == pa.string():
                    raise
                types[columns[int(failed[0])]] = pa.string()
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"cannot read {path} as .csv: {_reason(error)}") from error
    settled = {name for name in columns if name not in text and types[name] == pa.string()}
    return Frame(
        str(path),
        tuple(columns),
        table.num_rows,
        lambda name: _settled(table.column(name), name in settled),
    )


def _first_line(path: Path) -> tuple[str, list[str]]:
    """The delimiter, and the fields of the first line."""
    import pyarrow as pa

    try:
        with pa.input_stream(str(path)) as stream:
            start = stream.read(BLOCK)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"cannot read {path} as .csv: {_reason(error)}") from error
    line = start.decode("utf-8-sig", errors="replace").split("\n", 1)[0].strip("\r")
    if not line:
        raise InputError(f"cannot read {path} as .csv: its first line is empty")
    delimiter = max(DELIMITERS, key=line.count)
    return delimiter, next(csv.reader([line], delimiter=delimiter))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _lasting(found: Any) -> Any:
    """The type under which to read a column whose first block has that one."""
    import pyarrow as pa

    if pa.types.is_integer(found):
        return pa.float64()  # fractions may follow
    if pa.types.is_date(found):
        return pa.timestamp("s")  # times of day may follow
    if pa.types.is_floating(found) or pa.types.is_timestamp(found) or pa.types.is_boolean(found):
        return found
    return pa.string()


def _on_disk(reader: Any, name: str) -> Any:
    """All blocks in a temporary file that is mapped into memory, and gone when nobody needs it any more."""
    import pyarrow as pa

    with tempfile.NamedTemporaryFile(prefix="imix-", suffix=".arrow") as file:
        with pa.ipc.new_file(file.name, reader.schema) as writer:
            rows, told = 0, time.monotonic()
            for block in reader:
                writer.write_batch(block)
                rows += block.num_rows
                if time.monotonic() - told > 10:
                    print(f"reading {name}: {rows:,} rows so far", file=sys.stderr, flush=True)
                    told = time.monotonic()
        return pa.ipc.open_file(pa.memory_map(file.name)).read_all()


def _settled(column: Any, text: bool) -> Any:
    """A column as it is; one that was read as text as numbers, booleans or times if all of it is that."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not text:
        return column
    trimmed = pc.utf8_trim_whitespace(column)
    trimmed = pc.if_else(pc.is_in(trimmed, pa.array(MISSING)), None, trimmed)
    for kind in (pa.float64(), pa.bool_(), pa.timestamp("s"), pa.timestamp("us")):
        try:
            return trimmed.cast(kind)
        except pa.ArrowInvalid:
            continue
    return trimmed


def _reason(error: Exception) -> str:
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return f"{reason}; is it UTF-8?" if "UTF8" in reason else reason
