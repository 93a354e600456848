"""`Source`, the interface between data and training; `TensorSource`, samples in memory; `Data`, a data set."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from imix.batch import Batch, checked_size, fields, first_field, map_fields, size
from imix.data.tables.table import Table
from imix.encoders.mel import Clip
from imix.errors import InputError
from imix.runtime.rng import epoch_order
from imix.settings import DataSettings

FINGERPRINT_SAMPLES = 1_000


class Source(ABC):
    """Samples that are accessed by row number, with or without labels.

    Subclass it to train on data that `imix.data.load` cannot read: implement `__len__`, `batches`, `to` and `take`,
    and set `labels` if there are any.

    Attributes
    ----------
    labels : Tensor of shape (N,) or None
        Classes 0, 1, ..., where -1 means "no label"; or numeric targets (floats), where NaN means "no label".

    Examples
    --------
    >>> class Lines(imix.data.Source):
    ...     def __init__(self, slopes):
    ...         self.slopes = slopes
    ...     def __len__(self):
    ...         return len(self.slopes)
    ...     def batches(self, rows):
    ...         for batch in rows:
    ...             yield self.slopes[batch, None] * torch.arange(10), None
    ...     def to(self, device):
    ...         return Lines(self.slopes.to(device))
    ...     def take(self, rows):
    ...         return Lines(self.slopes[rows])
    >>> run = imix.pretrain(Lines(torch.randn(64)), epochs=1, device="cpu", progress=False)
    >>> imix.embed(run, Lines(torch.randn(5))).shape
    (5, 256)
    """

    labels: Tensor | None = None
    in_blocks: bool = False  # whether `epoch_order` visits samples that are stored together at about the same time

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def batches(self, rows: Iterable[Tensor]) -> Iterator[tuple[Batch, Tensor | None]]:
        """Yield samples and labels for each tensor of row numbers, in order. May prefetch batches.

        Parameters
        ----------
        rows : iterable of Tensor of shape (B,)
            Row numbers of each batch.

        Yields
        ------
        samples : Tensor of shape (B, ...), or a tuple, list or dict of such tensors
        labels : Tensor of shape (B,) or None
        """

    @abstractmethod
    def to(self, device: torch.device) -> "Source":
        """Return this source with its batches on `device`."""

    @abstractmethod
    def take(self, rows: Tensor) -> "Source":
        """Return a source of these rows only."""

    def sample(self, n: int) -> Batch:
        """Return the first n samples, or all samples if there are fewer."""
        return next(self.batches([torch.arange(min(n, len(self)))]))[0]

    def epoch_order(self, seed: int, epoch: int, rows: Tensor | None = None) -> Tensor:
        """Return the order in which an epoch of training visits all samples, or these rows: each of them once."""
        order = epoch_order(seed, epoch, len(self if rows is None else rows))
        return order if rows is None else rows[order]

    def fingerprint(self) -> str | None:
        """Return a hash that identifies the samples, or None if they are not in memory and may change."""
        return None

    def nbytes(self) -> int:
        """Return the memory that all samples take on a device; 0 if the source streams them."""
        return 0

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Shape of one sample, or None if a sample has several fields."""
        sample = self.sample(1)
        return tuple(sample.shape[1:]) if isinstance(sample, Tensor) else None

    @property
    def n_classes(self) -> int:
        """Number of classes; 0 without labels or with numeric targets."""
        return 0 if self.labels is None or self.is_numeric else int(self.labels.max()) + 1

    @property
    def is_numeric(self) -> bool:
        """Whether the labels are numeric targets instead of classes."""
        return self.labels is not None and self.labels.is_floating_point()

    @property
    def has_label(self) -> Tensor:
        """Which samples have a label, (N,)."""
        if self.labels is None:
            return torch.zeros(len(self), dtype=torch.bool)
        return ~self.labels.isnan() if self.is_numeric else self.labels >= 0


