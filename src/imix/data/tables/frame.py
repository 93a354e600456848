"""`Frame`, a table of named columns from any source: a pandas, polars or arrow data frame, a file or an array."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from imix.data.memory import check_memory
from imix.data.tables.huggingface import is_dataset, name_classes, read_saved_dataset
from imix.errors import InputError, did_you_mean, first_line

MAX_COLUMNS = 200_000  # columns are fitted one by one, in about a tenth of a millisecond each


@dataclass(frozen=True)
class Frame:
    """A table of named columns.

    Parameters
    ----------
    name : str
        Name of the table in messages.
    data : pyarrow.Table
        The columns.
    all_numeric : bool
        Whether the source is an array of numbers, so that no column is categorical.
    decimal_marks : str
        The decimal marks that the source allows if it is a text file ("." or ".,"), and "" if its columns have types.
    label : str, optional
        The only column that the source declares to be a label.
    """

    name: str
    data: Any
    all_numeric: bool = False
    decimal_marks: str = ""
    label: str | None = None

    def __post_init__(self) -> None:
        check_names(self.name, self.columns)
        if not self.rows:
            raise InputError(f"{self.name} has no rows")

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Column names."""
        return tuple(self.data.column_names)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.data.num_rows)

    def column(self, name: str) -> Any:
        """A column as a `pyarrow.ChunkedArray`."""
        return self.data.column(name)

    def check_columns(self, names: Sequence[str]) -> None:
        """Raise an error if there is no column with one of these names."""
        existing = set(self.columns)
        for name in names:
            if name not in existing:
                guess = did_you_mean(name, self.columns)
                no_header = self.decimal_marks and self.columns == tuple(map(str, range(len(self.columns))))
                hint = (
                    " (the first line was read as data; if it is the header, use `header='yes'`)" if no_header else ""
                )
                all_names = format_names(self.columns)
                raise InputError(f"{self.name} has no column {name!r}{guess}; its columns are {all_names}{hint}")

    def slice(self, start: int, stop: int) -> "Frame":
        """Select the rows from `start` up to, but not including, `stop`."""
        return replace(self, data=self.data.slice(start, stop - start))

    def take(self, rows: np.ndarray) -> "Frame":
        """Select rows by their indices, in that order."""
        return replace(self, data=self.data.take(rows))


def check_names(table: str, columns: Sequence[str]) -> None:
    """Raise an error if there are no columns, or several with the same name."""
    if duplicates := sorted(name for name, count in Counter(columns).items() if count > 1):
        raise InputError(f"{table} has several columns called {format_names(duplicates)}")
    if not columns:
        raise InputError(f"{table} has no columns")
    if len(columns) > MAX_COLUMNS:
        raise InputError(
            f"{table} has {len(columns):,} columns; at most {MAX_COLUMNS:,} are read. If they are numbers without "
            "missing values, pass an array (.npy)"
        )


def is_frame(data: Any) -> bool:
    """Whether the data is a `Frame`, a data frame of pandas, polars or arrow, or a Hugging Face data set."""
    return isinstance(data, Frame) or hasattr(type(data), "columns") or is_dataset(data)


def has_missing_values(data: Any) -> bool:
    """Whether the data is a floating-point array of shape (N, F) with missing values (NaN)."""
    if isinstance(data, Tensor):
        return data.dim() == 2 and data.is_floating_point() and bool(data.isnan().any())
    return isinstance(data, np.ndarray) and data.ndim == 2 and data.dtype.kind == "f" and bool(np.isnan(data).any())


def as_frame(data: Any, name: str = "the table") -> Frame:
    """Convert a data frame, a Hugging Face data set, or an array (N, F), whose columns are then named 0, 1, ..."""
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
        names = [str(i) for i in range(array.shape[1])]
        return Frame(name, pa.table([_to_arrow(column) for column in array.T], names), all_numeric=True)
    if is_dataset(data):
        return _from_arrow(data.with_format("arrow")[:], name)
    if hasattr(data, "collect"):  # a polars LazyFrame
        data = data.collect()
    if hasattr(data, "iloc"):  # pandas
        names = [str(column) for column in data.columns]
        return Frame(name, pa.table([_to_arrow(data.iloc[:, i]) for i in range(len(names))], names))
    if not hasattr(data, "__arrow_c_stream__"):
        raise InputError(
            f"{name} cannot be read as a table: got {type(data).__name__}; pass a pandas, polars or arrow data frame"
        )
    try:
        return _from_arrow(data.to_arrow() if hasattr(data, "to_arrow") else pa.table(data), name)
    except pa.ArrowException as error:
        raise InputError(f"{name} cannot be read as a table: {first_line(error)}") from error


def read_arrow(path: Path) -> Frame:
    """Read a Parquet file, or a folder written by `datasets.Dataset.save_to_disk`."""
    import pyarrow as pa
    from pyarrow import parquet

    if path.is_dir():
        return _from_arrow(read_saved_dataset(path), str(path))
    try:
        # Not memory-mapped: if another process truncated the file, the system would kill this one.
        file = parquet.ParquetFile(arrow_path(path))
        rows, columns = file.metadata.num_rows, len(file.schema_arrow)
        check_memory(8 * rows * columns, f"{rows:,} rows of {columns:,} columns in {path}", "select fewer")
        table = file.read()
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path} as .parquet: {first_line(error)}") from error
    return _from_arrow(table, str(path))


def read_parquet_files(name: str, paths: Sequence[Path]) -> Frame:
    """Read Parquet files as one table in memory."""
    import pyarrow as pa

    frames = [read_arrow(path) for path in paths]
    try:
        table = pa.concat_tables([frame.data for frame in frames], promote_options="permissive")
    except pa.ArrowException as error:
        raise InputError(f"the files of {name} do not have the same columns: {first_line(error)}") from error
    return Frame(name, table, label=frames[0].label)


def arrow_path(path: Path) -> Any:
    """Return what arrow and polars can open: the path as text or, because they require UTF-8, an open file."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return open(path, "rb")
    return str(path)


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
        return column
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return pa.array([str(value) for value in values], mask=values.isna().to_numpy())


def _from_arrow(table: Any, name: str) -> Frame:
    table, label = name_classes(table)
    return Frame(name, prepare(table), label=label)


def prepare(table: Any) -> Any:
    """Remove the columns in which pandas stores its index, and convert views of text, which arrow hardly supports."""
    import pyarrow as pa

    table = table.drop_columns([name for name in table.column_names if re.fullmatch(r"__index_level_\d+__", name)])
    types = [pa.large_string() if pa.types.is_string_view(each) else each for each in table.schema.types]
    return table.cast(pa.schema(zip(table.column_names, types, strict=True)))


def format_names(names: Sequence[str]) -> str:
    """List at most ten names for a message."""
    shown = ", ".join(map(repr, names[:10]))
    return shown if len(names) <= 10 else f"{shown} and {len(names) - 10} more"
