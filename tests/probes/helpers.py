"""Small labeled data sets and encoded sources for the tests of probes."""

import torch
from torch import nn

from imix import Settings
from imix.data import TensorSource
from imix.probes.features import EncodedSource

CPU = torch.device("cpu")
QUICK = Settings(epochs=1, batch_size=64, encoder="mlp:16-32", device="cpu")


def blobs(n: int, seed: int = 0, classes: int = 3, width: int = 5, noise: float = 1.0) -> TensorSource:
    """Gaussian clusters, one per class. Every seed has the same cluster centers."""
    generator = torch.Generator().manual_seed(seed)
    centers = 3 * torch.randn(classes, width, generator=torch.Generator().manual_seed(99))
    labels = torch.arange(n) % classes
    return TensorSource(centers[labels] + noise * torch.randn(n, width, generator=generator), labels)


def encoded(source: TensorSource, encoder: nn.Module | None = None) -> EncodedSource:
    """A source seen through an encoder, by default the identity."""
    return EncodedSource(encoder or nn.Identity(), source, CPU)
