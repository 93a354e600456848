"""Features of a frozen encoder, computed in batches."""

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor, nn

from imix.augment import Augment
from imix.batch import map_fields, size, to_channels_last, to_float
from imix.data import Source, TensorSource
from imix.data.memory import total_memory
from imix.encoders import eval_mode
from imix.errors import InputError
from imix.progress import ProgressLine
from imix.runtime.distributed import gather_on_rank_0, rank, world_size

BATCH_SIZE = 1024  # samples encoded at a time
MAX_SCORES = 1 << 26  # maximum number of class scores of a chunk of samples, to bound memory


class EncodedSource:
    """The features of a source: iterates over batches (features (n, F), labels (n,) or None) in order.

    With `augment`, every iteration encodes a new view of each sample. With `bf16`, the encoder runs under autocast.
    """

    def __init__(
        self,
        encoder: nn.Module,
        source: Source,
        device: torch.device,
        augment: Augment | None = None,
        bf16: bool = False,
    ) -> None:
        self.encoder, self.source, self.device = encoder, source, device
        self.augment, self.bf16 = augment, bf16

    def without_augment(self) -> "EncodedSource":
        """Return the same source without augmentation."""
        return EncodedSource(self.encoder, self.source, self.device, bf16=self.bf16)

    def __len__(self) -> int:
        return len(self.source)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor | None]]:
        yield from self._encode(torch.arange(len(self.source)).split(BATCH_SIZE))

    def _encode(self, rows: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor | None]]:
        """Encode these batches of rows."""
        progress, done = ProgressLine("encoding", sum(map(len, rows)), "samples"), 0
        with torch.no_grad(), eval_mode(self.encoder):
            for batch, labels in self.source.batches(rows):
                x = to_float(map_fields(lambda x: x.to(self.device), batch))
                x = map_fields(to_channels_last, x if self.augment is None else self.augment(x))
                with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
                    features = self.encoder(x)
                self._check(features, size(x))
                yield features.float() if self.bf16 else features, None if labels is None else labels.to(self.device)
                done += len(features)
                if rank() == 0:
                    progress(done)

    def _check(self, features: Tensor, n: int) -> None:
        """Raise InputError for features that cannot be evaluated."""
        shape = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        if len(shape) != 2 or shape[0] != n:
            raise InputError(f"the encoder must return features (N, F), one row per sample; got {shape} for N={n}")
        # With augmentation this would run in every epoch, and each check waits for the GPU.
        if self.augment is None and not features.isfinite().all():
            raise InputError("the encoder returns features that are not finite; try a lower learning rate in training")

    def features(self, divide: bool = False) -> Tensor:
        """Return all features, (N, F).

        With `divide`, each rank encodes some of the batches, which are the same as on one rank; rank 0 returns all
        features, the other ranks those that they encoded.
        """
        if not divide:
            return torch.cat([features for features, _ in self])
        batches = torch.arange(len(self.source)).split(BATCH_SIZE)
        parts = [[batches[i] for i in part] for part in torch.arange(len(batches)).tensor_split(world_size())]
        features = [features for features, _ in self._encode(parts[rank()])]
        sizes = [sum(map(len, part)) for part in parts]
        return gather_on_rank_0(torch.cat(features) if features else torch.empty(0), sizes)

    def by_all_ranks(self) -> "EncodedSource":
        """Return, on rank 0, a source of the same features in memory, which all ranks encode together."""
        features = self.features(divide=True)
        if rank() > 0:
            return self
        return EncodedSource(nn.Identity(), TensorSource(features, self.source.labels).to(self.device), self.device)

    def labels(self) -> Tensor:
        """Return all labels, (N,). The source must have labels."""
        assert self.source.labels is not None
        return self.source.labels.to(self.device)


def in_chunks(
    batches: Iterable[tuple[Tensor, Tensor | None]], scores_per_sample: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Split batches of features and labels so that the class scores of one chunk fit in memory."""
    chunk_size = max(1, MAX_SCORES // scores_per_sample)
    for features, labels in batches:
        assert labels is not None
        yield from zip(features.split(chunk_size), labels.split(chunk_size), strict=True)


def check_memory(required: int, device: torch.device, n_classes: int, task: str) -> None:
    """Raise InputError if a task needs more bytes than the device has, before it runs out of memory."""
    available = torch.cuda.mem_get_info(device)[1] if device.type == "cuda" else total_memory()
    if required > available:
        raise InputError(
            f"{task} of {n_classes:,} classes would take {required / 1e9:,.0f} GB of memory, but the device has "
            f"{available / 1e9:,.0f} GB"
        )
