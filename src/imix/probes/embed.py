"""`imix.embed`: the features of any data, as an array or a file."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from imix.data import Data, Source
from imix.encoders import temporarily_on
from imix.errors import InputError
from imix.files import check_output_path, write_atomically
from imix.probes.features import EncodedSource
from imix.probes.run_data import load_for_run, source_frames
from imix.run import Run, as_run
from imix.runtime import launch
from imix.runtime.device import pick_device
from imix.runtime.distributed import rank

FORMATS = (".parquet", ".npy", ".csv")


def embed(
    run: "Run | nn.Module | str | Path",
    data: Any,
    out: "str | Path | None" = None,
    *,
    columns: Mapping[str, str] | None = None,
    keep: Sequence[str] = (),
    path_column: str | None = None,
    data_dir: str | None = None,
    device: str = "auto",
) -> np.ndarray:
    """Compute the features of every sample, and optionally write them to a file.

    Parameters
    ----------
    run : Run, nn.Module, str or Path
        A run, its folder, or any module from samples (N, ...) to features (N, F).
    data : optional
        The data, in any form that `imix.pretrain` accepts. It is loaded with the run's data options, but without a
        second file of test samples. A table must have the columns that the run was trained on, and no others unless
        `columns` drops them.
    out : str or Path, optional
        A .npy file with the features; or a .parquet or .csv file with these columns: those in `keep`; the features f0,
        f1, ...; `file` if the samples are files; `split` ("train" or "test") if the data has test samples; `label` if
        it has labels.
    columns : dict, optional
        Columns to ignore, for example ``{"id": "drop"}``.
    keep : sequence of str
        Columns of the table to copy to `out`, for example an ID.
    path_column : str, optional
        Column of a table with the paths of the image or audio files. Default: the run's.
    data_dir : str, optional
        Folder with the files of a named data set.
    device : str
        "auto", "cpu", "cuda" or "cuda:N".

    Returns
    -------
    ndarray of shape (N, F)
        One row per sample, in the order of the data. If the data has test samples, such as those of a named data set,
        they come after the training samples. If the script is started by torchrun, call this function on every rank:
        they share the work, rank 0 returns and writes the features, and the other ranks return an empty array.

    Examples
    --------
    >>> encoder = torch.nn.Linear(5, 3)
    >>> imix.embed(encoder, torch.randn(10, 5), device="cpu").shape
    (10, 3)
    """
    keep = [keep] if isinstance(keep, str) else list(keep)
    if keep and (out is None or Path(out).suffix == ".npy"):
        raise InputError(f"`keep={keep}` needs `out=FILE` with a .parquet or .csv file")
    if out is not None:
        out = check_output_path(Path(out), FORMATS, "features")
    run = as_run(run)
    with launch.join_ranks() as divide:
        options: Any = {"columns": columns, "path_column": path_column, "data_dir": data_dir}
        dataset = load_for_run(run, data, given_rows_only=True, **options)
        to_csv = out is not None and out.suffix == ".csv"
        kept = read_columns(data, dataset, keep, r"f\d+", to_csv) if keep else {}
        torch_device = pick_device(device)
        sources = {"train": dataset.train} | ({"test": dataset.test} if dataset.test is not None else {})
        with temporarily_on(torch_device, run.encoder) as encoder:
            parts = [EncodedSource(encoder, source, torch_device).features(divide) for source in sources.values()]
        if divide and rank() > 0:
            return np.empty((0, 0), np.float32)
    features = np.concatenate([part.cpu().numpy() for part in parts])
    if out is None:
        return features
    if out.suffix == ".npy":
        write_atomically(out, lambda file: np.save(file, features), features.nbytes)
    else:
        feature_columns = {f"f{i}": column for i, column in enumerate(features.T)}
        write_columns(out, kept | feature_columns | sample_columns(dataset, sources))
    return features


def encode_source(run: Run, source: Source, device: str = "auto") -> np.ndarray:
    """Return the features (N, F) of a source, without sharing the work with other ranks."""
    torch_device = pick_device(device)
    with temporarily_on(torch_device, run.encoder) as encoder:
        return EncodedSource(encoder, source, torch_device).features().cpu().numpy()


def write_columns(out: Path, columns: Mapping[str, Any]) -> None:
    """Write columns to a .parquet or .csv file."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    table = pa.table(columns)
    write = parquet.write_table if out.suffix == ".parquet" else csv.write_csv
    write_atomically(out, lambda file: write(table, file), table.nbytes)


def sample_columns(dataset: Data, sources: Mapping[str, Source]) -> dict[str, np.ndarray]:
    """Return the columns `file`, `split` and `label`, if the data has them."""
    columns = {}
    if dataset.sample_names:
        columns["file"] = np.array([decode_file_name(name) for name in dataset.sample_names])
    if len(sources) > 1:
        columns["split"] = np.repeat(list(sources), [len(source) for source in sources.values()])
    labels = [source.labels.cpu() for source in sources.values() if source.labels is not None]
    if len(labels) == len(sources):
        indices = torch.cat(labels).numpy()
        names = np.array([*map(decode_file_name, dataset.class_names), None], dtype=object)  # index -1 means no label
        columns["label"] = names[indices] if dataset.class_names else indices
    return columns


def read_columns(data: Any, dataset: Data, names: Sequence[str], reserved: str, to_csv: bool) -> dict[str, Any]:
    """Return columns with their original values from the files or the data frame: training rows, then test rows.

    Names that match the pattern `reserved` are those of output columns, and an error.
    """
    import pyarrow as pa

    clashes = [name for name in names if re.fullmatch(rf"{reserved}|split|file|label", name)]
    if clashes:
        raise InputError(f"`keep={clashes[0]!r}` is the name of an output column; rename it in the table")
    frames = source_frames(data, dataset, names)
    table = pa.concat_tables([frame.data.select(list(names)) for frame in frames], promote_options="permissive")
    for name in names:
        if to_csv and pa.types.is_nested(table[name].type):
            raise InputError(f"column {name!r} holds lists or structs, which .csv cannot store; use .parquet")
    return {name: table[name] for name in names}


def decode_file_name(name: str) -> str:
    """Return a file name as text, with bytes that are not valid UTF-8 escaped."""
    return os.fsencode(name).decode(errors="backslashreplace")
