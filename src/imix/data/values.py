"""Arrow's many types as numbers in float64, as parts of times, and as text in one canonical form.

The same value gives the same text however it was stored: 1 and 1.0 where a column holds numbers, true and True, a day
and its midnight, text without spaces around it.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from imix.errors import InputError

MISSING = ("", "?", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "-nan", "NULL", "null", "None", "none", "<NA>", "NaT")
WORDS = ("None", "none")  # of these, what may well be the name of a class
# A number as text; with a leading zero it is a code (a zip, an id).
NUMBER = re.compile(r"[-+]?(?:0|[1-9]\d*|(?=\.\d))(?:\.\d*)?(?:[eE][-+]?\d+)?")
WHOLE = re.compile(r"[-+]?\d+")
ISO = "dates are ISO 8601 (2021-12-03), or come as a datetime column of a frame or Parquet file"
TIME = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d(?::\d\d(?:\.\d+)?)?)")


def is_measured(kind: Any) -> bool:
    """Whether an arrow type is of numbers, durations or times of day."""
    import pyarrow as pa

    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_duration, pa.types.is_time)
    return any(test(kind) for test in tests)


def holds_numbers(column: Any, marks: str) -> bool:
    """Whether a column is of numbers, or where its source has no types, of text all of which are numbers.

    `marks` are those that fractions may have in such a source; a column has one of them.
    """
    import pyarrow as pa

    column = plain(column)
    if not (marks and pa.types.is_string(column.type)):
        return is_measured(column.type)
    texts = as_text(column, numbers=False).unique().drop_null().to_pylist()
    one = "," if "," in marks and not any("." in text for text in texts) else "."
    return bool(texts) and all(NUMBER.fullmatch(text.replace(one, ".")) for text in texts)


def has_fractions(values: np.ndarray) -> bool:
    """Whether some of these numbers are not whole."""
    return any(bool((part != np.floor(part)).any()) for part in (values[:1000], values))  # most often at once


def as_numbers(column: Any, truth: bool = False) -> np.ndarray:
    """A column in float64, NaN where it has gaps; text is parsed, as true and false where it is about `truth`."""
    import pyarrow as pa

    column = plain(column)
    kind = column.type
    if pa.types.is_string(kind):
        column = as_text(column, numbers=False)
        column = column.cast(pa.bool_()) if truth else column
    elif pa.types.is_duration(kind) or pa.types.is_time(kind):  # in seconds
        fine = pa.duration("us") if pa.types.is_duration(kind) else pa.time64("us")
        return column.cast(fine, safe=False).cast(pa.int64()).cast(pa.float64(), safe=False).to_numpy() * 1e-6
    values: np.ndarray = column.cast(pa.float64(), safe=False).to_numpy()
    infinite = np.isinf(values)
    if infinite.any():
        first = int(infinite.argmax())
        raise InputError(f"it has {int(infinite.sum())} infinite values, the first in row {first}; make them gaps")
    return values


def as_times(column: Any, parts: Sequence[str]) -> np.ndarray:
    """Parts (year, month, day, weekday, hour, minute, second) of a column's times, in UTC where they have a zone."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = plain(column)
    if pc.all(pc.is_null(column, nan_is_null=True)).as_py():
        return np.full((len(column), len(parts)), np.nan)
    if is_measured(column.type):
        raise InputError(f"it holds numbers; {ISO}")
    if pa.types.is_string(column.type):
        column = as_text(column, numbers=False)
        try:
            column = column.cast(pa.timestamp("us"))
        except pa.ArrowInvalid:
            column = column.cast(pa.timestamp("us", "UTC"))  # text with a zone
    column = column.cast(pa.timestamp("us"), safe=False)
    taken = [(pc.day_of_week if part == "weekday" else getattr(pc, part))(column) for part in parts]
    return np.column_stack([part.cast(pa.float64()).to_numpy() for part in taken])


def find_no_time(column: Any) -> str:
    """What to say of a column of text that `as_times` cannot read: the first value that is no time, and what is one."""
    import pyarrow as pa

    def are_times(texts: Any, zone: str | None) -> bool:
        try:
            texts.cast(pa.timestamp("us", zone))
        except pa.ArrowInvalid:
            return False
        return True

    texts = as_text(column, numbers=False).drop_null()
    zone = "UTC" if are_times(texts[:1], "UTC") else None
    while len(texts) > 1:
        half = len(texts) // 2
        texts = texts[half:] if are_times(texts[:half], zone) else texts[:half]
    wrong = "is in another form"
    if are_times(texts, None if zone else "UTC"):
        wrong = "has no zone, and the first has one" if zone else "has a zone, and the first has none"
    return f"{texts[0].as_py()!r} {wrong}; {ISO}"


def as_text(column: Any, numbers: bool, gaps: Sequence[str] = MISSING) -> Any:
    """A column as text, each value in its canonical form; `numbers` says that text which is a number is one."""
    import pyarrow as pa

    column = plain(column)
    kind = column.type
    if pa.types.is_duration(kind) or pa.types.is_time(kind):
        column = pa.chunked_array([as_numbers(column)])
    if pa.types.is_floating(column.type):
        different, places = np.unique(column.to_numpy(), return_inverse=True)
        names = [None if np.isnan(value) else _number(str(value)) for value in different]
        return pa.chunked_array([pa.array(names, pa.string()).take(pa.array(places))])
    coded = column.cast(pa.string()).dictionary_encode().unify_dictionaries()
    texts = coded.chunk(0).dictionary.to_pylist() if len(coded) else []
    names = [_canonical(text, numbers or pa.types.is_decimal(kind), gaps) for text in texts]
    return pa.chunked_array([pa.array(names, pa.string()).take(part.indices) for part in coded.chunks], pa.string())


def plain(column: Any) -> Any:
    """A column without its dictionary, if it has one."""
    import pyarrow as pa

    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _canonical(text: str, numbers: bool, gaps: Sequence[str]) -> str | None:
    text = text.strip()
    if text in gaps:
        return None
    if text.lower() in ("true", "false"):
        return text.lower()
    if time := TIME.fullmatch(text):
        of_day = time[2].rstrip("0").rstrip(".") if "." in time[2] else time[2]
        return time[1] if of_day.strip("0:") == "" else f"{time[1]} {of_day}"
    try:
        return _number(text.replace(",", ".")) if numbers else text
    except ValueError:
        return text  # a word among numbers


def _number(text: str) -> str:
    """The shortest text for a number that is given as text."""
    if WHOLE.fullmatch(text):
        return str(int(text))
    value = float(text) + 0.0  # -0 is 0
    return f"{value:.0f}" if value == np.floor(value) and abs(value) < 2**63 else repr(value)
