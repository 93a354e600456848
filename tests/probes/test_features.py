"""Features that are computed in batches, and encoders whose output cannot be evaluated."""

import pytest
import torch
from torch import nn

import imix
from imix import InputError
from imix.data import TensorSource
from imix.probes import features as features_module
from imix.probes.features import BATCH_SIZE
from imix.probes.linear_paper import LinearClassifiers, LinearPaper, linear_paper
from imix.probes.pinv import pinv
from tests.probes.helpers import blobs, encoded


def test_encoding_in_batches_equals_encoding_at_once():
    source = TensorSource(torch.randn(2 * BATCH_SIZE + 3, 4))
    encoder = nn.Linear(4, 3)
    torch.testing.assert_close(encoded(source, encoder).features(), encoder(source.inputs).detach())


def test_results_do_not_depend_on_the_chunk_size(monkeypatch):
    train, test = encoded(blobs(90, noise=3)), encoded(blobs(60, seed=1, noise=3))
    protocols = pinv, lambda *arguments: linear_paper(*arguments, LinearPaper(epochs=3))
    expected = [protocol(train, test, 3) for protocol in protocols]
    sizes = []
    logits = LinearClassifiers.logits
    monkeypatch.setattr(LinearClassifiers, "logits", lambda self, x: sizes.append(len(x)) or logits(self, x))
    monkeypatch.setattr(features_module, "MAX_SCORES", 7 * 3 * 8)
    assert [protocol(train, test, 3) for protocol in protocols] == expected
    chunks = sizes[2 * 3 :]  # after the training batches: two sets of classifiers, one batch in each of three epochs
    assert max(chunks) == 8 and sum(chunks) == 9 + 60 + 90


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (lambda x: x / 0, "not finite"),
        (lambda x: x[:1], r"got \(1, 5\) for N=60"),
        (lambda x: (x, x), "got tuple"),
        (lambda x: x[:, None], r"got \(60, 1, 5\)"),
    ],
)
@pytest.mark.parametrize("protocol", ["linear", "knn", "trees", "pinv", "linear-paper"])
def test_an_encoder_with_invalid_output_is_rejected(forward, message, protocol):
    class Encoder(nn.Module):
        def forward(self, x):
            return forward(x)

    with pytest.raises(InputError, match=message):
        imix.evaluate(Encoder(), torch.rand(75, 5), labels=torch.arange(75) % 3, protocol=protocol)