class TensorSource(Source):
    """Samples in memory.

    Parameters
    ----------
    inputs : Tensor of shape (N, ...), or a tuple, list or dict of such tensors
        Samples.
    labels : Tensor of shape (N,), optional
        Classes 0, 1, ..., where -1 means "no label"; or numeric targets (floats), where NaN means "no label".

    Examples
    --------
    >>> source = imix.data.TensorSource(torch.randn(6, 4), torch.tensor([0, 1, 0, 1, 0, 1]))
    >>> len(source), source.shape, source.n_classes
    (6, (4,), 2)
    >>> x, y = next(source.batches([torch.tensor([0, 5])]))
    >>> x.shape, y
    (torch.Size([2, 4]), tensor([0, 1]))
    """

    def __init__(self, inputs: Batch, labels: Tensor | None = None) -> None:
        if checked_size(inputs) == 0:
            raise InputError("the data contains no samples")
        if labels is not None and labels.shape != (size(inputs),):
            raise InputError(
                f"labels of {size(inputs)} samples must have shape ({size(inputs)},); got {tuple(labels.shape)}"
            )
        self.inputs = inputs
        self.labels = labels

    def __len__(self) -> int:
        return size(self.inputs)

    def batches(self, rows: Iterable[Tensor]) -> Iterator[tuple[Batch, Tensor | None]]:
        """Yield samples and labels on the device of the inputs."""
        device = first_field(self.inputs).device
        for batch_rows in rows.to(device) if isinstance(rows, Tensor) else rows:
            i = batch_rows.to(device)
            yield map_fields(lambda x, i=i: x[i], self.inputs), None if self.labels is None else self.labels[i]

    def to(self, device: torch.device) -> "TensorSource":
        """Return this source with all samples on `device`."""
        labels = None if self.labels is None else self.labels.to(device)
        return TensorSource(map_fields(lambda x: x.to(device), self.inputs), labels)

    def take(self, rows: Tensor) -> "TensorSource":
        """Return a source of these rows only."""
        labels = None if self.labels is None else self.labels[rows]
        return TensorSource(map_fields(lambda x: x[rows], self.inputs), labels)

    def fingerprint(self) -> str:
        """Return a hash of up to 1,000 evenly spaced samples."""
        n = min(len(self), FINGERPRINT_SAMPLES)
        chosen = self.take(torch.arange(n) * len(self) // n)
        digest = hashlib.sha256()
        for values in fields(chosen.inputs):
            digest.update(values.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()[:16]

    def nbytes(self) -> int:
        """Return the memory that the samples take."""
        return sum(field.nbytes for field in fields(self.inputs))


@dataclass(frozen=True)
class Data:
    """A data set: training samples and, optionally, test samples and a description of both.

    Parameters
    ----------
    name : str
        Name of the data set, path, or "in-memory data".
    train : Source
        Training samples.
    test : Source, optional
        Test samples, of the same shape.
    class_names : sequence of str
        Names of the classes, if they are known.
    settings : DataSettings
        The options with which the data was read.
    table : Table, optional
        How the columns of a table are encoded as numbers.
    sample_names : sequence of str
        Names of the samples, if they are files: training samples, then test samples.
    augment : str
        Default for `Settings.augment`.
    clip : Clip, optional
        Format of audio clips.
    noise : Tensor of shape (M, 1, L), optional
        Recordings of noise to mix into views of audio clips.
    n_skipped : int
        Number of files in tar shards that could not be decoded and are not samples.

    Examples
    --------
    >>> data = imix.data.load("digits")
    >>> len(data.train), len(data.test), data.n_classes
    (1297, 500, 10)
    """

    name: str
    train: Source
    test: Source | None = None
    class_names: Sequence[str] = ()
    settings: DataSettings = field(default_factory=DataSettings)
    table: Table | None = None
    sample_names: Sequence[str] = ()
    augment: str = "none"
    clip: Clip | None = None
    noise: Tensor | None = None
    n_skipped: int = 0

    def __post_init__(self) -> None:
        if self.test is not None and self.test.shape != self.train.shape:
            raise InputError(
                f"{self.name}: test samples have shape {self.test.shape}, training samples {self.train.shape}"
            )

    @property
    def n_classes(self) -> int:
        """Number of classes of training and test samples; a rare class may occur in the test samples only."""
        return max(part.n_classes for part in (self.train, self.test) if part is not None)

    @property
    def display_names(self) -> list[str]:
        """Names of the classes, or their numbers if the names are unknown."""
        return list(self.class_names) or [str(number) for number in range(self.n_classes)]


def take_fraction(data: Data, fraction: float) -> Data:
    """Keep a fraction of the training samples, stratified by class and drawn with a fixed seed."""
    if fraction == 1:
        return data
    n, labels = len(data.train), data.train.labels
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(n, generator=generator)
    groups = (
        [order]
        if labels is None or data.train.is_numeric
        else [order[labels[order] == label] for label in labels.unique()]
    )
    rows = torch.cat([group[: max(1, round(len(group) * fraction))] for group in groups]).sort().values
    names = [data.sample_names[row] for row in rows.tolist()] + list(data.sample_names[n:]) if data.sample_names else ()
    return replace(data, train=data.train.take(rows), sample_names=names)
