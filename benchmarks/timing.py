"""Timing of functions, alone and against each other, and the training step that the benchmarks time."""

import argparse
import json
import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from torch import Tensor

from imix.data import Data
from imix.methods import Method
from imix.settings import ResolvedSettings
from imix.train.setup import build_setup
from imix.train.step import build_optimizer, prepare, training_step

OPEN_STEPS = ExitStack()  # keeps the contexts of training steps open until the process ends
CALLS_PER_SYNC = 16  # calls that are queued on a GPU before waiting for it


def throughput(function: Callable[[], int], device: torch.device, seconds: float = 4.0) -> float:
    """Return the items per second of a function that makes some and returns their number."""
    for _ in range(3):
        function()
    synchronize(device)
    start, count = time.monotonic(), 0
    while time.monotonic() - start < seconds:
        for _ in range(CALLS_PER_SYNC if device.type == "cuda" else 1):
            count += function()
        synchronize(device)
    return count / (time.monotonic() - start)


def print_throughputs(variants: Mapping[str, Callable[[], int]], device: torch.device) -> None:
    """Print the views per second of each variant as a line of JSON, and all of them as a table."""
    rows = []
    for variant, function in variants.items():
        views_per_second = round(throughput(function, device))
        line = {"variant": variant, "device": str(device), "views per second": views_per_second}
        print(json.dumps(line), flush=True)
        rows.append([variant, f"{views_per_second:,}"])
    print(format_table(["variant", "views per second"], rows))


@dataclass(frozen=True)
class Ratio:
    """Time of one variant relative to another: the median over rounds and its 95 % confidence interval."""

    median: float
    low: float
    high: float

    def as_dict(self, digits: int = 3) -> dict[str, float]:
        """Return rounded numbers for a line of JSON."""
        return {"ratio": round(self.median, digits), "low": round(self.low, digits), "high": round(self.high, digits)}


def time_in_rounds(
    variants: Mapping[str, Callable[[], object]], device: torch.device, rounds: int = 15, seconds: float = 0.05
) -> dict[str, list[float]]:
    """Return the seconds per call of each variant in each round.

    A round times every variant for `seconds`, in random order, so that other load on the machine affects all variants
    alike. With `seconds=0`, a round calls each variant once, without warmup; this is for long-running variants.
    If torch has a single CPU thread, processor time is measured instead of wall time.
    """
    clock = time.process_time if device.type == "cpu" and torch.get_num_threads() == 1 else time.perf_counter

    def seconds_per_call(function: Callable[[], object], calls: int) -> float:
        synchronize(device)
        start = clock()
        for _ in range(calls):
            function()
        synchronize(device)
        return (clock() - start) / calls

    calls = dict.fromkeys(variants, 1)
    for name, function in variants.items() if seconds else ():
        seconds_per_call(function, 1)
        calls[name] = max(1, math.ceil(seconds / min(seconds_per_call(function, 1) for _ in range(2))))
    times: dict[str, list[float]] = {name: [] for name in variants}
    order = random.Random(0)
    for _ in range(rounds):
        for name in order.sample(list(variants), len(variants)):
            times[name].append(seconds_per_call(variants[name], calls[name]))
    return times


def time_ratio(times: Mapping[str, list[float]], variant: str, baseline: str) -> Ratio:
    """Return the time of `variant` relative to `baseline`, compared within each round."""
    ratios = sorted(a / b for a, b in zip(times[variant], times[baseline], strict=True))
    n = len(ratios)
    low, high = max(0, math.floor(n / 2 - math.sqrt(n))), min(n - 1, math.ceil(n / 2 + math.sqrt(n)) - 1)
    return Ratio(statistics.median(ratios), ratios[low], ratios[high])


def format_table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a text table with aligned columns."""
    lines = [[str(cell) for cell in row] for row in (headers, *rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(headers))]
    return "\n".join("  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)) for line in lines)


def synchronize(device: torch.device) -> None:
    """Wait for the GPU, if the device is one."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def add_device_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --device and --threads."""
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=1, help="torch threads on a CPU")


def select_device(args: argparse.Namespace) -> torch.device:
    """Return the device of --device; on a CPU, set the number of threads."""
    device = torch.device(args.device)
    if device.type == "cpu":
        torch.set_num_threads(args.threads)
    return device


def build_step(data: Data, settings: ResolvedSettings) -> tuple[Callable[[], Tensor], Method]:
    """Return the training step of `imix.pretrain`, always on the same batch, and its method.

    If the step uses a CUDA graph, the fourth call captures it.
    """
    setup = build_setup(data, settings)
    learner = setup.learner
    views, optimizer = prepare(setup), build_optimizer(learner, settings, setup.device)
    step = OPEN_STEPS.enter_context(training_step(views, learner, optimizer, setup))
    batch, labels = next(setup.source.batches([torch.arange(setup.batch_size)]))
    labels = labels if learner.supervised else None
    n_steps = 0

    def take_step() -> Tensor:
        nonlocal n_steps
        n_steps += 1
        return step(batch, labels, 1e-3, (0, 0, n_steps, 0))

    return take_step, learner
