"""Samples to explore: features, ids and columns to keep, in the order of the data."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from imix.batch import Batch
from imix.data import Data, Source, Table, load
from imix.data.media.references import AUDIO_SUFFIXES, IMAGE_SUFFIXES
from imix.data.tables.frame import has_missing_values
from imix.errors import InputError
from imix.explore.explain import InputColumn, input_columns
from imix.explore.inputs import SmallInputs, small_inputs
from imix.files import check_output_path
from imix.probes.embed import decode_file_name, encode_source, read_columns, sample_columns
from imix.probes.run_data import load_for_run
from imix.run import Run, as_run
from imix.settings import DataSettings

if TYPE_CHECKING:
    import polars as pl

FORMATS = (".parquet", ".csv")
BATCH_SIZE = 1024
COLLAPSE_TOLERANCE = 1e-6  # features whose directions differ by less are considered equal


class ReadOptions(TypedDict, total=False):
    """Data options and the columns to keep; the same options as those of `imix.embed`."""

    label: str | None
    missing_label: str | None
    columns: Mapping[str, str] | None
    keep: Sequence[str]
    path_column: str | None
    test: str | None
    data_dir: str | None
    device: str


@dataclass(frozen=True)
class Origin:
    """How samples were loaded, if they have a name or path."""

    data: str
    with_test: bool
    options: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples with their features: training samples, then test samples.

    Parameters
    ----------
    data : Data
        The data set.
    features : Tensor of shape (N, F)
        L2-normalized features.
    kept : dict of str to column
        Columns of the table to copy to the answer, with the original values.
    device : str
        Where similarities are computed.
    run : Run or None
        The run whose encoder computed the features.
    origin : Origin or None
        How the samples were loaded; None if they are in memory only.
    """

    data: Data
    features: Tensor
    kept: Mapping[str, Any] = field(default_factory=dict)
    device: str = "auto"
    run: Run | None = None
    origin: Origin | None = None

    def __len__(self) -> int:
        return len(self.features)

    @property
    def sources(self) -> dict[str, Source]:
        """The training samples and, if there are any, the test samples."""
        return {"train": self.data.train} | ({"test": self.data.test} if self.data.test is not None else {})

    @property
    def n_train(self) -> int:
        """Number of training samples."""
        return len(self.data.train)

    @cached_property
    def labels(self) -> Tensor | None:
        """Labels (N,) as in `Source.labels`; None if no sample has one."""
        parts = [source.labels for source in self.sources.values()]
        known = [part.cpu() for part in parts if part is not None]
        if not known:
            return None
        none = torch.nan if known[0].is_floating_point() else -1
        return torch.cat(
            [
                torch.full((len(source),), none, dtype=known[0].dtype) if part is None else part.cpu()
                for source, part in zip(self.sources.values(), parts, strict=True)
            ]
        )

    def label_names(self, labels: Tensor) -> "pl.Series":
        """Return the names of classes (n,), or their numbers; null for -1, which means "no label"."""
        import polars as pl

        values = pl.Series("label", labels.numpy())
        if self.data.train.is_numeric or not self.data.class_names:
            return values if labels.is_floating_point() else values.set(values < 0, None)
        names = pl.Series("label", [decode_file_name(name) for name in self.data.class_names], dtype=pl.String)
        return names.gather(values.set(values < 0, None))

    def batches(self) -> Iterator[Batch]:
        """Yield all samples in order, in batches."""
        for source in self.sources.values():
            for batch, _ in source.batches(torch.arange(len(source)).split(BATCH_SIZE)):
                yield batch

    @cached_property
    def columns(self) -> "pl.DataFrame":
        """The columns of an answer about each sample: those kept, `row`, and if any `split`, `file` and `label`."""
        import polars as pl

        columns: dict[str, Any] = {name: pl.from_arrow(column) for name, column in self.kept.items()}
        columns["row"] = np.concatenate([np.arange(len(source)) for source in self.sources.values()])
        known = sample_columns(self.data, self.sources)
        columns |= {name: known[name] for name in ("split", "file") if name in known}
        columns |= {} if self.labels is None else {"label": self.label_names(self.labels)}
        return pl.DataFrame(columns)

    def comparable_inputs(self) -> SmallInputs:
        """Small versions of the inputs. Columns of arrays are standardized; those of tables already are."""
        inputs = small_inputs(self.data, list(self.sources.values()))
        return inputs.standardized() if inputs.kind == "vector" and self.data.table is None else inputs

    def input_columns(self) -> list[InputColumn]:
        """The columns of a table or array with their original scale and categories; none for other samples."""
        if len(self.data.train.shape or ()) != 1:
            return []
        return input_columns(self.data, small_inputs(self.data, list(self.sources.values())).values.numpy())

    @property
    def id_columns(self) -> list[str]:
        """The columns that identify a sample: `row`, and `split` and `file` if there are any."""
        return [name for name in ("row", "split", "file") if name in self.columns.columns]

    def names(self, positions: Sequence[int] | np.ndarray) -> list[str]:
        """Return short names of samples for a summary."""
        return short_names(self.columns[[int(position) for position in positions]])


