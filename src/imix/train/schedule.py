"""The learning rate as a function of epoch and step."""

import math

from imix.settings import ResolvedSettings

DEFAULT_LR = {"sgd": 0.125, "adamw": 0.001}  # for a batch of 256


def learning_rate(settings: ResolvedSettings, batch_size: int, epoch: int, step: int, steps_per_epoch: int) -> float:
    """The learning rate: scaled by batch/256, linear warm-up by step, then decay by epoch.

    The warmup ends at the value of the schedule in that epoch.
    """
    warmup = warmup_epochs(settings)
    peak = (settings.lr or DEFAULT_LR[settings.optimizer]) * batch_size / 256
    if epoch < warmup:
        return peak * _decay(settings, warmup) * (epoch * steps_per_epoch + step) / (warmup * steps_per_epoch)
    return peak * _decay(settings, epoch)


def warmup_epochs(settings: ResolvedSettings) -> int:
    """Return `settings.warmup`, or by default 10 above 500 epochs and 5 otherwise, at most half of the run.

    For wsd, it does not change when a run is made longer, unless the run is very short.
    """
    if settings.warmup is not None:
        return settings.warmup
    if settings.schedule == "wsd":
        return max(0, min(5, settings.epochs // 2, settings.decay_start - 1))
    return min(10 if settings.epochs > 500 else 5, settings.epochs // 2)


def _decay(settings: ResolvedSettings, epoch: int) -> float:
    if settings.schedule == "cosine":
        return 0.5 * (1 + math.cos(math.pi * epoch / settings.epochs))
    if settings.schedule == "step":
        milestones = settings.milestones or (settings.epochs * 3 // 5, settings.epochs * 4 // 5)
        return float(0.1 ** sum(epoch >= milestone for milestone in milestones))
    if settings.schedule == "wsd":
        return min(1.0, (settings.epochs - epoch) / (settings.epochs - settings.decay_start + 1))
    return 1.0
