"""The Fréchet embedding distance (FED) between training and test samples (appendix C.4 of the paper)."""

import torch
import torch.nn.functional as F
from torch import Tensor

from imix.probes.features import EncodedSource


def fed(train: EncodedSource, test: EncodedSource) -> float:
    """Return the squared Fréchet distance between the normalized features of training and test samples."""
    return frechet_distance(*_moments(train.features()), *_moments(test.features()))


def frechet_distance(mean_1: Tensor, covariance_1: Tensor, mean_2: Tensor, covariance_2: Tensor) -> float:
    """Return the squared Fréchet distance between two Gaussians, in float64. Covariances may be singular.

    Tr (S1 S2)^(1/2) is computed from the symmetric matrix S1^(1/2) S2 S1^(1/2), which has the same trace of the square
    root and whose eigenvalues are real and nonnegative.
    """
    root = _square_root(covariance_1.double())
    eigenvalues = torch.linalg.eigvalsh(root @ covariance_2.double() @ root)
    traces = covariance_1.double().trace() + covariance_2.double().trace()
    between = (mean_1.double() - mean_2.double()).square().sum()
    return max(0.0, float(between + traces - 2 * eigenvalues.clamp(min=0).sqrt().sum()))


def _moments(features: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and covariance (divided by N, not N - 1) of the normalized features, in float64."""
    normalized = F.normalize(features.double(), dim=1)
    mean = normalized.mean(0)
    centered = normalized - mean
    return mean, centered.T @ centered / len(normalized)


def _square_root(covariance: Tensor) -> Tensor:
    """Return the symmetric square root of a positive semidefinite matrix; negative rounding errors count as 0."""
    eigenvalues, vectors = torch.linalg.eigh(covariance)
    return (vectors * eigenvalues.clamp(min=0).sqrt()) @ vectors.T
