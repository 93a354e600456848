"""Nearest neighbors: the same as a plain loop, exact or approximate, and never the sample itself."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from imix import InputError
from imix.explore import neighbors
from imix.explore.neighbors import nearest


def directions(n: int, seed: int = 0) -> torch.Tensor:
    return F.normalize(torch.randn(n, 6, generator=torch.Generator().manual_seed(seed)), dim=1)


def test_neighbors_are_those_of_a_plain_loop(monkeypatch):
    monkeypatch.setattr(neighbors, "CHUNK", 7)
    bank, queries = directions(50), directions(9, 1)
    for asked in (None, queries):
        found = nearest(bank, asked, 4, "cpu")
        for i, query in enumerate(bank if asked is None else asked):
            similarities = [float(query @ row) for row in bank]
            order = sorted((j for j in range(50) if asked is not None or j != i), key=lambda j: -similarities[j])
            assert found.indices[i].tolist() == order[:4]
            np.testing.assert_allclose(found.similarities[i], [similarities[j] for j in order[:4]], atol=1e-5)
    assert found.description == "exact search"


def test_matrix_products_find_the_same_neighbors(monkeypatch):
    """The search of a GPU, on a CPU."""
    monkeypatch.setattr(neighbors, "MAX_SIMILARITIES", 500)
    bank, queries = directions(50), directions(9, 1)
    for asked, rows in ((bank, np.arange(50)), (queries, None)):
        (found, similarities), expected = (
            neighbors._on_gpu(bank, asked, rows, 4),
            neighbors._exact(bank, asked, rows, 4),
        )
        assert found.tolist() == expected[0].tolist()
        np.testing.assert_allclose(similarities, expected[1], atol=1e-5)


def test_a_sample_with_many_equal_ones_is_not_its_own_neighbor():
    bank = torch.cat([directions(1).repeat(20, 1), directions(5, 1)])
    found = nearest(bank, None, 3, "cpu")
    assert not (found.indices == np.arange(25)[:, None]).any()
    assert (found.indices[:20] < 20).all()


def test_k_must_be_less_than_the_number_of_samples():
    with pytest.raises(InputError, match="`k` must be between 1 and 4, the number of other samples; got 5"):
        nearest(directions(5), None, 5, "cpu")
    with pytest.raises(InputError, match="`k` must be between 1 and 5"):
        nearest(directions(5), directions(2), 0, "cpu")
    assert nearest(directions(5), directions(2), 5, "cpu").indices.shape == (2, 5)


def test_many_samples_are_searched_approximately_with_measured_recall(monkeypatch):
    pytest.importorskip("faiss")
    monkeypatch.setattr(neighbors, "EXACT_SAMPLES", 1000)
    centers = directions(40)
    bank = F.normalize(centers.repeat(50, 1) + 0.05 * torch.randn(2000, 6, generator=torch.Generator()), dim=1)
    found = nearest(bank, None, 5, "cpu")
    monkeypatch.setattr(neighbors, "EXACT_SAMPLES", 10_000)
    exact = nearest(bank, None, 5, "cpu")
    recall = np.mean([len(np.intersect1d(*pair)) / 5 for pair in zip(found.indices, exact.indices, strict=True)])
    assert recall > 0.95 and abs(recall - found.recall) < 0.03
    assert not (found.indices == np.arange(2000)[:, None]).any()
    assert found.description.startswith("approximate search, recall ") and exact.description == "exact search"


def test_without_faiss_the_search_is_exact_and_says_so(monkeypatch, capsys):
    monkeypatch.setattr(neighbors, "EXACT_SAMPLES", 1000)
    monkeypatch.setitem(__import__("sys").modules, "faiss", None)
    assert nearest(directions(1100), None, 2, "cpu").recall is None
    assert "pip install 'imix-ssl[faiss]'" in capsys.readouterr().err
