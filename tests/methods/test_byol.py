"""BYOL's predictor."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

from imix.methods import BYOL
from imix.mix import MixUp
from tests.methods.helpers import table_learner, views


@pytest.mark.parametrize("mix", [None, MixUp()], ids=["none", "mixup"])
def test_byol_predictor_is_applied_to_the_anchors_only(mix):
    learner = table_learner("byol", mix)
    rows: list[Tensor] = []
    learner.predictor.register_forward_pre_hook(lambda _, inputs: rows.append(inputs[0]))
    view_1, view_2 = views()
    twin = copy.deepcopy(learner)
    torch.manual_seed(0)
    learner(view_1, view_2)
    torch.manual_seed(0)
    assert len(rows) == 1
    assert_close(rows[0], twin.head(twin.encoder(twin.mix(view_1)[0])))


def test_byol_is_not_symmetric_by_default():
    learner = table_learner("byol", head="mlp").eval()
    view_1, view_2 = views()
    p, k = learner.predictor(learner.head(learner.encoder(view_1))), learner.keys(view_2)[0]
    assert_close(learner(view_1, view_2), 2 - 2 * F.cosine_similarity(p, k).mean())
    assert not torch.allclose(learner(view_1, view_2), learner(view_2, view_1))


def test_byol_predictor_has_a_hidden_layer_with_the_width_of_the_encoder():
    learner = BYOL(nn.Linear(5, 24), dim=8)
    assert [type(layer).__name__ for layer in learner.predictor] == ["Linear", "BatchNorm1d", "ReLU", "Linear"]
    assert learner.predictor[0].weight.shape == (24, 8)
    assert learner.predictor[-1].weight.shape == (8, 24)
