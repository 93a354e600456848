"""Measures the speed of training steps, for `imix bench` and for time budgets."""

import time
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from imix.batch import Batch
from imix.runtime.cuda_graph import WARMUP_CALLS
from imix.runtime.distributed import max_over_ranks
from imix.train.step import TrainingStep

LR = 1e-3
MAX_STEPS_AHEAD = 50  # steps queued on a GPU before waiting for it, as between two records of a run
Samples = tuple[Batch, Tensor | None]


def steps_per_second(
    variants: Sequence[tuple[TrainingStep, Iterator[Samples]]], device: torch.device, duration: float
) -> list[float]:
    """Return steps per second of each variant. They take turns, so that other load slows all of them equally.

    All ranks take the same steps, and return the speed of the slowest rank.
    """

    def run(step: TrainingStep, samples: Iterator[Samples], steps: int) -> float:
        started = time.perf_counter()
        for index in range(steps):
            step(*next(samples), LR, (index,))
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        (seconds,) = max_over_ranks(time.perf_counter() - started)
        return seconds

    warmup = WARMUP_CALLS + 1 if device.type == "cuda" else 1
    seconds = [run(*variant, warmup) for variant in variants]
    if max(seconds) > duration and device.type == "cpu":  # a slow step, and a CPU needs no warm-up
        return [1 / spent for spent in seconds]
    slowest = max(run(*variant, 1) for variant in variants)
    ahead = max(1, min(MAX_STEPS_AHEAD, int(duration / 5 / slowest)))
    steps, seconds = 0, [0.0] * len(variants)
    while min(seconds) < duration:
        steps += ahead
        seconds = [spent + run(*variant, ahead) for spent, variant in zip(seconds, variants, strict=True)]
    return [steps / spent for spent in seconds]
