"""Augmentations: functions that map a batch to a batch on its device, with independent random draws per sample."""

from collections.abc import Callable

from torch import nn

from imix.augment import audio, image
from imix.augment.tabular import Masking, Resampling
from imix.batch import Batch

__all__ = ["Augment", "Masking", "Resampling", "audio", "compose", "image", "no_augment"]

Augment = Callable[[Batch], Batch]


def compose(first: Augment, second: Augment) -> Augment:
    """Chain two augmentations.

    Parameters
    ----------
    first, second : callable
        Functions from a batch to a batch.

    Returns
    -------
    callable
        An `nn.Sequential` if both are modules, so that it can be moved to a device; otherwise a function.

    Examples
    --------
    >>> augment = imix.augment.compose(imix.augment.Masking(0.2), imix.augment.Resampling(0.2))
    >>> augment(torch.randn(8, 5)).shape
    torch.Size([8, 5])
    """
    if isinstance(first, nn.Module) and isinstance(second, nn.Module):
        return nn.Sequential(first, second)
    return lambda batch: second(first(batch))


def no_augment(batch: Batch) -> Batch:
    """Return the batch unchanged."""
    return batch
