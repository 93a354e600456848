"""kNN accuracy that is measured during training (imix.train.knn_probe)."""

from dataclasses import replace

import pytest
import torch

import imix
from imix import InputError
from tests.probes.helpers import QUICK, blobs


def test_knn_accuracy_is_logged_every_knn_every_epochs_and_does_not_change_training(capsys):
    source = blobs(100)
    run = imix.pretrain(source, replace(QUICK, epochs=5, knn_every=2))
    assert ["knn" in record for record in run.metrics] == [False, True, False, True, False]
    assert run.metrics[3]["knn"] > 0.6
    assert "kNN" in capsys.readouterr().err
    plain = imix.pretrain(source, replace(QUICK, epochs=5), progress=False)
    for a, b in zip(run.encoder.parameters(), plain.encoder.parameters(), strict=True):
        assert torch.equal(a, b)
    with pytest.raises(InputError, match="have no labels"):
        imix.pretrain(torch.randn(20, 3), replace(QUICK, knn_every=1), progress=False)


def test_the_last_knn_accuracy_equals_that_of_evaluate():
    source = blobs(100)
    run = imix.pretrain(source, replace(QUICK, epochs=4, knn_every=4), progress=False)
    assert run.metrics[-1]["knn"] == imix.evaluate(run, source, "knn").accuracy
