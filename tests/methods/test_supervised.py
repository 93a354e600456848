"""The supervised baseline."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from imix import InputError
from imix.methods import Supervised
from imix.mix import MixUp
from tests.methods.helpers import CLASSES, LABELS, N, table_learner, views


def test_supervised_with_mixup_matches_a_plain_loop():
    learner = table_learner("supervised", MixUp())
    x, _ = views()
    twin = copy.deepcopy(learner)
    torch.manual_seed(2)
    loss = learner(x, labels=LABELS)
    torch.manual_seed(2)
    mixed, (partner, lam) = twin.mix(x)
    one_hot = F.one_hot(LABELS, CLASSES).float()
    log_p = twin.classifier(twin.encoder(mixed)).log_softmax(1)
    expected = 0.0
    for i in range(N):
        label = lam[i] * one_hot[i] + (1 - lam[i]) * one_hot[partner[i]]
        expected = expected - (label * log_p[i]).sum() / N
    assert_close(loss, expected)


def test_labels_of_the_wrong_shape_are_rejected():
    learner = Supervised(nn.Linear(4, 4), n_classes=3, width=4)
    assert learner(torch.randn(6, 4), torch.arange(6, dtype=torch.int32) % 3).isfinite()
    for labels in ([0, 1, 2, 0, 1, 2], torch.zeros(5), torch.zeros(6, 1)):
        with pytest.raises(InputError, match="labels of 6 samples"):
            learner(torch.randn(6, 4), labels)
