"""Tables to samples: frames as rows of numbers, and classes out of the label column."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from imix.data.columns import as_text, is_fractional
from imix.data.csv_file import read_csv
from imix.data.frame import Frame, read_parquet
from imix.data.table import Table
from imix.errors import InputError
from imix.settings import Reading


def read_frames(path: Path, reading: Reading, table: Table | None = None) -> list[Frame]:
    """A .csv (.tsv, also compressed) or .parquet file, and the file of test samples if `reading` names one."""
    kinds = dict(reading.columns) | ({} if table is None else {column.name: column.kind for column in table.columns})
    paths = [path] if reading.test is None else [path, Path(reading.test)]
    return [read_parquet(place) if place.suffix == ".parquet" else read_csv(place, kinds) for place in paths]


def encode_frames(frames: Sequence[Frame], reading: Reading, table: Table | None) -> tuple[Table, list[Tensor]]:
    """Training rows and, if any, test rows as numbers; `table` is fitted to the former where there is none."""
    if table is None:
        scaling = {"train": (frames[0],), "all": tuple(frames), "none": None}[reading.standardise]
        table = Table.fit(frames[0], reading.columns, reading.label, scaling)
    else:
        also = {name: "as asked" for name, kind in reading.columns.items() if kind == "drop"}
        also |= {} if reading.label is None else {reading.label: "it is the label"}
        table = Table(table.columns, also | table.ignored)
    return table, [torch.from_numpy(table.encode(frame)) for frame in frames]


def encode_labels(frames: Sequence[Frame], label: str) -> tuple[list[Tensor], list[str]]:
    """The class number of each row, -1 where it has no label, and the names of the classes."""
    import pyarrow as pa
    import pyarrow.compute as pc

    classes: list[str] = []
    numbers = []
    for frame in frames:
        frame.check(label)
        column = frame.column(label)
        if is_fractional(column):
            raise InputError(
                f"column {label!r} of {frame.name} has fractions, and labels are classes; to keep it out of the "
                f"samples use --columns {label} drop"
            )
        text = as_text(label, column)
        found = [name for name in text.unique().to_pylist() if name is not None]
        classes = classes or sorted(found, key=_in_order)
        if not classes:
            raise InputError(f"the label column {label!r} of {frame.name} has no values")
        if unseen := sorted(set(found) - set(classes)):
            raise InputError(f"{frame.name} has labels that the training samples have not: {unseen[:5]}")
        numbers.append(pc.fill_null(pc.index_in(text, pa.array(classes)), -1).to_numpy())
    return [torch.from_numpy(part.astype(np.int64)) for part in numbers], classes


def _in_order(name: str) -> tuple[bool, float, str]:
    """Numbers by value, before words."""
    try:
        return False, float(name), name
    except ValueError:
        return True, 0.0, name
