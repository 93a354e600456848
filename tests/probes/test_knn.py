"""kNN votes against a plain loop."""

import importlib

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from imix import InputError
from imix.evaluation import KNN
from imix.probes.knn import knn
from tests.probes.helpers import blobs


def test_knn_probabilities_match_a_plain_loop():
    train, test = blobs(60, noise=3), blobs(40, seed=1, noise=3)
    protocol = KNN(k=7, temperature=0.1)
    expected = []
    for x in test.inputs:
        similarities = [F.cosine_similarity(x, other, dim=0).item() for other in train.inputs]
        nearest = sorted(range(60), key=lambda i: -similarities[i])[:7]
        votes = [0.0] * 3
        for i in nearest:
            votes[train.labels[i]] += np.exp(similarities[i] / 0.1)
        expected.append(np.array(votes) / sum(votes))
    assert knn(train.inputs, train.labels, test.inputs, 3, protocol).numpy() == pytest.approx(
        np.array(expected), abs=1e-4
    )
    targets = train.labels.float() * 10
    means = [10 * (probabilities @ np.arange(3)) for probabilities in expected]
    assert knn(train.inputs, targets, test.inputs, 1, protocol)[:, 0].numpy() == pytest.approx(means, abs=1e-3)


def test_the_result_does_not_depend_on_how_many_similarities_fit_in_memory(monkeypatch):
    train, test = blobs(60, noise=3), blobs(40, seed=1, noise=3)
    expected = knn(train.inputs, train.labels, test.inputs, 3)
    monkeypatch.setattr(importlib.import_module("imix.probes.knn"), "MAX_SIMILARITIES", 7 * 60)
    assert torch.allclose(knn(train.inputs, train.labels, test.inputs, 3), expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 0}, "k must be an int above 0; got 0"),
        ({"k": 2.5}, "k must be an int above 0; got 2.5"),
        ({"temperature": 0.0}, "temperature must be above 0; got 0.0"),
    ],
)
def test_invalid_hyperparameters_are_rejected_by_name(arguments, message):
    with pytest.raises(InputError, match=message):
        KNN(**arguments)
