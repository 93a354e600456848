"""`imix.embed`: features of any data, as an array or a file."""

import itertools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from imix.data import GIVEN, TABLES, Data, read_as_before
from imix.data.frame import Frame, as_frame, is_frame
from imix.data.tabular import read_frames
from imix.data.ways import check_ways
from imix.errors import InputError
from imix.evaluation.features import Encoded
from imix.files import write_atomically
from imix.run import Run, as_run
from imix.settings import Reading
from imix.train.device import pick_device

FORMATS = (".parquet", ".npy", ".csv")


def embed(
    run: "Run | nn.Module | str | Path",
    data: Any,
    out: "str | Path | None" = None,
    *,
    columns: Mapping[str, str] | None = None,
    keep: Sequence[str] = (),
    data_dir: str | None = None,
    device: str = "auto",
) -> np.ndarray:
    """Features (N, F) of every sample, training samples before test samples, in order.

    `run` may be any module, too. `data` is read as the run's was; a table must have the run's columns, and no others
    but those that `columns` says to drop ({"id": "drop"}). `data_dir` is the folder of a named data set's files.

    With `out`, they are written too: .npy as they are; .parquet and .csv with a column for each feature (f0, f1, ...),
    `split` (train or test) where there are test samples, `file` where samples are files, `label` where the data has
    labels, and before these the columns of a table to `keep`, such as one by which rows are known.
    """
    keep = [keep] if isinstance(keep, str) else list(keep)
    if keep and (out is None or Path(out).suffix == ".npy"):
        raise InputError(f"keep={keep} is for features that are written to a .parquet or .csv file")
    if out is not None:
        out = Path(out)
        if out.suffix not in FORMATS:
            raise InputError(f"cannot write features to {str(out)!r}; choose a file that ends in {', '.join(FORMATS)}")
        if not out.parent.is_dir():
            raise InputError(f"cannot write {str(out)!r}: there is no folder {str(out.parent)!r}")
    run = as_run(run)
    dataset = load_for(run, data, columns=columns, data_dir=data_dir)
    written = _kept(data, dataset, keep, to_csv=out is not None and out.suffix == ".csv") if keep else {}
    where = pick_device(device)
    encoder = run.encoder.to(where)
    sources = {"train": dataset.train} | ({"test": dataset.test} if dataset.test is not None else {})
    features = {split: Encoded(encoder, source, where).features().cpu().numpy() for split, source in sources.items()}
    vectors = np.concatenate(list(features.values()))
    if out is None:
        return vectors
    if out.suffix == ".npy":
        _write(out, lambda file: np.save(file, vectors), vectors.nbytes)
        return vectors
    import pyarrow as pa
    from pyarrow import csv, parquet

    written |= {f"f{i}": column for i, column in enumerate(vectors.T)}
    if dataset.names:
        written["file"] = np.array([_printable(name) for name in dataset.names])
    if len(features) > 1:
        written["split"] = np.repeat(list(features), [len(part) for part in features.values()])
    labels = [source.labels.cpu() for source in sources.values() if source.labels is not None]
    if len(labels) == len(sources):
        numbers = torch.cat(labels).numpy()
        names = np.array([*map(_printable, dataset.class_names), None], dtype=object)  # rows without a label have -1
        written["label"] = names[numbers] if dataset.class_names else numbers
    table = pa.table(written)
    write = parquet.write_table if out.suffix == ".parquet" else csv.write_csv
    _write(out, lambda file: write(table, file), table.nbytes)
    return vectors


def _kept(data: Any, dataset: Data, names: Sequence[str], to_csv: bool) -> dict[str, Any]:
    """Columns of a table as they are in its file, or in the frame that was given."""
    import pyarrow as pa

    taken = [name for name in names if re.fullmatch(r"f\d+|split|file|label", name)]
    if taken:
        raise InputError(f"{taken[0]!r} is what embed calls a column of its own; give that of the table another name")
    parts = [pa.table({name: frame.column(name) for name in names}) for frame in _frames(data, dataset, names)]
    kept = pa.concat_tables(parts, promote_options="permissive")
    for field in kept.schema:
        if to_csv and pa.types.is_nested(field.type):
            raise InputError(f"column {field.name!r} holds lists or the like, which .csv cannot; write .parquet")
    return {name: kept.column(name) for name in names}


def _frames(data: Any, dataset: Data, names: Sequence[str]) -> list[Frame]:
    """The table that data was made of, and that of its test samples, with those columns as text; refused without."""
    in_file = isinstance(data, str | Path) and dataset.name.lower().endswith(TABLES)
    if dataset.table is None or not (in_file or is_frame(data)):
        raise InputError(f"columns by name are those of a .csv or .parquet file or a frame; {dataset.name} is none")
    if in_file:
        files = [place for place in (dataset.name, dataset.reading.test) if place is not None]
        as_text = replace(dataset.reading, label=None, test=None, columns=dict.fromkeys(names, "categorical"))
        frames = [read_frames(Path(place), as_text)[0] for place in files]
    else:
        frames = [as_frame(data, "the data")]
    for frame, name in itertools.product(frames, names):
        frame.check(name)
    return frames


def _write(path: Path, write: Callable[[Any], None], need: int) -> None:
    """Let `write` fill the file."""

    def fill(unfinished: Path) -> None:
        with open(unfinished, "wb") as file:
            write(file)

    write_atomically(path, fill, need)


def _printable(name: str) -> str:
    """A name of bytes that are no UTF-8, as far as it goes."""
    return os.fsencode(name).decode(errors="backslashreplace")


def _is_called(data: str | Path, name: str) -> bool:
    """Whether data, by its name or any spelling of its path, is what a run calls so."""
    return str(data) == name or os.path.realpath(data) == os.path.realpath(name)


def load_for(run: Run, data: Any, labels: Any = None, **given: Any) -> Data:
    """Data read as the run's was, whole, and but for what is given; refused if the run's encoder cannot take it."""
    if isinstance(data, str) and data == run.config["data"]["name"] == GIVEN:
        raise InputError(
            "the run was trained on arrays or a frame, which it does not keep; give data=... (and labels=...)"
        )
    given = {name: value for name, value in given.items() if value is not None}
    if not isinstance(data, Data):
        check_ways(data, Reading(**given))
    if "label" in given and run.table is None:
        raise InputError("label names a column of a table, and the run was not trained on one")
    reading = replace(run.reading, fraction=1.0)
    if isinstance(data, Data):
        reading = data.reading  # it was read before
    elif not isinstance(data, str | Path) or not _is_called(data, run.config["data"]["name"]):
        reading = replace(reading, test=None, data_dir=None)  # of no meaning for other data
    if labels is not None:
        reading = replace(reading, label=None)  # what is given goes before what is remembered
    reading = replace(reading, **given)
    if "label" in given and not given.get("columns"):  # what was no input may be a label
        reading = replace(reading, columns={k: v for k, v in reading.columns.items() if k != reading.label})
    dataset = read_as_before(data, reading, labels=labels, table=run.table)
    shape = run.config["architecture"]["shape"]
    if shape is not None and dataset.train.shape != tuple(shape):
        raise InputError(
            f"the run was trained on samples of shape {tuple(shape)}; {dataset.name} has {dataset.train.shape}"
        )
    if "label" in given and dataset.train.labels is None:
        _frames(data, dataset, [given["label"]])
        raise InputError(f"column {given['label']!r} is empty")
    if dataset.table is not None and run.table is None:
        raise InputError(f"the run was trained on arrays without gaps, and {dataset.name} is a table or has gaps")
    return dataset
