"""Small descriptions of the inputs, in which distances are cheap: columns, thumbnails or mel spectrograms."""

import torch
import torch.nn.functional as F
from torch import Tensor

from imix.batch import Batch, fields, to_float
from imix.data import Data, Source
from imix.encoders.mel import FLOOR, LogMel

BATCH_SIZE = 1024
THUMBNAIL_SIZE = 16  # pixels


def is_image(data: Data) -> bool:
    """Whether the samples are images (C, H, W)."""
    return data.clip is None and len(data.train.shape or ()) == 3


def describe_inputs(data: Data, source: Source) -> Tensor:
    """Return vectors (N, D) of the samples.

    Thumbnails and spectrograms have mean 0 and length 1, so that a dot product is a correlation. Tables are their
    encoded columns, and other samples are flattened.
    """
    mel = None if data.clip is None else LogMel(data.clip)
    parts = []
    for batch, _ in source.batches(torch.arange(len(source)).split(BATCH_SIZE)):
        if mel is not None and isinstance(batch, Tensor):
            parts.append(correlated(mel(to_float(batch)) / FLOOR))
        elif is_image(data) and isinstance(batch, Tensor):
            parts.append(correlated(_thumbnails(to_float(batch))))
        else:
            parts.append(_flat(batch))
    return torch.cat(parts)


def correlated(x: Tensor) -> Tensor:
    """Return samples (n, ...) as vectors (n, D) of mean 0 and length 1; constant samples become 0."""
    x = x.flatten(1)
    return F.normalize(x - x.mean(1, keepdim=True), dim=1, eps=1e-6)


def _thumbnails(images: Tensor) -> Tensor:
    if max(images.shape[2:]) <= THUMBNAIL_SIZE:
        return images
    return F.interpolate(images, (THUMBNAIL_SIZE, THUMBNAIL_SIZE), mode="bilinear", antialias=True)


def _flat(batch: Batch) -> Tensor:
    return torch.cat([values.flatten(1) for values in fields(to_float(batch))], 1)
