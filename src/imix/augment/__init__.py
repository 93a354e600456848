"""Augmentations: functions from a batch to a batch, on the batch's device, with one independent draw per sample."""

from collections.abc import Callable

from imix.augment.tabular import Masking, Resampling
from imix.batch import Batch

__all__ = ["Augment", "Masking", "Resampling", "no_augment"]

Augment = Callable[[Batch], Batch]


def no_augment(batch: Batch) -> Batch:
    """Views as they are, the paper's hardest setting."""
    return batch
