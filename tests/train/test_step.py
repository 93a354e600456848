"""The training step: optimizer, precision, compilation."""

import functools
import os
import signal
from dataclasses import replace

import pytest
import torch

import imix
from imix.augment import Masking
from imix.run import checkpoint
from imix.train.setup import build_method, build_mix
from imix.train.step import build_optimizer
from imix.train.views import Views
from tests.train.helpers import METHODS, SMALL, weights


def test_weight_decay_applies_to_every_parameter(table):
    learner = imix.NPair(imix.encoders.build("mlp:16-16", (6,)))
    optimizer = build_optimizer(learner, SMALL, torch.device("cpu"))
    decayed = [p for group in optimizer.param_groups if group["weight_decay"] == 1e-4 for p in group["params"]]
    assert len(decayed) == len(list(learner.parameters()))


class LateBranch(torch.nn.Module):
    """Its second layer is first used in the fourth call with gradients."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.n_calls = torch.nn.Linear(6, 8), torch.nn.Linear(6, 8), 0

    def forward(self, x):
        self.n_calls += torch.is_grad_enabled()
        return self.first(x) if self.n_calls < 4 else self.first(x) + self.second(x)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_layer_may_be_used_later_than_others(table, optimizer):
    encoder = LateBranch()
    before = encoder.second.weight.clone()
    imix.pretrain(table[0], replace(SMALL, optimizer=optimizer), encoder=encoder, progress=False)
    assert encoder.second.weight.isfinite().all() and not torch.equal(encoder.second.weight, before)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_loss_of_any_dtype_can_be_resumed(table, dtype, tmp_path):
    class OtherLoss(imix.NPair):
        def forward(self, *views):
            return super().forward(*views).to(dtype)

    def stop(state):
        if state.step == 1:
            os.kill(os.getpid(), signal.SIGTERM)

    options = {"method": OtherLoss, "out": tmp_path / "run", "resume": True, "progress": False}
    with pytest.raises(imix.Interrupted):
        imix.pretrain(table[0], SMALL, on_step=stop, **options)
    assert len(checkpoint.load(tmp_path / "run/checkpoint.pt")["losses"]) == 1
    assert imix.pretrain(table[0], SMALL, **options).metrics[-1]["epoch"] == SMALL.epochs


def test_bf16_trains_to_finite_weights(table):
    for method in METHODS:
        run = imix.pretrain(table[0], replace(SMALL, method=method, precision="bf16"), labels=table[1], progress=False)
        assert all(torch.isfinite(value).all() for value in weights(run).values())


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_views_and_loss_compile_into_one_graph_each_and_give_the_same_loss(table, method):
    torch.compiler.reset()  # sizes that were seen before would count as changing
    settings = replace(SMALL, method=method)
    learner = build_method(settings, imix.encoders.build("mlp:16-16", (6,)), build_mix(settings), width=4, n_classes=3)
    views = Views(Masking(0.2), learner.n_views, imix.InputMix(2), in_one_call=True)
    labels = table[1:] if learner.supervised else ()
    losses = []
    for compiled in (lambda part: part, functools.partial(torch.compile, backend="eager", fullgraph=True)):
        torch.manual_seed(1)
        losses.append(compiled(learner)(*compiled(views)(table[0]), *labels))
    assert torch.equal(*losses)
