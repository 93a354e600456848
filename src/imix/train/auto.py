"""`epochs="auto"` and `batch_size="auto"`, replaced by numbers before the training setup is built."""

import copy
import itertools
import math
from dataclasses import replace
from numbers import Real
from typing import Any

import torch

from imix.data import Data
from imix.errors import InputError
from imix.progress import format_duration
from imix.run.config import RunConfig
from imix.run.initial_weights import InitialWeights
from imix.runtime import distributed
from imix.runtime.device import pick_device
from imix.runtime.sync_bn import convert_sync_bn
from imix.settings import ResolvedSettings, Settings
from imix.train.options import Components
from imix.train.setup import build_setup, global_batch_size
from imix.train.step import build_optimizer, prepare, training_step
from imix.train.throughput import steps_per_second

STEPS_PER_EPOCH = 24  # approximately; fewer with the smallest batch, and more with the largest
MIN_BATCH, MAX_BATCH = 64, 256  # but at least two steps per epoch
LARGE_DATA, LARGE_BATCH = 100_000, 512  # from this many samples, the batch size on a GPU, as in the paper
MIN_STEPS = 2_000
MAX_CPU_STEPS = 20_000  # unless an epoch has more
CPU_GROWTH, GPU_GROWTH = 0.5, 0.6  # exponents with which the number of steps grows above 1,000 samples
USABLE = 0.9  # fraction of the time budget for training steps; the rest is for checkpoints and measurements
MEASURED = 0.02  # fraction of the time budget spent on measuring the speed


def check_minutes(settings: Settings, minutes: float | None) -> None:
    """Raise InputError unless `minutes` is a positive number and the number of epochs is not given."""
    if minutes is None:
        return
    if not isinstance(minutes, Real) or isinstance(minutes, bool) or not 0 < minutes < math.inf:
        raise InputError(f"`minutes` must be a number above 0; got {minutes!r}")
    if settings.epochs != "auto":
        raise InputError(f"`minutes` needs `epochs='auto'`; got `epochs={settings.epochs}`")


def resolve_auto(
    settings: Settings,
    data: Data,
    components: Components = Components(),
    initial: InitialWeights | None = None,
    stored: RunConfig | None = None,
    minutes: float | None = None,
) -> tuple[ResolvedSettings, list[str]]:
    """Replace "auto" by numbers. Also return the startup messages that explain the choice, if there is one.

    A resumed run, whose config is `stored`, keeps its numbers. `minutes` limits the number of epochs to what fits,
    based on the measured time of a few training steps. All ranks choose the same numbers.
    """
    auto = [name for name in ("epochs", "batch_size") if getattr(settings, name) == "auto"]
    if stored is not None:
        kept = {name: getattr(stored.settings, name) for name in auto}
        reasons = [f"{_words(name)} auto: {value}, as in the resumed run" for name, value in kept.items()]
        return _resolved(settings, **kept), ["; ".join(reasons)] if reasons else []
    n, device, reasons = len(data.train), pick_device(settings.device), list[str]()
    batch_size, epochs = settings.batch_size, settings.epochs
    if batch_size == "auto":
        batch_size = choose_batch_size(n, device, distributed.world_size())
        reasons.append(f"batch size auto: {batch_size}")
    if epochs == "auto":
        draft = _resolved(settings, epochs=1, batch_size=batch_size, warmup=None, decay=None)
        steps_per_epoch = n // global_batch_size(draft, n)
        epochs = choose_epochs(n, steps_per_epoch, device)
        reason = f"about {epochs * steps_per_epoch:,} steps for {n:,} samples"
        if minutes is not None:
            seconds_per_epoch = steps_per_epoch * measure_step(data, draft, components, initial, minutes)
            fitting, budget = int(60 * USABLE * minutes / seconds_per_epoch), format_duration(60 * minutes)
            if fitting == 0:
                reason = f"one epoch takes {format_duration(seconds_per_epoch)}, more than {budget}"
            elif fitting < epochs:
                reason = f"{fitting * steps_per_epoch:,} steps, limited to {budget}"
            epochs = max(1, min(epochs, fitting))
        reasons.insert(0, f"epochs auto: {epochs} ({reason})")
    return _resolved(settings, epochs=epochs, batch_size=batch_size), ["; ".join(reasons)] if reasons else []


def choose_batch_size(n: int, device: torch.device, ranks: int = 1) -> int:
    """Return the global batch size for n samples.

    Examples
    --------
    >>> from imix.train.auto import choose_batch_size
    >>> [choose_batch_size(n, torch.device("cpu")) for n in (100, 2_000, 5_000_000)]
    [32, 64, 256]
    """
    largest = LARGE_BATCH if device.type == "cuda" and n >= LARGE_DATA else MAX_BATCH
    power = 2 ** round(math.log2(max(1, n / STEPS_PER_EPOCH)))
    two_steps = 2 ** max(1, int(math.log2(max(1, n / 2))))
    return math.ceil(min(max(power, MIN_BATCH), largest, two_steps) / ranks) * ranks


def choose_epochs(n: int, steps_per_epoch: int, device: torch.device) -> int:
    """Return the number of epochs for n samples. The number of steps grows more slowly than n.

    Examples
    --------
    >>> from imix.train.auto import choose_epochs
    >>> [choose_epochs(n, n // 256, torch.device("cuda")) for n in (1_000, 50_000, 5_000_000)]
    [667, 107, 17]
    """
    size = max(1.0, n / 1_000)
    growth = min(size**CPU_GROWTH, MAX_CPU_STEPS / MIN_STEPS) if device.type == "cpu" else size**GPU_GROWTH
    steps = MIN_STEPS * growth
    return max(1, round(steps / steps_per_epoch))


def measure_step(
    data: Data, settings: ResolvedSettings, components: Components, initial: InitialWeights | None, minutes: float
) -> float:
    """Return the seconds per training step, with data loading, on the slowest rank.

    A copy of a user-supplied encoder is trained. Nothing is compiled, so a run that is compiled will be faster.
    """
    components = replace(components, encoder=copy.deepcopy(components.encoder))
    setup = build_setup(data, replace(settings, compile=False), components, initial)
    make_views = prepare(setup)
    if distributed.world_size() > 1 and settings.sync_bn:
        convert_sync_bn(setup.learner, setup.device)
    optimizer = build_optimizer(setup.learner, settings, setup.device)
    samples = (batch for epoch in itertools.count() for batch in setup.batches(epoch))
    duration = min(3.0, max(0.2, MEASURED * 60 * minutes))
    with training_step(make_views, distributed.wrap_ddp(setup.learner), optimizer, setup) as step:
        (speed,) = steps_per_second([(step, samples)], setup.device, duration)
    return 1 / speed


def _resolved(settings: Settings, **numbers: Any) -> ResolvedSettings:
    return ResolvedSettings(**(vars(settings) | numbers))


def _words(name: str) -> str:
    return name.replace("_", " ")
