"""Several Parquet or CSV files as one table. It is read in blocks: row groups, or whole CSV files."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from imix.data.tables.csv_file import read_csv
from imix.data.tables.frame import Frame, arrow_path, check_names, format_names, prepare
from imix.data.tables.huggingface import name_classes
from imix.errors import InputError, first_line
from imix.settings import DataSettings


class TableFiles:
    """The blocks of a table in several files with the same columns.

    Parameters
    ----------
    name : str
        Name of the table in messages.
    paths : sequence of Path
        Its files, all Parquet or all CSV.
    data_settings : DataSettings
        How text files are read.

    Attributes
    ----------
    label : str or None
        The only column that the files declare to be a label.
    """

    def __init__(self, name: str, paths: Sequence[Path], data_settings: DataSettings) -> None:
        self.name, self.settings = name, data_settings
        self.blocks: list[tuple[Path, int]] = [(path, 0) for path in paths]  # file and row group
        self.schema: Any = None  # of Parquet files
        self.metadata: dict[Path, Any] = {}
        self.label: str | None = None
        if paths[0].suffix.lower() == ".parquet":
            self._read_metadata(paths)

    def _read_metadata(self, paths: Sequence[Path]) -> None:
        import pyarrow as pa

        for path in paths:
            with _arrow_errors(path), _open_parquet(path) as file:
                empty, label = name_classes(file.schema_arrow.empty_table())
                self.metadata[path], schema = file.metadata, prepare(empty).schema
            self.label = label if path == paths[0] else self.label
            check_names(str(path), schema.names)
            try:
                check_same_columns(path, schema.names, paths[0], (self.schema or schema).names)
                self.schema = pa.unify_schemas([self.schema or schema, schema], promote_options="permissive")
            except pa.ArrowException as error:
                raise InputError(f"{path} has other types than {paths[0]}: {first_line(error)}") from error
        groups = [(path, group) for path in paths for group in range(self.metadata[path].num_row_groups)]
        self.blocks = [block for block in groups if self.rows(block)]
        if not self.blocks:
            raise InputError(f"{self.name} has no rows")

    def rows(self, block: tuple[Path, int]) -> int:
        """Return the number of rows of a block of a Parquet file."""
        path, group = block
        return int(self.metadata[path].row_group(group).num_rows)

    def read(self, block: tuple[Path, int], kinds: Mapping[str, str], columns: Sequence[str] | None = None) -> Frame:
        """Read a block; `kinds` are the known kinds of columns, and `columns` are those to read from Parquet files."""
        import pyarrow as pa

        path, group = block
        if self.schema is None:
            return read_csv(path, kinds, self.settings.header, self.settings.label)
        with _arrow_errors(path), _open_parquet(path, self.metadata[path]) as file:
            named, _ = name_classes(file.read_row_group(group, None if columns is None else list(columns)))
            table = prepare(named)
            schema = pa.schema([self.schema.field(name) for name in table.column_names])
            name = str(path) if self.metadata[path].num_row_groups == 1 else f"{path}, row group {group}"
            return Frame(name, table.cast(schema))

    def frames(self, kinds: Mapping[str, str], columns: Sequence[str] | None = None) -> Iterator[Frame]:
        """Read all blocks in order; files with different columns are an error."""
        names: Sequence[str] = ()
        for block in self.blocks:
            frame = self.read(block, kinds, columns)
            names = names or frame.columns
            check_same_columns(block[0], frame.columns, self.blocks[0][0], names)
            yield frame


def _open_parquet(path: Path, metadata: Any = None) -> Any:
    """Open a Parquet file without mapping it into memory: if it is truncated, reading it raises an error."""
    from pyarrow import parquet

    return parquet.ParquetFile(arrow_path(path), metadata=metadata)


def check_same_columns(path: str | Path, names: Sequence[str], first: str | Path, expected: Sequence[str]) -> None:
    """Raise an error if a file does not have the columns of the first file."""
    if set(names) == set(expected):
        return
    problems = {"missing": sorted(set(expected) - set(names)), "additional": sorted(set(names) - set(expected))}
    differences = "; ".join(f"{problem}: {format_names(each)}" for problem, each in problems.items() if each)
    raise InputError(f"{path} does not have the columns of {first}; {differences}")


@contextmanager
def _arrow_errors(path: Path) -> Iterator[None]:
    """Turn errors from reading a Parquet file into an `InputError` that names it."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"cannot read {path} as .parquet: {first_line(error)}") from error
