"""A table of named columns, wherever it comes from: an arrow, pandas or polars frame, a Parquet file or an array.

Columns are had one at a time, as arrow arrays, so that a table is never in memory twice. CSV files are in `csv_file`.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from imix.errors import InputError, did_you_mean, first_line


@dataclass(frozen=True)
class Frame:
    """Named columns of one length; `name` is what messages call the table.

    `numbers` says that it was an array, whose columns are numbers; `marks` that it was a file of text, in which numbers
    may be text and text numbers, and which marks their fractions may have: a point, or a comma too.
    """

    name: str
    columns: tuple[str, ...]
    rows: int
    read: Callable[[str], Any]
    numbers: bool = False
    marks: str = ""

    def __post_init__(self) -> None:
        twice = sorted(name for name, count in Counter(self.columns).items() if count > 1)
        if twice:
            raise InputError(f"{self.name} has several columns called {', '.join(map(repr, twice))}")
        if not self.columns or not self.rows:
            raise InputError(f"there are no {'rows' if self.columns else 'columns'} in {self.name}")

    def column(self, name: str) -> Any:
        """A column, as a `pyarrow.ChunkedArray`, with text as plain strings."""
        import pyarrow as pa

        column = self.read(name)
        if not pa.types.is_dictionary(column.type):
            return _plain_text(column)
        parts = [pa.DictionaryArray.from_arrays(part.indices, _plain_text(part.dictionary)) for part in column.chunks]
        return pa.chunked_array(parts, pa.dictionary(column.type.index_type, _plain_text(parts[0].dictionary).type))

    def check(self, name: str) -> None:
        """Refuse a name that no column has."""
        if name not in self.columns:
            guess = did_you_mean(name, self.columns)
            numbered = self.marks and self.columns == tuple(map(str, range(len(self.columns))))
            hint = ", since its first line was taken for a row (or else: --header yes)" if numbered else ""
            raise InputError(f"{self.name} has no column {name!r}{guess}; it has {listed(self.columns)}{hint}")

    def part(self, start: int, stop: int) -> "Frame":
        """The rows from `start` up to `stop`."""
        return replace(self, rows=stop - start, read=lambda name: self.read(name).slice(start, stop - start))

    def take(self, rows: np.ndarray) -> "Frame":
        """Those rows, in that order."""
        return replace(self, rows=len(rows), read=lambda name: self.read(name).take(rows))


def is_frame(data: Any) -> bool:
    """Whether this is a frame, of ours or of pandas, polars or arrow."""
    return isinstance(data, Frame) or hasattr(type(data), "columns")


def has_gaps(data: Any) -> bool:
    """Whether this is an array of rows (N, F) in which values are missing."""
    if isinstance(data, Tensor):
        return data.dim() == 2 and data.is_floating_point() and bool(data.isnan().any())
    return isinstance(data, np.ndarray) and data.ndim == 2 and data.dtype.kind == "f" and bool(np.isnan(data).any())


def as_frame(data: Any, name: str = "the table") -> Frame:
    """A frame of pandas, polars or arrow, or an array (N, F), whose columns are called 0, 1, ..."""
    import pyarrow as pa

    if isinstance(data, Frame):
        return data
    if not is_frame(data):
        array = data.detach().float().cpu().numpy() if isinstance(data, Tensor) else np.asarray(data)
        if array.ndim != 2 or array.dtype.kind not in "biuf":
            raise InputError(f"{name} must be a frame, or rows of numbers (N, F); got {array.dtype} of {array.shape}")
        columns = tuple(map(str, range(array.shape[1])))
        return Frame(name, columns, len(array), lambda column: _chunked(array[:, int(column)]), numbers=True)
    if hasattr(data, "collect"):  # a lazy frame of polars
        data = data.collect()
    if hasattr(data, "iloc"):
        at = {str(column): place for place, column in enumerate(data.columns)}
        columns = tuple(map(str, data.columns))
        return Frame(name, columns, len(data), lambda column: _chunked(data.iloc[:, at[column]]))
    if not hasattr(data, "__arrow_c_stream__"):
        raise InputError(f"cannot take {type(data).__name__} as a table; give a frame of pandas, polars or arrow")
    try:
        table = pa.table(data)
    except pa.ArrowException as error:
        raise InputError(f"cannot take {name} as a table: {first_line(error)}") from error
    return Frame(name, _without_index(table.column_names), table.num_rows, table.column)


def read_parquet(path: Path) -> Frame:
    """A Parquet file, read a column at a time."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(place_for_arrow(path), memory_map=True)
        schema, rows = file.schema_arrow, file.metadata.num_rows
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"cannot read {path} as .parquet: {first_line(error)}") from error

    def read(column: str) -> Any:
        try:
            return file.read(columns=[column]).column(0)
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"cannot read column {column!r} of {path}: {first_line(error)}") from error

    return Frame(str(path), _without_index(schema.names), rows, read)


def place_for_arrow(path: Path) -> Any:
    """A path as arrow takes it: by its name, or where that is no UTF-8, as an open file."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return open(path, "rb")
    return str(path)


def _plain_text(values: Any) -> Any:
    import pyarrow as pa

    other = pa.types.is_large_string(values.type) or pa.types.is_string_view(values.type)
    return values.cast(pa.string()) if other else values


def _chunked(values: Any) -> Any:
    """A column of pandas or NumPy as arrow; values of kinds that arrow does not know, or of several, become text."""
    import pyarrow as pa

    if hasattr(values, "sparse"):
        values = values.sparse.to_dense()
    dtype = values.dtype
    if isinstance(dtype, np.dtype) and dtype.kind in "iuf" and not (dtype.isnative and dtype.itemsize <= 8):
        values = values.astype(np.float64 if dtype.kind == "f" else dtype.newbyteorder("="))
    try:
        column = pa.array(values, from_pandas=True)
        inner = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if isinstance(inner, pa.BaseExtensionType):
            raise TypeError(f"{inner} is known to pandas alone")
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        column = pa.array([str(value) for value in values], mask=values.isna().to_numpy())
    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])


def _without_index(columns: Sequence[str]) -> tuple[str, ...]:
    """Columns but those in which pandas puts its index away."""
    return tuple(column for column in columns if not re.fullmatch(r"__index_level_\d+__", column))


def listed(names: Sequence[str]) -> str:
    """Names for a message, ten at most."""
    shown = ", ".join(map(repr, names[:10]))
    return shown if len(names) <= 10 else f"{shown} and {len(names) - 10} more"
