"""The Fréchet embedding distance between training and test samples (the paper's appendix C.4)."""

import torch
import torch.nn.functional as F
from torch import Tensor

from imix.evaluation.features import Encoded


def fed(train: Encoded, test: Encoded) -> float:
    """The distance between features of training and of test samples, each of length 1, as if they were Gaussian."""
    return frechet_distance(*_moments(train.features()), *_moments(test.features()))


def frechet_distance(mean_1: Tensor, covariance_1: Tensor, mean_2: Tensor, covariance_2: Tensor) -> float:
    """The squared Fréchet distance of two Gaussians, in float64; covariances may be singular.

    Tr (S1 S2)^(1/2) is that of the symmetric S1^(1/2) S2 S1^(1/2), whose eigenvalues are real and not negative.
    """
    root = _root(covariance_1.double())
    eigenvalues = torch.linalg.eigvalsh(root @ covariance_2.double() @ root)
    traces = covariance_1.double().trace() + covariance_2.double().trace()
    between = (mean_1.double() - mean_2.double()).square().sum()
    return max(0.0, float(between + traces - 2 * eigenvalues.clamp(min=0).sqrt().sum()))


def _moments(features: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and covariance (over N, not N - 1) of normalised features, in float64."""
    directions = F.normalize(features.double(), dim=1)
    mean = directions.mean(0)
    centred = directions - mean
    return mean, centred.T @ centred / len(directions)


def _root(covariance: Tensor) -> Tensor:
    """The symmetric square root of a matrix that has no negative eigenvalues but by rounding."""
    eigenvalues, vectors = torch.linalg.eigh(covariance)
    return (vectors * eigenvalues.clamp(min=0).sqrt()) @ vectors.T
