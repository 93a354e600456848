"""`imix.embed`: features of any data, as an array or a file."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from imix.data import Data
from imix.encoders import lent_to
from imix.errors import InputError
from imix.evaluation.features import Encoded
from imix.evaluation.reading import frames_of, load_for
from imix.files import writable, write_atomically
from imix.run import Run, as_run
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
        out = writable(Path(out), FORMATS, "features")
    run = as_run(run)
    dataset = load_for(run, data, columns=columns, data_dir=data_dir)
    written = _kept(data, dataset, keep, to_csv=out is not None and out.suffix == ".csv") if keep else {}
    where = pick_device(device)
    sources = {"train": dataset.train} | ({"test": dataset.test} if dataset.test is not None else {})
    with lent_to(where, run.encoder) as encoder:
        features = {name: Encoded(encoder, source, where).features().cpu().numpy() for name, source in sources.items()}
    vectors = np.concatenate(list(features.values()))
    if out is None:
        return vectors
    if out.suffix == ".npy":
        write_atomically(out, lambda file: np.save(file, vectors), vectors.nbytes)
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
    write_atomically(out, lambda file: write(table, file), table.nbytes)
    return vectors


def _kept(data: Any, dataset: Data, names: Sequence[str], to_csv: bool) -> dict[str, Any]:
    """Columns of a table as they are in its file, or in the frame that was given."""
    import pyarrow as pa

    taken = [name for name in names if re.fullmatch(r"f\d+|split|file|label", name)]
    if taken:
        raise InputError(f"{taken[0]!r} is what embed calls a column of its own; give that of the table another name")
    parts = [pa.table({name: frame.column(name) for name in names}) for frame in frames_of(data, dataset, names)]
    kept = pa.concat_tables(parts, promote_options="permissive")
    for field in kept.schema:
        if to_csv and pa.types.is_nested(field.type):
            raise InputError(f"column {field.name!r} holds lists or the like, which .csv cannot; write .parquet")
    return {name: kept.column(name) for name in names}


def _printable(name: str) -> str:
    """A name of bytes that are no UTF-8, as far as it goes."""
    return os.fsencode(name).decode(errors="backslashreplace")
