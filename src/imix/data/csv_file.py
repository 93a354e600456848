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
BLOCK, LARGEST_BLOCK = 1 << 20, 1 << 30  # bytes parsed at a time; more where a row needs it
DELIMITERS = ",;\t|"
MISSING = ("", "?", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "-nan", "NULL", "null", "None", "none", "<NA>", "NaT")


def read_csv(path: Path, kinds: Mapping[str, str] | None = None) -> Frame:
    """A CSV file: comma, semicolon, tab or bar, plain or compressed, in UTF-8.

    The first line names the columns; where it is numbers that can be no names, they are called 0, 1, ... Types are
    found out from the whole file; a column whose kind is known to be categorical stays text.
    """
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    skipped, delimiter, columns = _header(path)
    Frame(str(path), tuple(columns), 1, lambda name: None)  # names that occur twice are refused before the work
    texts = {name for name, kind in (kinds or {}).items() if kind == "categorical"}
    types = {name: pa.string() for name in columns if name in texts}
    block = BLOCK

    def start() -> Any:
        return arrow_csv.open_csv(
            path,
            arrow_csv.ReadOptions(block_size=block, column_names=columns, skip_rows=skipped),
            arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            arrow_csv.ConvertOptions(column_types=types, null_values=MISSING, strings_can_be_null=True),
        )

    table = None
    while table is None:
        try:
            types = (
                {field.name: _lasting(field.type) for field in start().schema} if len(types) < len(columns) else types
            )
            table = _on_disk(start(), path.name)
        except (pa.ArrowInvalid, OSError) as error:
            # What the first block looked like may not hold for the file: such a column is read as text.
            failed = [columns[int(number)] for number in re.findall(r"CSV column #(\d+)", str(error))]
            if failed and types.get(failed[0]) != pa.string():
                types = types | {failed[0]: pa.string()}
            elif "straddling" in str(error) and block < LARGEST_BLOCK:
                block *= 8
            else:
                raise InputError(f"cannot read {path} as .csv: {_reason(error)}") from error
    was_text = {name for name in columns if types[name] == pa.string()}

    def column(name: str) -> Any:
        return _trimmed(table.column(name), name not in texts) if name in was_text else table.column(name)

    return Frame(str(path), tuple(columns), table.num_rows, column)


def _header(path: Path) -> tuple[int, str, list[str]]:
    """How many lines to skip, the delimiter, and the names of the columns."""
    import pyarrow as pa

    try:
        with pa.input_stream(str(path)) as stream:
            lines = stream.read(16 * BLOCK).removeprefix(b"\xef\xbb\xbf").splitlines()
        blank = next((number for number, line in enumerate(lines) if line.strip()), len(lines))
        first, *others = [line.decode() for line in lines[blank : blank + 2]] or [""]
        delimiter = max(DELIMITERS, key=first.count)
        fields, *more = csv.reader([first, *others], delimiter=delimiter)
    except (pa.ArrowException, OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot read {path} as .csv: {_reason(error)}") from error
    names = [name.strip() for name in fields]
    if _are_names(names, more[0] if more else []):
        return blank + 1, delimiter, names
    return blank, delimiter, [str(number) for number in range(len(names))]


def _are_names(first: list[str], second: list[str]) -> bool:
    """Whether the first line names columns: not if it is numbers, unless they count columns or head fractions."""
    if not all(map(_is_number, first)):
        return True
    if first == [str(number) for number in range(len(first))]:
        return True
    whole = all(re.fullmatch(r"\d+", name) for name in first) and len(set(first)) == len(first)
    return whole and any(_is_number(value) and not re.fullmatch(r"-?\d+", value) for value in second)


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


def _trimmed(column: Any, settles: bool) -> Any:
    """Text without spaces around it; where it `settles`, as numbers, booleans or times if all of it is that."""
    import pyarrow as pa
    import pyarrow.compute as pc

    trimmed = pc.utf8_trim_whitespace(column)
    trimmed = pc.if_else(pc.is_in(trimmed, pa.array(MISSING)), None, trimmed)
    for kind in (pa.float64(), pa.bool_(), pa.timestamp("s"), pa.timestamp("us")) if settles else ():
        try:
            return trimmed.cast(kind)
        except pa.ArrowInvalid:
            continue
    return trimmed


def _reason(error: Exception) -> str:
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return f"{reason}; is it UTF-8?" if "UTF8" in reason or isinstance(error, UnicodeDecodeError) else reason
