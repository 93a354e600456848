"""kNN accuracy against a plain loop."""

import numpy as np
import pytest
import torch.nn.functional as F

from imix import InputError
from imix.evaluation import KNN
from imix.probes.knn import knn
from tests.probes.helpers import blobs, encoded


def test_knn_accuracy_matches_a_plain_loop():
    train, test = blobs(60, noise=3), blobs(40, seed=1, noise=3)
    protocol = KNN(k=7, temperature=0.1)
    correct = 0
    for x, label in zip(test.inputs, test.labels, strict=True):
        similarities = [F.cosine_similarity(x, other, dim=0).item() for other in train.inputs]
        nearest = sorted(range(60), key=lambda i: -similarities[i])[:7]
        votes = [0.0] * 3
        for i in nearest:
            votes[train.labels[i]] += np.exp(similarities[i] / 0.1)
        correct += int(np.argmax(votes) == label)
    assert knn(encoded(train), encoded(test), 3, protocol) == correct / 40


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