def short_names(ids: "pl.DataFrame") -> list[str]:
    """Return the files of samples, or their row numbers."""
    if "file" in ids.columns:
        return [str(name) for name in ids["file"]]
    splits = ids["split"] if "split" in ids.columns else ["train"] * len(ids)
    return [f"{'test ' if split == 'test' else ''}row {row}" for row, split in zip(ids["row"], splits, strict=True)]


def read_samples(
    run: "Run | nn.Module | str | Path | None",
    data: Any,
    out: "str | Path | None" = None,
    reserved: str = "",
    *,
    keep: Sequence[str] = (),
    device: str = "auto",
    **options: Any,
) -> Samples:
    """Load data for a run and compute its features. By default, use the data of the run with its test samples.

    Without a run, the features are the inputs: arrays as they are, encoded columns, thumbnails or mel spectrograms.
    `reserved` is a pattern of column names that cannot be kept, because the answer has such columns.
    """
    if out is not None:
        check_output_path(Path(out), FORMATS, "the answer")
    keep = [keep] if isinstance(keep, str) else list(keep)
    loaded_run = None if run is None else as_run(run)
    data = as_data(data)
    if data is None:
        if loaded_run is None:
            raise InputError("`data` is required without a run")
        data, with_test = loaded_run.config.data.name, True
    else:
        with_test = False
    dataset = _load(loaded_run, data, with_test, options)
    to_csv = out is not None and Path(out).suffix == ".csv"
    kept = read_columns(data, dataset, keep, f"{reserved}|row", to_csv) if keep else {}
    features = encode(loaded_run, dataset, device)
    if len(features) > 1 and float((features.amax(0) - features.amin(0)).max()) < COLLAPSE_TOLERANCE:
        raise InputError(
            f"all {len(features):,} samples of {dataset.name} have the same features, so they cannot be compared"
        )
    origin = None
    if isinstance(data, str | Path):
        given = {name: value for name, value in options.items() if value is not None}
        texts = {name: dict(value) if isinstance(value, Mapping) else str(value) for name, value in given.items()}
        origin = Origin(str(data), with_test, texts)
    return Samples(dataset, features, kept, device, loaded_run, origin)


def read_queries(run: Run | None, data: Any, samples: Samples, **options: Any) -> Samples:
    """Load data to compare with `samples`; their options apply, except for the label, the test file and `keep`."""
    options = {name: options.get(name) for name in ("columns", "path_column", "data_dir")}
    dataset = _load(run, as_data(data), False, options, samples.data.table)
    return Samples(dataset, encode(run, dataset, samples.device))


def as_data(data: Any) -> Any:
    """Return a list with the path of a single image or audio file, and other data unchanged."""
    is_file = isinstance(data, str | Path) and Path(data).suffix.lower() in (*IMAGE_SUFFIXES, *AUDIO_SUFFIXES)
    return [str(data)] if is_file and Path(data).is_file() else data


def encode(run: Run | None, data: Data, device: str = "auto") -> Tensor:
    """Return the L2-normalized features (N, F) of training and test samples."""
    sources = [data.train] if data.test is None else [data.train, data.test]
    if run is None:
        features = small_inputs(data, sources).as_features()
    else:
        features = torch.cat([torch.from_numpy(encode_source(run, source, device)) for source in sources])
    features = F.normalize(features.float(), dim=1)
    if not features.isfinite().all():
        raise InputError(f"the features of {data.name} must be finite")
    return features


def _load(run: Run | None, data: Any, with_test: bool, options: Mapping[str, Any], table: Table | None = None) -> Data:
    """Load data with the options of the run; without a run, with `options` and the fitted `table`, if there is one."""
    if run is not None:
        return load_for_run(run, data, given_rows_only=not with_test, **options)
    if has_missing_values(data):
        raise InputError("the features must be finite; got NaN")
    data_settings = DataSettings(**{name: value for name, value in options.items() if value is not None})
    return load(data, data_settings, table=table)
