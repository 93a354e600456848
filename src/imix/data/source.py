"""What training and evaluation ask of data: how many samples, batches of chosen rows, and labels if there are any."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from imix.batch import Batch, fields, map_fields, size
from imix.data.mel import Clip
from imix.data.table import Table
from imix.errors import InputError
from imix.settings import Reading

OF_FINGERPRINT = 1_000  # samples


class Source(ABC):
    """Samples by row, on some device, with or without labels."""

    labels: Tensor | None = None

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def batches(self, rows: Iterable[Tensor]) -> Iterator[tuple[Batch, Tensor | None]]:
        """Samples and labels for each tensor of row numbers, in order; a source that streams may read ahead here."""

    @abstractmethod
    def to(self, device: torch.device) -> "Source":
        """This source with its batches on that device."""

    @abstractmethod
    def take(self, rows: Tensor) -> "Source":
        """The source of those rows alone."""

    def sample(self, n: int) -> Batch:
        """The first n samples, or all where there are fewer."""
        return next(self.batches([torch.arange(min(n, len(self)))]))[0]

    def fingerprint(self) -> str | None:
        """What samples are known by when they come again; None where they are not in memory and so may change."""
        return None

    def nbytes(self) -> int:
        """Memory that all samples would take on a device; 0 where the source streams them."""
        return 0

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Shape of one sample; None where a sample has several fields."""
        sample = self.sample(1)
        return tuple(sample.shape[1:]) if isinstance(sample, Tensor) else None

    @property
    def classes(self) -> int:
        """Number of classes of the labels, which are 0, 1, ...; 0 where there are no labels."""
        return 0 if self.labels is None else int(self.labels.max()) + 1


class Tensors(Source):
    """Samples held in memory: a tensor (N, ...) or a tuple, list or dict of them, and labels (N,) if any."""

    def __init__(self, inputs: Batch, labels: Tensor | None = None) -> None:
        if size(inputs) == 0:
            raise InputError("there are no samples in the data")
        if labels is not None and labels.shape != (size(inputs),):
            raise InputError(
                f"{size(inputs)} samples need labels of shape ({size(inputs)},); got {tuple(labels.shape)}"
            )
        self.inputs = inputs
        self.labels = labels

    def __len__(self) -> int:
        return size(self.inputs)

    def batches(self, rows: Iterable[Tensor]) -> Iterator[tuple[Batch, Tensor | None]]:
        """Chosen samples and labels, where the data lies."""
        device = fields(self.inputs)[0].device
        for chosen in rows.to(device) if isinstance(rows, Tensor) else rows:
            at = chosen.to(device)
            yield map_fields(lambda x, at=at: x[at], self.inputs), None if self.labels is None else self.labels[at]

    def to(self, device: torch.device) -> "Tensors":
        """All samples on that device."""
        labels = None if self.labels is None else self.labels.to(device)
        return Tensors(map_fields(lambda x: x.to(device), self.inputs), labels)

    def take(self, rows: Tensor) -> "Tensors":
        """The source of those rows alone."""
        labels = None if self.labels is None else self.labels[rows]
        return Tensors(map_fields(lambda x: x[rows], self.inputs), labels)

    def fingerprint(self) -> str:
        """By some of them, evenly spread."""
        n = min(len(self), OF_FINGERPRINT)
        some = self.take(torch.arange(n) * len(self) // n)
        digest = hashlib.sha256()
        for values in fields(some.inputs):
            digest.update(values.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()[:16]

    def nbytes(self) -> int:
        """Memory the samples take."""
        return sum(field.nbytes for field in fields(self.inputs))


@dataclass(frozen=True)
class Data:
    """A data set: training samples, test samples if it has them, and what its classes are called if that is known.

    `reading` is how it was read, `table` how the columns of a table became numbers, `names` what samples that are files
    are called, training samples before test samples, and `augment` how views are made unless settings say it. `clip` is
    what sounds have in common, `noise` what their views may be mixed with.
    """

    name: str
    train: Source
    test: Source | None = None
    class_names: Sequence[str] = ()
    reading: Reading = field(default_factory=Reading)
    table: Table | None = None
    names: Sequence[str] = ()
    augment: str = "none"
    clip: Clip | None = None
    noise: Tensor | None = None

    def __post_init__(self) -> None:
        if self.test is not None and self.test.shape != self.train.shape:
            raise InputError(
                f"{self.name}: test samples have shape {self.test.shape}, training samples {self.train.shape}"
            )

    @property
    def classes(self) -> int:
        """Number of classes of training and test samples together: one that is rare may be in the test part alone."""
        return max(part.classes for part in (self.train, self.test) if part is not None)

    @property
    def called(self) -> list[str]:
        """What the classes are called: their names, or else their numbers."""
        return list(self.class_names) or [str(number) for number in range(self.classes)]


def take_fraction(data: Data, fraction: float) -> Data:
    """Data with that share of its training samples: of each class alike where there are labels, drawn once."""
    if fraction == 1:
        return data
    n, labels = len(data.train), data.train.labels
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(n, generator=generator)
    groups = [order] if labels is None else [order[labels[order] == label] for label in labels.unique()]
    rows = torch.cat([group[: max(1, round(len(group) * fraction))] for group in groups]).sort().values
    names = [data.names[row] for row in rows.tolist()] + list(data.names[n:]) if data.names else ()
    return replace(data, train=data.train.take(rows), names=names)
