"""FED against the paper's equation, closed forms and scipy."""

import math

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm

from imix.data import TensorSource
from imix.probes.fed import fed, frechet_distance
from tests.probes.helpers import encoded


def covariance(seed: int, size: int, rank: int) -> np.ndarray:
    x = np.random.default_rng(seed).standard_normal((size, rank))
    return x @ x.T / rank


def test_fed_matches_the_equation_in_the_paper():
    torch.manual_seed(0)
    train, test = torch.randn(60, 5) + 0.3, torch.randn(40, 5)
    moments = []
    for features in (train, test):
        unit = [f / f.norm() for f in features.double()]
        m = sum(unit) / len(unit)
        s = sum(torch.outer(f - m, f - m) for f in unit) / len(unit)
        moments.append((m, s))
    (m1, s1), (m2, s2) = moments
    root = sqrtm((s1 @ s2).numpy()).real
    expected = float((m1 - m2).square().sum()) + np.trace(s1.numpy() + s2.numpy() - 2 * root)
    assert fed(encoded(TensorSource(train)), encoded(TensorSource(test))) == pytest.approx(expected, rel=1e-9)


def test_frechet_distance_of_diagonal_gaussians_matches_the_closed_form():
    a, b = np.array([1.0, 4.0, 9.0]), np.array([4.0, 1.0, 0.25])
    means = np.array([0.0, 1.0, 2.0]), np.array([1.0, 1.0, 0.0])
    expected = ((means[0] - means[1]) ** 2).sum() + ((np.sqrt(a) - np.sqrt(b)) ** 2).sum()
    arguments = [torch.tensor(x) for x in (means[0], np.diag(a), means[1], np.diag(b))]
    assert frechet_distance(*arguments) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("size", [2, 7, 30])
def test_frechet_distance_matches_scipys_matrix_square_root(size):
    s1, s2 = covariance(1, size, 2 * size), covariance(2, size, 2 * size)
    expected = np.trace(s1 + s2 - 2 * sqrtm(s1 @ s2).real)
    zero = torch.zeros(size)
    distance = frechet_distance(zero, torch.from_numpy(s1), zero, torch.from_numpy(s2))
    assert distance == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_frechet_distance_of_singular_covariances_is_finite_and_symmetric(rank):
    s1, s2 = (torch.from_numpy(covariance(seed, 20, max(rank, 1))) * (rank > 0) for seed in (1, 2))
    zero = torch.zeros(20)
    forward, backward = frechet_distance(zero, s1, zero, s2), frechet_distance(zero, s2, zero, s1)
    assert math.isfinite(forward) and forward == pytest.approx(backward, abs=1e-6) and forward >= 0
    assert frechet_distance(zero, s1, zero, s1) == pytest.approx(0, abs=1e-6)
