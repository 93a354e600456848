"""Features of a frozen encoder, made in pieces."""

import os
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from imix.augment import Augment
from imix.batch import as_floats, laid_out, map_fields, size
from imix.data import Source
from imix.encoders import evaluating
from imix.errors import InputError
from imix.progress import Told

CHUNK = 1024  # samples encoded at a time
MOST_VOTES = 1 << 26  # numbers that are held at a time, for samples and classes


class Encoded:
    """A source as a frozen encoder sees it: iterate for (features (n, F), labels (n,) or None) in order.

    With `views`, of a view that is made anew each time; with `bf16`, in the precision of training on a GPU.
    """

    def __init__(
        self,
        encoder: nn.Module,
        source: Source,
        device: torch.device,
        views: Augment | None = None,
        bf16: bool = False,
    ) -> None:
        self.encoder, self.source, self.device = encoder, source, device
        self.views, self.bf16 = views, bf16

    def without_views(self) -> "Encoded":
        """The samples as they are."""
        return Encoded(self.encoder, self.source, self.device, bf16=self.bf16)

    def __len__(self) -> int:
        return len(self.source)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor | None]]:
        rows = torch.arange(len(self.source)).split(CHUNK)
        told, done = Told("encoding", len(self.source), "samples"), 0
        with torch.no_grad(), evaluating(self.encoder):
            for batch, labels in self.source.batches(rows):
                x = as_floats(map_fields(lambda x: x.to(self.device), batch))
                x = map_fields(laid_out, x if self.views is None else self.views(x))
                with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
                    features = self.encoder(x)
                self._check(features, size(x))
                yield features.float() if self.bf16 else features, None if labels is None else labels.to(self.device)
                done += len(features)
                told(done)

    def _check(self, features: Tensor, n: int) -> None:
        """Refuse what cannot be evaluated; views of training images are not looked at again for what is not finite."""
        shape = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        if len(shape) != 2 or shape[0] != n:
            raise InputError(f"an encoder gives features (N, F), a row for each sample; of {n} this one gave {shape}")
        if self.views is None and not features.isfinite().all():
            raise InputError("the encoder gives numbers that are not finite: it was trained too fast, or has not been")

    def features(self) -> Tensor:
        """All features, (N, F)."""
        return torch.cat([features for features, _ in self])

    def labels(self) -> Tensor:
        """All labels, (N,); the source must have them."""
        assert self.source.labels is not None
        return self.source.labels.to(self.device)


def in_parts(pieces: Iterable[tuple[Tensor, Tensor | None]], votes: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Features and labels of so few samples at a time that there is room for that many `votes` on each."""
    most = max(1, MOST_VOTES // votes)
    for features, labels in pieces:
        assert labels is not None
        yield from zip(features.split(most), labels.split(most), strict=True)


def check_room(need: int, device: torch.device, classes: int, what: str) -> None:
    """Refuse what takes more memory than the device has, before it fills it."""
    if device.type == "cuda":
        there = torch.cuda.mem_get_info(device)[1]
    else:
        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if need > there:
        raise InputError(
            f"{what} of {classes:,} classes would take {need / 1e9:,.0f} GB of memory, and there are "
            f"{there / 1e9:,.0f}; knn takes little"
        )
