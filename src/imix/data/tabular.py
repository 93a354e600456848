"""Tables to samples: frames as rows of numbers, and classes out of the label column."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from imix.data.csv_file import read_csv
from imix.data.frame import Frame, read_parquet
from imix.data.table import Table, find_kinds, naming
from imix.data.values import as_text, has_fractions, holds_numbers
from imix.errors import InputError
from imix.settings import Reading


def read_frames(path: Path, reading: Reading, table: Table | None = None) -> list[Frame]:
    """A .csv (.tsv, also compressed) or .parquet file, and the file of test samples if `reading` names one.

    What a file's text means is decided once, by the training rows.
    """
    kinds = reading.columns if table is None else table.kinds
    train = _read(path, kinds, reading)
    if reading.test is None:
        return [train]
    if table is None:
        kinds = {name: kind for name, (kind, _) in find_kinds(train, reading.columns, reading.label).items()}
    return [train, _read(Path(reading.test), kinds, reading)]


def encode_frames(frames: Sequence[Frame], reading: Reading, table: Table | None) -> tuple[Table, list[Tensor]]:
    """Training rows and, if any, test rows as numbers; `table` is fitted to the former where there is none."""
    if table is None:
        scaling = {"train": frames[:1], "all": frames, "none": ()}[reading.standardise]
        table = Table.fit(frames[0], reading.columns, reading.label, scaling)
    else:
        if reading.label in table.kinds:
            raise InputError(
                f"column {reading.label!r} was an input of this run, so it cannot be its label; to evaluate by it, "
                f"train with --columns {reading.label} drop"
            )
        for name, kind in reading.columns.items():
            if table.kinds.get(name, kind) != kind:
                raise InputError(f"column {name!r} is {table.kinds[name]} in this run, and cannot be {kind} now")
        also = {name: "as asked" for name, kind in reading.columns.items() if kind == "drop"}
        also |= {} if reading.label is None else {reading.label: "it is the label"}
        table = Table(table.columns, also | table.ignored)
    return table, [torch.from_numpy(table.encode(frame)) for frame in frames]


def encode_labels(
    frames: Sequence[Frame], label: str, needed: bool = True
) -> tuple[list[Tensor] | list[None], list[str]]:
    """The class number of each row, -1 where it has no label, and the names of the classes.

    A column without any label is refused if labels are `needed`, and otherwise gives none.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    for frame in frames:
        frame.check(label)
    with naming(label, "a label"):
        columns = [frame.column(label) for frame in frames]
        numbers = holds_numbers(columns[0], frames[0].marks)
        texts = [as_text(column, numbers, gaps=("",)) for column in columns]  # other gaps a CSV file has left out
    found = [[name for name in text.unique().to_pylist() if name is not None] for text in texts]
    classes = sorted(found[0], key=_in_order)
    if not classes and not needed:
        return [None] * len(frames), []
    if not classes:
        raise InputError(f"the label column {label!r} of {frames[0].name} has no values")
    if numbers and (has_fractions(values := np.array(classes, float)) or np.isinf(values).any()):
        raise InputError(
            f"column {label!r} of {frames[0].name} has fractions or infinite values, and labels are classes; to keep "
            f"it out of the samples use --columns {label} drop"
        )
    for frame, names in zip(frames, found, strict=True):
        if unseen := sorted(set(names) - set(classes)):
            raise InputError(f"{frame.name} has labels that the training samples have not: {unseen[:5]}")
    places = [pc.fill_null(pc.index_in(text, pa.array(classes)), -1).to_numpy() for text in texts]
    return [torch.from_numpy(place.astype(np.int64)) for place in places], classes


def _read(path: Path, kinds: Mapping[str, str], reading: Reading) -> Frame:
    if path.suffix.lower() == ".parquet":
        return read_parquet(path)
    return read_csv(path, kinds, reading.header, reading.label)


def _in_order(name: str) -> tuple[bool, float, str]:
    """Numbers by value, before words."""
    try:
        return False, float(name), name
    except ValueError:
        return True, 0.0, name
