"""Views of a batch."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import imix
from imix import InputError
from imix.augment import Masking
from imix.train.views import Views
from tests.train.helpers import SMALL, assert_same_weights, weights


@pytest.mark.parametrize("input_mix", [None, imix.InputMix(2)])
def test_views_made_in_one_call_are_drawn_independently(input_mix):
    batch = {"row": torch.ones(500, 3), "series": torch.ones(500, 2, 4)}
    found = Views(Masking(0.5), 2, input_mix, in_one_call=True)(batch)
    assert [{name: field.shape for name, field in view.items()} for view in found] == [
        {name: field.shape for name, field in batch.items()}
    ] * 2
    assert not torch.equal(found[0]["row"], found[1]["row"])
    for view in found:
        assert abs(float(view["series"].mean()) - 0.5) < 0.05


def test_a_user_supplied_augmentation_is_called_once_per_view():
    seen = []
    found = Views(lambda x: seen.append(len(x)) or x + len(seen))(torch.zeros(5, 2))
    assert seen == [5, 5]
    assert [float(view.mean()) for view in found] == [1.0, 2.0]
    with pytest.raises(InputError, match="got 4 for 5"):
        Views(lambda x: x[:4])(torch.zeros(5, 2))


def test_an_augmentation_that_drops_samples_is_rejected(table):
    with pytest.raises(InputError, match="got 5 for 16"):
        imix.pretrain(table[0], replace(SMALL, batch_size=16), augment=lambda x: x[:5], progress=False)


def test_an_augmentation_that_does_nothing_still_replaces_the_default(table, capsys):
    imix.pretrain(table[0], SMALL, augment=nn.Sequential())
    assert "masking" not in capsys.readouterr().err


def test_an_in_place_augmentation_still_makes_two_views(table):
    def in_place(x):
        x[torch.rand_like(x) < 0.3] = 0
        return x

    def copied(x):
        return x.masked_fill(torch.rand_like(x) < 0.3, 0)

    first, other = (imix.pretrain(table[0], SMALL, augment=view, progress=False) for view in (in_place, copied))
    assert_same_weights(weights(first), weights(other))
