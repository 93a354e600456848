"""`Frame`, a table of named columns from any source: a pandas, polars or arrow data frame, a file or an array.

Columns are read one at a time as arrow arrays, so that no second copy of the table is in memory.
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
    """A table of named columns.

    Parameters
    ----------
    name : str
        Name of the table in messages.
    columns : tuple of str
        Column names.
    rows : int
        Number of rows.
    read : callable
        Returns the column of a name as a `pyarrow.ChunkedArray`.
    all_numeric : bool
        Whether the source is an array of numbers, so that no column is categorical.
    decimal_marks : str
        The decimal marks that the source allows if it is a text file ("." or ".,"), and "" if its columns have types.
    """

    name: str
    columns: tuple[str, ...]
    rows: int
    read: Callable[[str], Any]
    all_numeric: bool = False
    decimal_marks: str = ""

    def __post_init__(self) -> None:
        duplicates = sorted(name for name, count in Counter(self.columns).items() if count > 1)
        if duplicates:
            raise InputError(f"{self.name} has several columns called {', '.join(map(repr, duplicates))}")
        if not self.columns or not self.rows:
            raise InputError(f"{self.name} has no {'rows' if self.columns else 'columns'}")

    def column(self, name: str) -> Any:
        """Read a column as a `pyarrow.ChunkedArray`, with text of type string."""
        import pyarrow as pa

        column = self.read(name)
        if not pa.types.is_dictionary(column.type):
            return _to_plain_string(column)
        chunks = [
            pa.DictionaryArray.from_arrays(chunk.indices, _to_plain_string(chunk.dictionary)) for chunk in column.chunks
        ]
        value_type = _to_plain_string(chunks[0].dictionary).type
        return pa.chunked_array(chunks, pa.dictionary(column.type.index_type, value_type))

    def check_column(self, name: str) -> None:
        """Raise an error if there is no column with this name."""
        if name not in self.columns:
            guess = did_you_mean(name, self.columns)
            no_header = self.decimal_marks and self.columns == tuple(map(str, range(len(self.columns))))
            hint = " (the first line was read as data; if it is the header, use `header='yes'`)" if no_header else ""
            names = format_names(self.columns)
            raise InputError(f"{self.name} has no column {name!r}{guess}; its columns are {names}{hint}")

    def slice(self, start: int, stop: int) -> "Frame":
        """Select the rows from `start` up to, but not including, `stop`."""
        return replace(self, rows=stop - start, read=lambda name: self.read(name).slice(start, stop - start))

    def take(self, rows: np.ndarray) -> "Frame":
        """Select rows by their indices, in that order."""
        return replace(self, rows=len(rows), read=lambda name: self.read(name).take(rows))


def is_frame(data: Any) -> bool:
    """Whether the data is a `Frame` or a data frame of pandas, polars or arrow."""
    return isinstance(data, Frame) or hasattr(type(data), "columns")


def has_missing_values(data: Any) -> bool:
    """Whether the data is a floating-point array of shape (N, F) with missing values (NaN)."""
    if isinstance(data, Tensor):
        return data.dim() == 2 and data.is_floating_point() and bool(data.isnan().any())
    return isinstance(data, np.ndarray) and data.ndim == 2 and data.dtype.kind == "f" and bool(np.isnan(data).any())


def as_frame(data: Any, name: str = "the table") -> Frame:
    """Wrap a pandas, polars or arrow data frame, or an array (N, F), whose columns are then named 0, 1, ..."""
    import pyarrow as pa

    if isinstance(data, Frame):
        return data
    if not is_frame(data):
        array = data.detach().float().cpu().numpy() if isinstance(data, Tensor) else np.asarray(data)
        if array.ndim != 2 or array.dtype.kind not in "biuf":
            raise InputError(
                f"{name} must be a data frame or an array of numbers of shape (N, F); "
                f"got {array.dtype} of shape {array.shape}"
            )
        columns = tuple(map(str, range(array.shape[1])))
        return Frame(name, columns, len(array), lambda column: _to_arrow(array[:, int(column)]), all_numeric=True)
    if hasattr(data, "collect"):  # a polars LazyFrame
        data = data.collect()
    if hasattr(data, "iloc"):  # pandas
        columns = tuple(map(str, data.columns))
        positions = {column: i for i, column in enumerate(columns)}
        return Frame(name, columns, len(data), lambda column: _to_arrow(data.iloc[:, positions[column]]))
    if not hasattr(data, "__arrow_c_stream__"):
        raise InputError(
            f"{name} cannot be read as a table: got {type(data).__name__}; pass a pandas, polars or arrow data frame"
        )
    try:
        table = pa.table(data)
    except pa.ArrowException as error:
        raise InputError(f"{name} cannot be read as a table: {first_line(error)}") from error
    return Frame(name, _without_index(table.column_names), table.num_rows, table.column)


def read_parquet(path: Path) -> Frame:
    """Open a Parquet file; its columns are read when they are needed."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(arrow_path(path), memory_map=True)
        schema, rows = file.schema_arrow, file.metadata.num_rows
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"cannot read {path} as .parquet: {first_line(error)}") from error

    def read(column: str) -> Any:
        try:
            return file.read(columns=[column]).column(0)
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"cannot read column {column!r} of {path}: {first_line(error)}") from error

    return Frame(str(path), _without_index(schema.names), rows, read)


def arrow_path(path: Path) -> Any:
    """Return what arrow can open: the path as text or, because arrow requires UTF-8, an open file."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return open(path, "rb")
    return str(path)


def _to_plain_string(values: Any) -> Any:
    import pyarrow as pa

    is_variant = pa.types.is_large_string(values.type) or pa.types.is_string_view(values.type)
    return values.cast(pa.string()) if is_variant else values


def _to_arrow(values: Any) -> Any:
    """Convert a pandas or NumPy column to arrow; values of mixed types, or types unknown to arrow, become text."""
    import pyarrow as pa

    if hasattr(values, "sparse"):
        values = values.sparse.to_dense()
    dtype = values.dtype
    if isinstance(dtype, np.dtype) and dtype.kind in "iuf" and not (dtype.isnative and dtype.itemsize <= 8):
        values = values.astype(np.float64 if dtype.kind == "f" else dtype.newbyteorder("="))
    try:
        column = pa.array(values, from_pandas=True)
        value_type = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if isinstance(value_type, pa.BaseExtensionType):
            raise TypeError(f"{value_type} is a type of pandas only")
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        column = pa.array([str(value) for value in values], mask=values.isna().to_numpy())
    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])


def _without_index(columns: Sequence[str]) -> tuple[str, ...]:
    """Remove the columns in which pandas stores its index."""
    return tuple(column for column in columns if not re.fullmatch(r"__index_level_\d+__", column))


def format_names(names: Sequence[str]) -> str:
    """List at most ten names for a message."""
    shown = ", ".join(map(repr, names[:10]))
    return shown if len(names) <= 10 else f"{shown} and {len(names) - 10} more"
