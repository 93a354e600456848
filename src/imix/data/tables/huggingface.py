"""Hugging Face data sets as arrow tables: in memory, in a folder written by `save_to_disk`, or in Parquet files."""

import json
from pathlib import Path
from typing import Any

from imix.errors import InputError, first_line

METADATA_KEY = b"huggingface"  # of an arrow schema, which describes the features


def is_dataset(data: Any) -> bool:
    """Whether the data is a `datasets.Dataset`."""
    kind = type(data)
    return all(hasattr(kind, name) for name in ("features", "column_names", "with_format", "__getitem__"))


def is_saved_dataset(folder: Path) -> bool:
    """Whether a folder was written by `save_to_disk`."""
    if (folder / "dataset_dict.json").is_file():
        raise InputError(f"{str(folder)!r} has several splits; pass the folder of one of them, such as {folder}/train")
    return (folder / "state.json").is_file() and (folder / "dataset_info.json").is_file()


def read_saved_dataset(folder: Path) -> Any:
    """Return the memory-mapped `pyarrow.Table` of a folder written by `save_to_disk`."""
    import pyarrow as pa

    try:
        names = [entry["filename"] for entry in json.loads((folder / "state.json").read_text())["_data_files"]]
        tables = [pa.ipc.open_stream(pa.memory_map(str(folder / name))).read_all() for name in names]
        return pa.concat_tables(tables)
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"cannot read {folder} as a saved data set: {first_line(error)}") from error


def name_classes(table: Any) -> tuple[Any, str | None]:
    """Replace the numbers of ClassLabel columns by class names; also return such a column if there is exactly one."""
    import pyarrow as pa

    try:
        features = json.loads(table.schema.metadata[METADATA_KEY])["info"]["features"]
        names = {
            column: feature["names"]
            for column, feature in features.items()
            if column in table.column_names
            and feature.get("_type") == "ClassLabel"
            and pa.types.is_integer(table.schema.field(column).type)
        }
    except (KeyError, TypeError, ValueError, AttributeError):  # not written by datasets
        return table, None
    for column, classes in names.items():
        numbers = table.column(column).combine_chunks().fill_null(-1).to_numpy(False)
        codes = pa.array(numbers, pa.int64(), mask=(numbers < 0) | (numbers >= len(classes)))
        position = table.column_names.index(column)
        values = pa.DictionaryArray.from_arrays(codes.cast(pa.int32()), pa.array(classes, pa.string()))
        table = table.set_column(position, column, values)
    return table, next(iter(names)) if len(names) == 1 else None
