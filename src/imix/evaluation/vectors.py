"""`imix.embed`: features of any data, as an array or a file."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from imix.data import Data, load
from imix.errors import InputError
from imix.evaluation.features import Encoded, frozen
from imix.run import Run
from imix.train.loop import pick_device

FORMATS = (".parquet", ".npy", ".csv")


def embed(run: "Run | str | Path", data: Any, out: "str | Path | None" = None, *, device: str = "auto") -> np.ndarray:
    """Features (N, F) of every sample, training samples before test samples, in order.

    With `out`, they are written too: .npy as they are; .parquet and .csv with a column for each feature (f0, f1, ...),
    `split` (train or test) and `label` where the data has labels.
    """
    if out is not None:
        out = Path(out)
        if out.suffix not in FORMATS:
            raise InputError(f"cannot write features to {str(out)!r}; choose a file that ends in {', '.join(FORMATS)}")
        if not out.parent.is_dir():
            raise InputError(f"cannot write {str(out)!r}: there is no folder {str(out.parent)!r}")
    run = run if isinstance(run, Run) else Run.load(run)
    dataset = load(data)
    check_shape(run, dataset)
    where = pick_device(device)
    encoder = run.encoder.to(where)
    sources = {"train": dataset.train} | ({"test": dataset.test} if dataset.test is not None else {})
    with frozen(encoder):
        features = {
            split: Encoded(encoder, source, where).features().cpu().numpy() for split, source in sources.items()
        }
    vectors = np.concatenate(list(features.values()))
    if out is None:
        return vectors
    if out.suffix == ".npy":
        np.save(out, vectors)
        return vectors
    import pyarrow as pa
    from pyarrow import csv, parquet

    columns = {f"f{i}": column for i, column in enumerate(vectors.T)}
    columns["split"] = np.repeat(list(features), [len(part) for part in features.values()])
    labels = [source.labels.cpu() for source in sources.values() if source.labels is not None]
    if len(labels) == len(sources):
        numbers = torch.cat(labels).numpy()
        columns["label"] = np.array(dataset.class_names)[numbers] if dataset.class_names else numbers
    table = pa.table(columns)
    parquet.write_table(table, out) if out.suffix == ".parquet" else csv.write_csv(table, out)
    return vectors


def check_shape(run: Run, data: Data) -> None:
    """Refuse samples of another shape than the run's."""
    shape = run.config["architecture"]["shape"]
    if shape is not None and data.train.shape != tuple(shape):
        raise InputError(f"the run was trained on samples of shape {tuple(shape)}; {data.name} has {data.train.shape}")
