"""Conversion of arrow columns to float64 numbers, to parts of dates, and to codes of canonical text.

The canonical text of a value does not depend on how the value was stored: 1 and 1.0 (in a numeric column), true and
True, a date and midnight of that date, and text with and without surrounding spaces are the same.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from imix.errors import InputError

MISSING = ("", "?", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "-nan", "NULL", "null", "None", "none", "<NA>", "NaT")
POSSIBLE_CLASS_NAMES = ("None", "none")  # missing values in general, but in a label column they may name a class
MAX_EXACT_INTEGER = 2**53  # float64 represents all integers up to this one
# A number as text. Text with a leading zero is not a number but a code, such as a zip code.
NUMBER = re.compile(r"[-+]?(?:0|[1-9]\d*|(?=\.\d))(?:\.\d*)?(?:[eE][-+]?\d+)?")
INTEGER = re.compile(r"[-+]?\d+")
DATETIME = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d(?::\d\d(?:\.\d+)?)?)")
DATE_HINT = "use ISO 8601 dates (2021-12-03), or a datetime column of a data frame or Parquet file"


def is_text(arrow_type: Any) -> bool:
    """Whether values of an arrow type are text."""
    import pyarrow as pa

    return pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type)


def is_numeric_type(arrow_type: Any) -> bool:
    """Whether values of an arrow type are numbers, durations or times of day."""
    import pyarrow as pa

    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_duration, pa.types.is_time)
    return any(test(arrow_type) for test in tests)


def is_numeric_column(column: Any, decimal_marks: str) -> bool:
    """Whether a column has a numeric type or, if its source is a text file, whether all of its text is numbers.

    `decimal_marks` is empty for sources with types. A column uses only one of the marks.
    """
    column = decode_dictionary(column)
    if not (decimal_marks and is_text(column.type)):
        return is_numeric_type(column.type)
    texts = [text for text in to_codes(column, numeric=False)[1] if text is not None]
    mark = "," if "," in decimal_marks and not any("." in text for text in texts) else "."
    return bool(texts) and all(NUMBER.fullmatch(text.replace(mark, ".")) for text in texts)


def has_fractions(values: np.ndarray) -> bool:
    """Whether some of the numbers are not integers."""
    # The first values usually decide it, without a pass over the whole column.
    return any(bool((part != np.floor(part)).any()) for part in (values[:1000], values))


def to_numbers(column: Any, boolean: bool = False) -> np.ndarray:
    """Convert a column to float64, with NaN for missing values; text is parsed, as true and false if `boolean`."""
    import pyarrow as pa

    column = decode_dictionary(column)
    if is_text(column.type):
        column = trim(column).cast(pa.bool_() if boolean else pa.float64())
    elif pa.types.is_duration(column.type) or pa.types.is_time(column.type):  # in seconds
        microseconds = pa.duration("us") if pa.types.is_duration(column.type) else pa.time64("us")
        integers = column.cast(microseconds, safe=False).cast(pa.int64())
        return integers.cast(pa.float64(), safe=False).to_numpy() * 1e-6
    values: np.ndarray = column.cast(pa.float64(), safe=False).to_numpy()
    infinite = np.isinf(values)
    if infinite.any():
        count, first = int(infinite.sum()), int(infinite.argmax())
        raise InputError(f"it has {count} infinite values, the first in row {first}; replace them with missing values")
    return values


def to_datetime_parts(column: Any, parts: Sequence[str]) -> np.ndarray:
    """Convert a column of dates to float64 (parts, N), such as year or weekday; dates with a time zone are in UTC."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = decode_dictionary(column)
    if pc.all(pc.is_null(column, nan_is_null=True)).as_py():
        return np.full((len(parts), len(column)), np.nan)
    if is_numeric_type(column.type):
        raise InputError(f"it contains numbers; {DATE_HINT}")
    if is_text(column.type):
        column = _parse_dates(trim(column))
    column = column.cast(pa.timestamp("us"), safe=False)
    arrays = [(pc.day_of_week if part == "weekday" else getattr(pc, part))(column) for part in parts]
    return np.stack([array.cast(pa.float64()).to_numpy() for array in arrays])


def _parse_dates(texts: Any) -> Any:
    """Convert text to dates; an error names the first text that is not a date like the first one."""
    import pyarrow as pa

    def parse(text: Any, zone: str | None) -> Any:
        try:
            text[:1000].cast(pa.timestamp("us", zone))  # arrow takes long to refuse a long column
            return text.cast(pa.timestamp("us", zone))
        except pa.ArrowInvalid:
            return None

    has_zone = parse(texts.drop_null()[:1], "UTC") is not None
    zone, other_zone = ("UTC", None) if has_zone else (None, "UTC")
    if (dates := parse(texts, zone)) is not None:
        return dates
    bad = next(texts[i : i + 1] for i in range(len(texts)) if parse(texts[i : i + 1], zone) is None)
    problem = "is not a valid date"
    if parse(bad, other_zone) is not None:
        problem = f"has {'no' if zone else 'a'} time zone, but the first date has {'one' if zone else 'none'}"
    raise InputError(f"{bad[0].as_py()!r} {problem}; {DATE_HINT}")


def trim(column: Any) -> Any:
    """Remove the spaces around text, and replace the texts of missing values by null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    trimmed = pc.utf8_trim_whitespace(column)
    return pc.if_else(pc.is_in(trimmed, pa.array(MISSING, trimmed.type)), None, trimmed)


def to_codes(column: Any, numeric: bool, missing: Sequence[str] = MISSING) -> tuple[np.ndarray, list[str | None]]:
    """Convert a column to codes (N,) and the canonical texts that they stand for, None for missing values.

    The texts are in the order in which they first occur. With `numeric`, text that is a number is treated as that
    number.
    """
    import pyarrow as pa

    column = decode_dictionary(column)
    numeric = numeric or pa.types.is_decimal(column.type)
    if pa.types.is_duration(column.type) or pa.types.is_time(column.type):
        column = pa.chunked_array([to_numbers(column)])
    if not pa.types.is_floating(column.type):
        column = column.cast(pa.large_string())
    encoded = column.combine_chunks().dictionary_encode("encode")
    texts = [None if value is None or value != value else str(value) for value in encoded.dictionary.to_numpy(False)]
    names = [None if text is None else _canonical_text(text, numeric, missing) for text in texts]
    distinct = {name: code for code, name in enumerate(dict.fromkeys(names))}
    codes = np.array([distinct[name] for name in names], np.int64)
    return codes[encoded.indices.to_numpy()], list(distinct)


def decode_dictionary(column: Any) -> Any:
    """Replace the codes of a dictionary-encoded column by their values; return other columns unchanged."""
    import pyarrow as pa

    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _canonical_text(text: str, numeric: bool, missing: Sequence[str]) -> str | None:
    text = text.strip()
    if text in missing:
        return None
    if text.lower() in ("true", "false"):
        return text.lower()
    if match := DATETIME.fullmatch(text):
        date, time = match.groups()
        time = time.rstrip("0").rstrip(".") if "." in time else time
        return date if time.strip("0:") == "" else f"{date} {time}"
    try:
        return _canonical_number(text.replace(",", ".")) if numeric else text
    except ValueError:
        return text  # a word among numbers


def _canonical_number(text: str) -> str:
    """Write a number in its shortest form."""
    if INTEGER.fullmatch(text):
        return str(int(text))
    value = float(text) + 0.0  # turns -0 into 0
    return f"{value:.0f}" if value == np.floor(value) and abs(value) < 2**63 else repr(value)
