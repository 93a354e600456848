"""Runs that are stopped: non-finite numbers and collapse."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

import imix
from imix import Settings, TrainingError
from imix.train.monitor import CHECK_EVERY, PATIENCE, TrainingMonitor
from tests.train.helpers import SMALL


def test_non_finite_features_stop_the_run(table):
    class Breaks(nn.Linear):
        width = 4

        def forward(self, x):
            return super().forward(x) * (1 if self.training else float("nan"))

    with pytest.raises(TrainingError, match="features are not finite after step"):
        imix.pretrain(table[0], replace(SMALL, epochs=60), encoder=Breaks(6, 4), progress=False)


def test_a_non_finite_loss_stops_the_run_and_names_the_step(table, tmp_path):
    class Breaks(nn.Module):
        width = 4

        def __init__(self):
            super().__init__()
            self.layer, self.calls = nn.Linear(6, 4), 0

        def forward(self, x):
            self.calls += self.training
            return self.layer(x) * (float("nan") if self.calls == 6 else 1)

    settings = replace(SMALL, checkpoint_minutes=60)
    with pytest.raises(TrainingError, match=r"the loss became nan at step 6.*`lr`"):
        imix.pretrain(table[0], settings, encoder=Breaks(), out=tmp_path / "run", progress=False)
    assert not (tmp_path / "run" / "checkpoint.pt").exists()


@pytest.mark.slow
def test_collapse_is_detected_and_explained(table):
    class Constant(nn.Module):
        width = 4

        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 4)

        def forward(self, x):
            return 0 * self.layer(x) + 1

    settings = replace(SMALL, epochs=400, head="mlp", warmup=1)
    for method in ("npair", "byol"):
        with pytest.raises(TrainingError, match="collapse"):
            imix.pretrain(table[0], replace(settings, method=method), encoder=Constant(), progress=False)


def test_non_finite_weights_are_never_saved(table, tmp_path):
    class BreaksBackward(nn.Module):
        width = 4

        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 4)

        def forward(self, x):
            return self.layer(x) + (0 * self.layer.weight.sum()).sqrt()  # finite, but with an infinite derivative

    settings = replace(SMALL, epochs=1, batch_size=64, warmup=0)
    with pytest.raises(TrainingError, match=r"the weights encoder\.layer\.weight .* not finite after step 1"):
        imix.pretrain(table[0], settings, encoder=BreaksBackward(), out=tmp_path / "run", progress=False)
    assert {path.name for path in (tmp_path / "run").iterdir()} <= {"config.json", "metrics.jsonl"}


def test_identical_samples_are_reported_as_collapse_even_in_a_short_run():
    with pytest.raises(TrainingError, match="not all identical"):
        imix.pretrain(torch.ones(64, 5), Settings(epochs=100, encoder="mlp:16-16", device="cpu"), progress=False)


def test_zero_features_are_a_collapse():
    monitor = TrainingMonitor(chance_loss=None, advice="", total_steps=100)
    for step in range(PATIENCE - 1):
        monitor.check_features(step, 0.5, torch.zeros(8, 4))
    with pytest.raises(TrainingError, match="same features"):
        monitor.check_features(PATIENCE, 0.5, torch.zeros(8, 4))


@pytest.mark.slow
def test_an_ordinary_run_is_not_reported_as_collapse(table):
    imix.pretrain(table[0], replace(SMALL, epochs=CHECK_EVERY * PATIENCE), progress=False)


def test_a_few_checks_at_chance_are_not_a_collapse():
    monitor, varied = TrainingMonitor(chance_loss=math.log(8), advice="", total_steps=1000), torch.eye(8)
    for step, loss in enumerate([math.log(8)] * (PATIENCE - 1) + [1.0] + [math.log(8)] * (PATIENCE - 1)):
        monitor.check_features(step, loss, varied)
    with pytest.raises(TrainingError, match="stays at chance"):
        monitor.check_features(99, math.log(8), varied)
