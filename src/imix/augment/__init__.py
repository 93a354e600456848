"""Augmentations: functions from a batch to a batch, on the batch's device, with one independent draw per sample."""

from collections.abc import Callable

from torch import nn

from imix.augment import image, speech
from imix.augment.tabular import Masking, Resampling
from imix.batch import Batch

__all__ = ["Augment", "Masking", "Resampling", "followed_by", "image", "no_augment", "speech"]

Augment = Callable[[Batch], Batch]


def followed_by(first: Augment, then: Augment) -> Augment:
    """One after the other, as a module where both are."""
    if isinstance(first, nn.Module) and isinstance(then, nn.Module):
        return nn.Sequential(first, then)
    return lambda batch: then(first(batch))


def no_augment(batch: Batch) -> Batch:
    """Views as they are, the paper's hardest setting."""
    return batch
