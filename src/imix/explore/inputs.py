"""Small versions of the inputs, whose distances are cheap to compute: columns, thumbnails or mel spectrograms."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from imix.batch import Batch, fields, to_float
from imix.data import Data, Source
from imix.encoders.mel import FLOOR, LogMel

BATCH_SIZE = 1024
THUMBNAIL_SIZE = 16  # pixels
PAIRS_AT_A_TIME = 16_384
MAX_SHIFT = 6  # frames of a spectrogram by which recordings are aligned, about 0.2 s


@dataclass(frozen=True, eq=False)
class SmallInputs:
    """Small versions of samples.

    Parameters
    ----------
    kind : {"image", "audio", "vector"}
        The kind of `values`.
    values : Tensor
        Thumbnails (N, C, h, w), mel spectrograms (N, 1, n_mels, frames), or vectors (N, D): the encoded columns of a
        table, or flattened samples.
    """

    kind: Literal["image", "audio", "vector"]
    values: Tensor

    def as_features(self) -> Tensor:
        """Return vectors (N, D). Those of images and audio are centered: cosine similarities are correlations."""
        if self.kind == "vector":
            return self.values
        flat = self.values.flatten(1)
        return flat - flat.mean(1, keepdim=True)

    def distances(self, i: Tensor, j: Tensor) -> Tensor:
        """Return the distances (P,) of pairs of samples: Euclidean, or for images and audio by correlation."""
        a, b = self.values[i], self.values[j]
        if self.kind == "vector":
            return (a - b).norm(dim=1)
        shifts = range(-MAX_SHIFT, MAX_SHIFT + 1) if self.kind == "audio" else (0,)
        length = a.shape[3]
        correlations = [
            _correlation(a[..., max(0, s) : length + min(0, s)], b[..., max(0, -s) : length + min(0, -s)])
            for s in shifts
            if abs(s) < length / 2
        ]
        return (2 - 2 * torch.stack(correlations).amax(0)).clamp(min=0).sqrt()

    def neighbor_distances(self, rows: np.ndarray, neighbors: np.ndarray) -> np.ndarray:
        """Return the distances (Q, k) of samples (Q,) to their neighbors (Q, k), computed in chunks."""
        i, j = torch.from_numpy(rows.repeat(neighbors.shape[1])), torch.from_numpy(neighbors.reshape(-1))
        chunks = zip(i.split(PAIRS_AT_A_TIME), j.split(PAIRS_AT_A_TIME), strict=True)
        return torch.cat([self.distances(*chunk) for chunk in chunks]).numpy().reshape(neighbors.shape)

    def standardized(self) -> "SmallInputs":
        """Return vectors with columns of standard deviation 1; constant columns become 0."""
        std = self.values.std(0, correction=0)
        return SmallInputs(self.kind, self.values / torch.where(std > 1e-6 * std.max(), std, torch.inf))


def _correlation(a: Tensor, b: Tensor) -> Tensor:
    """Return the correlation coefficients (P,) of pairs of arrays (P, ...); 1 for two constant ones."""
    a, b = (x.flatten(1) - x.flatten(1).mean(1, keepdim=True) for x in (a, b))
    norms = a.norm(dim=1), b.norm(dim=1)
    constant = torch.maximum(*norms) < 1e-6
    return torch.where(constant, 1.0, (a * b).sum(1) / (norms[0] * norms[1]).clamp(min=1e-12))


def small_inputs(data: Data, sources: Sequence[Source]) -> SmallInputs:
    """Return small versions of the samples of all sources, in order."""
    mel = None if data.clip is None else LogMel(data.clip)
    is_image = mel is None and len(data.train.shape or ()) == 3
    parts = []
    for source in sources:
        for batch, _ in source.batches(torch.arange(len(source)).split(BATCH_SIZE)):
            if mel is not None:
                parts.append(mel(to_float(batch)) / FLOOR)
            else:
                parts.append(_thumbnails(to_float(batch)) if is_image else _flat(batch))
    return SmallInputs("audio" if mel is not None else "image" if is_image else "vector", torch.cat(parts))


def _thumbnails(images: Tensor) -> Tensor:
    if max(images.shape[2:]) <= THUMBNAIL_SIZE:
        return images
    return F.interpolate(images, (THUMBNAIL_SIZE, THUMBNAIL_SIZE), mode="bilinear", antialias=True)


def _flat(batch: Batch) -> Tensor:
    return torch.cat([values.flatten(1) for values in fields(to_float(batch))], 1)
