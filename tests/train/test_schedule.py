"""Learning rate schedules."""

import math

import pytest

from imix import Settings
from imix.train.schedule import learning_rate


def test_learning_rate_scales_with_the_batch_size():
    settings = Settings(epochs=100)
    assert learning_rate(settings, 512, 50, 0, 10) == pytest.approx(2 * learning_rate(settings, 256, 50, 0, 10))


def test_warmup_rises_linearly_by_step_to_the_schedule():
    settings = Settings(epochs=100, warmup=5)
    rates = [learning_rate(settings, 256, epoch, step, 10) for epoch in range(5) for step in range(10)]
    top = learning_rate(settings, 256, 5, 0, 10)
    assert rates == pytest.approx([top * i / 50 for i in range(50)])
    assert top == pytest.approx(0.125 * 0.5 * (1 + math.cos(math.pi * 5 / 100)))


def test_warmup_is_ten_epochs_for_long_runs_and_five_for_others():
    for epochs, warmup in [(501, 10), (500, 5), (200, 5)]:
        settings = Settings(epochs=epochs)
        assert learning_rate(settings, 256, warmup - 1, 9, 10) < learning_rate(settings, 256, warmup, 0, 10)
        assert learning_rate(settings, 256, warmup, 0, 10) == learning_rate(settings, 256, warmup, 9, 10)


def test_cosine_ends_near_zero_and_is_constant_within_an_epoch():
    settings = Settings(epochs=100)
    assert learning_rate(settings, 256, 99, 0, 10) == learning_rate(settings, 256, 99, 9, 10) < 1e-4


def test_step_schedule_decays_at_its_milestones():
    settings = Settings(epochs=500, schedule="step", milestones=(300, 400))
    rates = [learning_rate(settings, 256, epoch, 0, 10) for epoch in (299, 300, 399, 400)]
    assert rates == pytest.approx([0.125, 0.0125, 0.0125, 0.00125])
