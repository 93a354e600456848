"""Which trainings an experiment asks for at a budget, and what they cost."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from imix.errors import InputError
from imix.paper.experiment import Cell, Experiment, Measurement, Training, changed
from imix.paper.figures import FIGURES
from imix.paper.recipes import IMAGES, STANDARDISED_BY_ALL
from imix.paper.results import of_cell, read
from imix.paper.switches import Switches
from imix.paper.tables import TABLES

Budget = Literal["paper", "short", "smoke"]
EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in (*TABLES, *FIGURES)}

# Every cell on stand-in data, in seconds on a CPU: what the method and the data set ask for, on a small encoder.
SMOKE: dict[str, Any] = {
    "encoder": "small",
    "epochs": 1,
    "batch_size": 16,
    "queue": 32,
    "milestones": (),
    "device": "cpu",
}
SMOKE_READING: dict[str, Any] = {"fraction": 1.0, "image_size": None}

# Views that an H200 trains in a second, for images of 32 x 32; at 224 ResNets take three times as long.
RATES = {"resnet18": 82_000, "resnet50": 21_000, "resnet101": 12_500, "resnet152": 8_800, "mlp": 600_000}
LARGE_IMAGES = 3.2
SAMPLES = {
    "cifar10": 50_000,
    "cifar100": 50_000,
    "imagenet": 1_281_167,
    "imagenet100": 128_000,
    "speech_commands": 56_196,
    "covtype": 15_120,
    "higgs100k": 100_000,
    "higgs1m": 1_000_000,
}
PASSES = {"moco": 4 / 3, "byol": 4 / 3, "supervised": 1.0}  # keys cost a third of what anchors do; others see two views


@dataclass(frozen=True)
class Job:
    """One training with a seed, and what is to be measured of it."""

    training: Training
    seed: int
    measurements: tuple[Measurement, ...]

    @property
    def name(self) -> str:
        """Of its run folder."""
        return self.training.name(self.seed)


def find(names: Sequence[str]) -> list[Experiment]:
    """Experiments by name; all of them by "all"."""
    known = ", ".join(EXPERIMENTS)
    if not names:
        raise InputError(f"name what to reproduce: {known}, or all (see --list)")
    for name in names:
        if name != "all" and name not in EXPERIMENTS:
            raise InputError(f"there is no {name!r} in the paper; choose from {known}, or all")
    return list(EXPERIMENTS.values()) if "all" in names else [EXPERIMENTS[name] for name in dict.fromkeys(names)]


def cells_of(
    experiment: Experiment,
    budget: Budget,
    switches: Switches = Switches(),
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
) -> list[Cell]:
    """The cells of an experiment at a budget; of the rows and columns that are named, if any are, and maybe none."""
    cells = list(experiment.short if budget == "short" else experiment.cells)
    if budget == "smoke":
        cells = [_smoke(cell) for cell in cells]
    chosen = [cell for cell in cells if _named(cell.label, rows) and (not columns or cell.column in columns)]
    return [_switched(cell, switches) for cell in chosen]


def _named(name: str, words: Sequence[str]) -> bool:
    """Whether a name, or a part of it between commas and arrows, is one of the words; letters and digits count."""

    def plain(text: str) -> str:
        return "".join(letter for letter in text.lower() if letter.isalnum() or letter in "+→")

    parts = {plain(part) for part in (name, *re.split(", | → ", name))}
    return not words or any(plain(word) in parts for word in words)


def _smoke(cell: Cell) -> Cell:
    settings = SMOKE | ({"encoder": "resnet18"} if cell.on == "voc" else {})
    return changed(cell, settings, SMOKE_READING)


def _switched(cell: Cell, switches: Switches) -> Cell:
    mixes, tabular = cell.training.settings.mix != "none", cell.training.data in STANDARDISED_BY_ALL
    return changed(
        cell,
        {"per_sample": switches.per_sample, "fold": switches.fold} if mixes else {},
        {"standardise": switches.standardise} if tabular else {},
    )


class Wanted(NamedTuple):
    """An experiment as it was asked for: which of its cells, and how many seeds of each."""

    experiment: Experiment
    cells: list[Cell]
    seeds: int


def wanted(
    names: Sequence[str],
    budget: Budget,
    switches: Switches = Switches(),
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    seeds: int | None = None,
) -> list[Wanted]:
    """What is asked for; the number of seeds is the budget's unless given."""
    if budget not in get_args(Budget):
        raise InputError(f"unknown budget {budget!r}; choose from {', '.join(get_args(Budget))}")
    rows, columns = ([given] if isinstance(given, str) else given for given in (rows, columns))
    if seeds is not None and seeds < 1:
        raise InputError(f"seeds must be at least 1; got {seeds}")
    found = []
    for experiment in find(names):
        cells = cells_of(experiment, budget, switches, rows, columns)
        if not cells and "all" not in names:
            known = cells_of(experiment, budget)
            labels, heads = ([*dict.fromkeys(kind)] for kind in zip(*((c.label, c.column) for c in known), strict=True))
            asked = " and ".join(f"{kind} {[*given]}" for kind, given in (("row", rows), ("column", columns)) if given)
            raise InputError(f"{experiment.name} has no {asked}; its rows: {labels}; its columns: {heads}")
        found += [Wanted(experiment, cells, seeds or seeds_of(experiment, budget))] if cells else []
    if not found:
        raise InputError(f"nothing in the paper has such a row and column: {[*rows, *columns]}")
    return found


def seeds_of(experiment: Experiment, budget: Budget) -> int:
    """The paper's number at its budget, and one at shorter ones."""
    return experiment.seeds if budget == "paper" else 1


def all_jobs(asked: Sequence[Wanted]) -> list[Job]:
    """The trainings behind what is asked for, each once, in an order that does not depend on what is done."""
    measurements: dict[str, dict[Measurement, None]] = {}
    jobs: dict[str, Job] = {}
    for _, cells, seeds in asked:
        for seed in range(seeds):
            for cell in cells:
                job = Job(cell.training, seed, ())
                jobs.setdefault(job.name, job)
                measurements.setdefault(job.name, {})[cell.measurement] = None
    return [Job(job.training, job.seed, tuple(measurements[name])) for name, job in jobs.items()]


def remaining(asked: Sequence[Wanted], out: Path) -> list[Job]:
    """Those of the trainings of which not everything is known."""
    open_cells = {
        (cell.training.name(seed), cell.measurement)
        for experiment, cells, seeds in asked
        for lines in [read(out / f"{experiment.name}.csv")]
        for cell in cells
        for seed in range(seeds)
        if not any(line.seed == seed for line in of_cell(lines, cell, seeds))
    }
    found = []
    for job in all_jobs(asked):
        left = tuple(each for each in job.measurements if (job.name, each) in open_cells)
        found += [Job(job.training, job.seed, left)] if left else []
    return found


def hours(job: Job) -> float:
    """What a job takes an H200, roughly."""
    training = job.training
    settings, reading = training.settings, training.reading
    rate = RATES.get(settings.encoder.split(":")[0], 1e6)
    large = training.data.startswith("imagenet") and reading.image_size is None
    rate /= LARGE_IMAGES if large else 1
    passes = PASSES.get(settings.method, 2.0) * (
        2 if settings.method in ("simclr", "supclr") and settings.mix != "none" else 1
    )
    samples = SAMPLES[training.data] * reading.fraction
    views = samples * settings.epochs * passes
    if training.data in IMAGES:  # a hundred passes forward
        views += sum(100 / 3 * SAMPLES[m.data] for m in job.measurements if m.protocol == "linear")
    return views / rate / 3600
