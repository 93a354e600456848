"""Learning rate schedules."""

import math

import pytest

from imix import InputError
from imix.settings import ResolvedSettings
from imix.train.schedule import learning_rate


def test_learning_rate_scales_with_the_batch_size():
    settings = ResolvedSettings(epochs=100)
    assert learning_rate(settings, 512, 50, 0, 10) == pytest.approx(2 * learning_rate(settings, 256, 50, 0, 10))


def test_warmup_rises_linearly_by_step_to_the_schedule():
    settings = ResolvedSettings(epochs=100, warmup=5)
    rates = [learning_rate(settings, 256, epoch, step, 10) for epoch in range(5) for step in range(10)]
    top = learning_rate(settings, 256, 5, 0, 10)
    assert rates == pytest.approx([top * i / 50 for i in range(50)])
    assert top == pytest.approx(0.125 * 0.5 * (1 + math.cos(math.pi * 5 / 100)))


def test_warmup_is_ten_epochs_for_long_runs_and_five_for_others():
    for epochs, warmup in [(501, 10), (500, 5), (200, 5)]:
        settings = ResolvedSettings(epochs=epochs)
        assert learning_rate(settings, 256, warmup - 1, 9, 10) < learning_rate(settings, 256, warmup, 0, 10)
        assert learning_rate(settings, 256, warmup, 0, 10) == learning_rate(settings, 256, warmup, 9, 10)


def test_cosine_ends_near_zero_and_is_constant_within_an_epoch():
    settings = ResolvedSettings(epochs=100)
    assert learning_rate(settings, 256, 99, 0, 10) == learning_rate(settings, 256, 99, 9, 10) < 1e-4


def test_step_schedule_decays_at_its_milestones():
    settings = ResolvedSettings(epochs=500, schedule="step", milestones=(300, 400))
    rates = [learning_rate(settings, 256, epoch, 0, 10) for epoch in (299, 300, 399, 400)]
    assert rates == pytest.approx([0.125, 0.0125, 0.0125, 0.00125])


def test_wsd_is_constant_until_it_decays_linearly_in_the_last_fifth():
    settings = ResolvedSettings(epochs=100, schedule="wsd")
    rates = [learning_rate(settings, 256, epoch, 0, 10) for epoch in range(100)]
    assert rates[5:80] == [0.125] * 75
    assert rates[80:] == pytest.approx([0.125 * (100 - epoch) / 21 for epoch in range(80, 100)])


@pytest.mark.parametrize(("epochs", "decay"), [(10, None), (200, 40), (600, 1)])
def test_a_longer_wsd_schedule_is_the_same_until_the_decay(epochs, decay):
    short, long = (ResolvedSettings(epochs=n, schedule="wsd", decay=decay) for n in (epochs, 2 * epochs))
    for epoch in range(short.decay_start):
        assert learning_rate(short, 256, epoch, 3, 10) == learning_rate(long, 256, epoch, 3, 10)


@pytest.mark.parametrize(
    ("options", "message"), [({"decay": 10}, "`decay` must be"), ({"warmup": 8}, "`warmup` must be")]
)
def test_a_wsd_schedule_whose_parts_do_not_fit_is_rejected(options, message):
    with pytest.raises(InputError, match=message):
        ResolvedSettings(epochs=10, schedule="wsd", **options)
