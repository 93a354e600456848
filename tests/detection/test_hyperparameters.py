"""Hyperparameters of detection, and the learning rate schedule."""

import pytest

from imix import InputError
from imix.detection import Detection
from imix.detection.hyperparameters import lr_at


def test_the_learning_rate_warms_up_and_drops_at_milestones():
    lrs = [lr_at(Detection(), step) for step in (0, 50, 100, 17_999, 18_000, 22_000, 23_999)]
    assert lrs == pytest.approx([0.02 / 1000, 0.02 * 0.5005, 0.02, 0.02, 0.002, 0.0002, 0.0002])
    assert lr_at(Detection(warmup=0), 0) == 0.02


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"iterations": 0}, "iterations must be above 0; got 0"),
        ({"min_sizes": ()}, r"min_sizes must contain only sizes above 0, and at least one; got \(\)"),
    ],
)
def test_invalid_hyperparameters_are_rejected(settings, message):
    with pytest.raises(InputError, match=message):
        Detection(**settings)
