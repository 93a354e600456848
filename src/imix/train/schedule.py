"""The learning rate, as a function of where the run is."""

import math

from imix.settings import Settings


def learning_rate(settings: Settings, batch_size: int, epoch: int, step: int, steps: int) -> float:
    """The rate for a step of an epoch that has `steps`: scaled by batch/256, warmed up by step, decayed by epoch.

    The warm-up rises linearly from 0 to what the schedule says at its end.
    """
    warmup = warmup_epochs(settings)
    peak = (settings.lr or (0.125 if settings.optimizer == "sgd" else 0.001)) * batch_size / 256
    if epoch < warmup:
        return peak * _decay(settings, warmup) * (epoch * steps + step) / (warmup * steps)
    return peak * _decay(settings, epoch)


def warmup_epochs(settings: Settings) -> int:
    """As set, or 10 for runs of more than 500 epochs and 5 for others; never the whole run."""
    if settings.warmup is not None:
        return settings.warmup
    return min(10 if settings.epochs > 500 else 5, settings.epochs // 2)


def _decay(settings: Settings, epoch: int) -> float:
    if settings.schedule == "cosine":
        return 0.5 * (1 + math.cos(math.pi * epoch / settings.epochs))
    if settings.schedule == "step":
        milestones = settings.milestones or (settings.epochs * 3 // 5, settings.epochs * 4 // 5)
        return float(0.1 ** sum(epoch >= milestone for milestone in milestones))
    return 1.0
