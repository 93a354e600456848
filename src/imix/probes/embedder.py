"""`Embedder`: adds embeddings to batches of rows, for Ray Data, Hugging Face `datasets` and similar tools."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from imix.data.tables.frame import format_names, is_frame
from imix.data.tables.huggingface import is_dataset
from imix.encoders import infer_width, temporarily_on
from imix.errors import InputError, first_line
from imix.probes.features import EncodedSource
from imix.probes.run_data import load_for_run
from imix.run import Run, as_run, load_run
from imix.run.config import read_config
from imix.run.stored_encoder import encoder_file
from imix.runtime.device import pick_device

OUTPUT = "embedding"


class Embedder:
    """A callable that returns a batch with an additional column, `embedding`.

    It can be pickled and sent to other processes or machines. A run in a folder is sent as its path, and each process
    loads it once.

    Parameters
    ----------
    run : Run, nn.Module, str or Path
        A run, its folder or an encoder in it, or any module from samples (N, ...) to features (N, F).
    column : str, optional
        The column with the samples, if the run was not trained on a table. Images may be (H, W, C) or (C, H, W).
        Default: the only column of the batch.
    device : str
        "auto", "cpu", "cuda" or "cuda:N", in the process that embeds.

    Examples
    --------
    >>> embedder = imix.Embedder(torch.nn.Linear(5, 3), column="x", device="cpu")
    >>> batch = embedder({"id": [7, 8], "x": torch.randn(2, 5)})
    >>> list(batch), batch["embedding"].shape
    (['id', 'x', 'embedding'], (2, 3))
    """

    def __init__(self, run: "Run | nn.Module | str | Path", *, column: str | None = None, device: str = "auto") -> None:
        if isinstance(run, Run) and run.path is not None and not run.config.architecture.is_custom:
            run = run.path / run.encoder_file
        if isinstance(run, str | Path):
            run = Path(run).absolute()
            read_config(run.parent if run.is_file() else run)
        else:
            run = as_run(run)
        self.run, self.column, self.device = run, column, device

    def __call__(self, batch: Any) -> Any:
        """Embed the rows of a batch.

        Parameters
        ----------
        batch : dict of columns, data frame (pandas, polars, arrow, Hugging Face), or array or Tensor of shape (N, ...)
            A table needs the input columns of the run and may have others.

        Returns
        -------
        dict, data frame, array or Tensor
            The batch with a column `embedding` of N vectors or, for an array, the embeddings (N, F).
        """
        device = pick_device(self.device)
        run = self.run
        if isinstance(run, Path):  # loaded again if the run has been replaced
            file = encoder_file(run) if run.is_dir() else run
            run = _load(run, file.stat().st_mtime_ns, device)
        samples = self._samples(batch, run)
        if len(samples) == 0:
            return _with_embeddings(batch, np.empty((0, infer_width(run.encoder[-1]) or 0), np.float32))
        source = load_for_run(run, samples).train
        with temporarily_on(device, run.encoder) as encoder:
            features = EncodedSource(encoder, source, device).features().float().cpu().numpy()
        return _with_embeddings(batch, features)

    def _samples(self, batch: Any, run: Run) -> Any:
        """Return the input of the run from a batch: a table or an array."""
        if not isinstance(batch, Mapping) and not is_frame(batch):
            return batch
        columns = _columns(batch)
        names = list(columns)
        if OUTPUT in names:
            raise InputError(f"the batch already has a column {OUTPUT!r}")
        if run.table is not None:
            if missing := [name for name in run.table.kinds if name not in names]:
                raise InputError(f"the batch does not have the columns of the run; missing: {format_names(missing)}")
            return _select(batch, [columns[name] for name in run.table.kinds])
        column = self.column if self.column is not None or len(names) != 1 else names[0]
        if column not in names:
            raise InputError(
                f"`column` must be one of the batch's columns, {', '.join(map(repr, names))}; got {column!r}"
            )
        values = batch[columns[column]]
        if not isinstance(values, np.ndarray | Tensor) or values.dtype == object:
            values = np.stack([np.asarray(value) for value in values]) if len(values) else np.empty(0)
        shape = run.config.architecture.shape
        if shape is not None and len(shape) == 3 and tuple(values.shape[1:]) == (*shape[1:], shape[0]) != shape:
            values = np.moveaxis(np.asarray(values), 3, 1)
        return values


@functools.lru_cache(maxsize=2)
def _load(path: Path, modified: int, device: torch.device) -> Run:
    """Load a run, with its encoder on the device, once per process."""
    run = load_run(path)
    run.encoder.to(device)
    return run


def _columns(batch: Any) -> dict[str, Any]:
    """Return the columns of a batch by their names as text; those of pandas may be numbers."""
    names = (
        batch if isinstance(batch, Mapping) else batch.column_names if hasattr(batch, "column_names") else batch.columns
    )
    return {str(name): name for name in names}


def _select(batch: Any, names: list[Any]) -> Any:
    """Return these columns of a batch as a table."""
    if is_dataset(batch):
        return batch.select_columns(names)
    if not isinstance(batch, Mapping):
        return batch.select(names) if hasattr(batch, "select") else batch[names]
    import pyarrow as pa

    try:
        return pa.table({str(name): pa.array(batch[name], from_pandas=True) for name in names})
    except (pa.ArrowException, TypeError) as error:
        raise InputError(f"the batch cannot be read as a table: {first_line(error)}") from error


def _with_embeddings(batch: Any, features: np.ndarray) -> Any:
    """Return the batch with a column of features (N, F), or for an array the features."""
    if isinstance(batch, Mapping):
        return {**batch, OUTPUT: features}
    if not is_frame(batch):
        return torch.from_numpy(features) if isinstance(batch, Tensor) else features
    if is_dataset(batch):
        return batch.add_column(OUTPUT, features.tolist())
    if hasattr(batch, "iloc"):  # pandas
        return batch.assign(**{OUTPUT: list(features)})
    if hasattr(batch, "with_columns"):  # polars
        import polars as pl

        return batch.with_columns(pl.Series(OUTPUT, features))
    import pyarrow as pa

    return batch.append_column(OUTPUT, pa.FixedSizeListArray.from_arrays(features.ravel(), features.shape[1]))
