"""Augmentation that needs no knowledge of the domain: masking noise."""

from dataclasses import dataclass

import torch
from torch import Tensor

from imix.batch import Batch, map_fields
from imix.errors import InputError


@dataclass(frozen=True)
class Masking:
    """Set each cell to 0 with probability `p`, independently per sample, per cell and per call; nothing is rescaled.

    >>> bool((Masking(0.2)(torch.ones(1000, 50)) == 0).float().mean().sub(0.2).abs() < 0.02)
    True
    """

    p: float = 0.2

    def __post_init__(self) -> None:
        if not 0 <= self.p <= 1:
            raise InputError(f"the probability of masking must lie within 0 and 1; got {self.p}")

    def __call__(self, batch: Batch) -> Batch:
        """Mask every field of the batch."""

        def mask(x: Tensor) -> Tensor:
            return x.masked_fill(torch.rand(x.shape, device=x.device) < self.p, 0)

        return map_fields(mask, batch)
