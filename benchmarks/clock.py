"""How fast something is made, in itself and against something else; and a step as training takes it."""

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
from imix.settings import Settings
from imix.train.build import make_all
from imix.train.step import make_optimizer, make_ready, taking_steps

READY = ExitStack()  # steps can be taken until the process ends
AHEAD = 16  # calls that a GPU is given before it is waited for


def rate(make: Callable[[], int], device: torch.device, seconds: float = 4.0) -> float:
    """Views per second of a function that makes some and says how many."""

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    for _ in range(3):
        make()
    wait()
    started, made = time.monotonic(), 0
    while time.monotonic() - started < seconds:
        for _ in range(AHEAD if device.type == "cuda" else 1):
            made += make()
        wait()
    return made / (time.monotonic() - started)


def tell_rates(ways: Mapping[str, Callable[[], int]], device: torch.device) -> None:
    """Views per second of each way: a line of JSON, and a table in the end."""
    lines = []
    for way, make in ways.items():
        found = round(rate(make, device))
        print(json.dumps({"way": way, "device": str(device), "views per second": found}), flush=True)
        lines.append([way, f"{found:,}"])
    print(table(["way", "views per second"], lines))


@dataclass(frozen=True)
class Ratio:
    """How long a way takes in units of another, and where the median lies in 95 of 100 cases."""

    median: float
    low: float
    high: float

    def told(self, digits: int = 3) -> dict[str, float]:
        """As numbers for a line of JSON."""
        return {"ratio": round(self.median, digits), "from": round(self.low, digits), "to": round(self.high, digits)}


def taking_turns(
    ways: Mapping[str, Callable[[], object]], device: torch.device, rounds: int = 15, seconds: float = 0.05
) -> dict[str, list[float]]:
    """Seconds of one call of each way, in each of several rounds.

    In a round every way is called, in an order that is drawn, for `seconds` (0: once, and never before, for what takes
    long), so that a busy machine disturbs all alike. Where one thread does all the work, what counts is the time that
    it had the processor.
    """
    clock = time.process_time if device.type == "cpu" and torch.get_num_threads() == 1 else time.perf_counter

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    def took(way: Callable[[], object], calls: int) -> float:
        wait()
        started = clock()
        for _ in range(calls):
            way()
        wait()
        return (clock() - started) / calls

    calls = dict.fromkeys(ways, 1)
    for name, way in ways.items() if seconds else ():
        took(way, 1)
        calls[name] = max(1, math.ceil(seconds / min(took(way, 1) for _ in range(2))))
    found: dict[str, list[float]] = {name: [] for name in ways}
    order = random.Random(0)
    for _ in range(rounds):
        for name in order.sample(list(ways), len(ways)):
            found[name].append(took(ways[name], calls[name]))
    return found


def ratio(times: Mapping[str, list[float]], way: str, base: str) -> Ratio:
    """How long `way` takes in units of `base`, compared round by round."""
    ratios = sorted(one / other for one, other in zip(times[way], times[base], strict=True))
    n = len(ratios)
    low, high = max(0, math.floor(n / 2 - math.sqrt(n))), min(n - 1, math.ceil(n / 2 + math.sqrt(n)) - 1)
    return Ratio(statistics.median(ratios), ratios[low], ratios[high])


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Rows under their heads, in columns."""
    lines = [[str(cell) for cell in row] for row in (heads, *rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(heads))]
    return "\n".join("  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)) for line in lines)


def add_device(parser: argparse.ArgumentParser) -> None:
    """The flags that all these benchmarks have."""
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument(
        "--threads", type=int, default=1, help="of torch on a CPU; others wait where the machine is busy"
    )


def take_device(given: argparse.Namespace) -> torch.device:
    """The device that was asked for, with its number of threads."""
    device = torch.device(given.device)
    if device.type == "cpu":
        torch.set_num_threads(given.threads)
    return device


def make_step(data: Data, settings: Settings) -> tuple[Callable[[], Tensor], Method]:
    """A training step on one batch of the data, as `imix.pretrain` takes it, and its method.

    Of a recorded step the fourth call is the one that records it.
    """
    made = make_all(data, settings)
    learner = made.learner
    views, optimizer = make_ready(made), make_optimizer(learner, settings, made.device)
    step = READY.enter_context(taking_steps(views, learner, optimizer, made))
    batch, labels = next(made.source.batches([torch.arange(made.batch_size)]))
    labels = labels if learner.supervised else None
    taken = 0

    def take() -> Tensor:
        nonlocal taken
        taken += 1
        return step(batch, labels, 1e-3, (0, 0, taken, 0))

    return take, learner
