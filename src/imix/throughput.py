"""`imix bench`: how fast a run would be here, and what holds it back.

Three rates of the same step, each with more around it: bare, with its views in place; with views made anew; and with
samples read as well, which is how a run goes. A share far below 1 says where time is lost.
"""

import itertools
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from imix.augment import Augment
from imix.batch import Batch, map_fields
from imix.data import Data, Tensors, load
from imix.mix import MixOperator
from imix.progress import duration as in_time
from imix.settings import Reading, Settings
from imix.train.build import Made, MakeMethod, make_all
from imix.train.device import compiles, uses_bf16
from imix.train.randomness import epoch_order, own_randomness
from imix.train.record import BEFORE_RECORDING
from imix.train.step import Step, make_optimizer, make_ready, taking_steps

LR = 1e-3
FEWEST = 3  # steps that are measured
AHEAD = 50  # steps at most that a GPU is given before it is waited for, as between two records of a run
TURNS = 5
Samples = tuple[Batch, Tensor | None]


@dataclass(frozen=True)
class Throughput:
    """Views per second of a step in three surroundings, and what that makes of a whole run."""

    what: str
    bare: float
    with_views: float
    whole: float
    views_per_step: int
    steps: int  # of an epoch
    epochs: int
    memory: int | None = None  # bytes on a GPU

    @property
    def seconds(self) -> float:
        """Of the run that the settings describe, without set-up and compiling."""
        return self.steps * self.epochs * self.views_per_step / self.whole

    def __str__(self) -> str:
        ways = {"bare step": self.bare, "and views made": self.with_views, "and samples read: a run": self.whole}
        lines = [self.what, f"{'':24}{'views/s':>10}{'ms a step':>11}{'of bare':>9}"]
        for way, rate in ways.items():
            lines.append(f"{way:24}{rate:10,.0f}{1e3 * self.views_per_step / rate:11.2f}{100 * rate / self.bare:8.0f}%")
        lines.append(f"{self.epochs} epochs of {self.steps} steps take {in_time(self.seconds)}")
        if self.memory is not None:
            lines[-1] += f"; steps hold {self.memory / 2**30:.1f} GiB of the GPU"
        return "\n".join(lines)


def bench(
    data: Any = None,
    settings: Settings = Settings(),
    reading: Reading = Reading(),
    *,
    labels: Any = None,
    encoder: nn.Module | None = None,
    augment: Augment | None = None,
    method: MakeMethod | None = None,
    mix: MixOperator | None = None,
    duration: float = 5.0,
    progress: bool = True,
) -> Throughput:
    """How fast `imix.pretrain` with the same arguments would be here; nothing is kept.

    Without data: random pictures of CIFAR's size. Each of the three rates is taken over `duration` seconds, after a few
    steps that do not count, in turns with the others, or by a single step on a CPU that takes longer for one. One
    process measures one device.

    >>> found = bench(torch.randn(64, 10), Settings(batch_size=32), duration=0.1, progress=False)
    >>> found.whole > 0
    True
    """
    loaded = _pictures() if data is None else load(data, reading, labels=labels)
    made = make_all(loaded, settings, encoder, augment, method, mix)
    device = made.device
    views = make_ready(made)
    optimizer = make_optimizer(made.learner, settings, device)
    first = next(_samples(made))
    with own_randomness(device):
        in_place = views(first[0])
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    if progress:
        print("measuring ...", file=sys.stderr, flush=True)
    with (
        taking_steps(lambda batch: in_place, made.learner, optimizer, made) as bare_step,
        taking_steps(views, made.learner, optimizer, made) as step,
    ):
        ways = (bare_step, itertools.repeat(first)), (step, itertools.repeat(first)), (step, _samples(made))
        bare, with_views, whole = _steps_per_second(ways, device, duration)
    views_per_step = made.learner.views * made.batch_size
    return Throughput(
        _described(loaded.name, made),
        bare * views_per_step,
        with_views * views_per_step,
        whole * views_per_step,
        views_per_step,
        made.steps,
        settings.epochs,
        torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None,
    )


def _samples(made: Made) -> Iterator[Samples]:
    """Batches on the device, with labels for methods that take them, in the order of a run that never ends."""
    for epoch in itertools.count():
        order = epoch_order(made.settings.seed, epoch, len(made.source))[: made.steps * made.batch_size]
        for batch, labels in made.source.batches(order.view(made.steps, made.batch_size)):
            batch = map_fields(lambda x: x.to(made.device, non_blocking=True), batch)
            yield batch, labels.to(made.device) if made.learner.supervised and labels is not None else None


def _steps_per_second(
    ways: Sequence[tuple[Step, Iterator[Samples]]], device: torch.device, duration: float
) -> list[float]:
    """Of each way; they take turns, so that a busy machine disturbs all alike."""

    def take(step: Step, samples: Iterator[Samples], steps: int) -> float:
        started = time.perf_counter()
        for at in range(steps):
            step(*next(samples), LR, (at,))
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - started

    before = BEFORE_RECORDING + 1 if device.type == "cuda" else 1
    once = [take(*way, before) / before for way in ways]
    if max(once) > duration and device.type == "cpu":  # no set-up to speak of
        return [1 / seconds for seconds in once]
    ahead = max(1, min(AHEAD, int(duration / TURNS / max(take(*way, 1) for way in ways))))
    taken, spent = [0] * len(ways), [0.0] * len(ways)
    while min(spent) < duration or min(taken) < FEWEST:
        for at, way in enumerate(ways):
            spent[at] += take(*way, ahead)
            taken[at] += ahead
    return [steps / seconds for steps, seconds in zip(taken, spent, strict=True)]


def _described(name: str, made: Made) -> str:
    how = [str(made.device), "bf16" if uses_bf16(made.settings, made.device) else "fp32"]
    how += ["compiled"] if compiles(made.settings, made.device, made.steps) else []
    how += ["recorded"] if made.recorded else []
    return f"{made.title} on {name}, {made.network}, {', '.join(how)}"


def _pictures() -> Data:
    pixels = torch.randint(0, 256, (50_000, 3, 32, 32), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    return Data("random pictures", Tensors(pixels, torch.arange(len(pixels)) % 10), augment="cifar")
