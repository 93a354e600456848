"""Selects the tables and figures, and their cells, that a command requests."""

import re
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

from imix.data.named import DATASETS
from imix.errors import InputError, did_you_mean
from imix.reproduce.experiment import Ambiguities, Cell, Experiment
from imix.reproduce.figures import FIGURES
from imix.reproduce.tables import TABLES

Budget = Literal["paper", "short", "smoke"]
EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in (*TABLES, *FIGURES)}

# The smoke budget runs every cell in seconds on a CPU: fake data, a small encoder, otherwise the paper's settings.
SMOKE_SETTINGS: dict[str, Any] = {
    "encoder": "small",
    "epochs": 1,
    "batch_size": 16,
    "queue": 32,
    "milestones": (),
    "device": "cpu",
}
SMOKE_DATA_SETTINGS: dict[str, Any] = {"fraction": 1.0, "image_size": None}


class Request(NamedTuple):
    """An experiment to reproduce: which of its cells, and how many seeds of each."""

    experiment: Experiment
    cells: list[Cell]
    seeds: int


def select_requests(
    names: Sequence[str],
    budget: Budget,
    ambiguities: Ambiguities = Ambiguities(),
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    seeds: int | None = None,
) -> list[Request]:
    """The requested experiments with the selected rows and columns.

    `seeds=None` uses the paper's number of seeds for the paper's budget, and otherwise one.
    """
    if budget not in get_args(Budget):
        raise InputError(f"unknown budget {budget!r}; choose from {', '.join(get_args(Budget))}")
    rows, columns = ([names] if isinstance(names, str) else names for names in (rows, columns))
    if seeds is not None and seeds < 1:
        raise InputError(f"`seeds` must be at least 1; got {seeds}")
    selection = " and ".join(f"{axis} {[*names]}" for axis, names in (("row", rows), ("column", columns)) if names)
    requests = []
    for experiment in _find_experiments(names):
        cells = select_cells(experiment, budget, ambiguities, rows, columns)
        if cells:
            default_seeds = experiment.seeds if budget == "paper" else 1
            requests.append(Request(experiment, cells, seeds or default_seeds))
        elif "all" not in names:
            cells = select_cells(experiment, budget)
            all_rows, all_columns = [*dict.fromkeys(c.label for c in cells)], [*dict.fromkeys(c.column for c in cells)]
            choices = f"its rows: {all_rows}; its columns: {all_columns}"
            raise InputError(f"{experiment.name} has no {selection}; {choices}")
    if not requests:
        raise InputError(f"no table or figure has {selection}")
    return requests


def _find_experiments(names: Sequence[str]) -> list[Experiment]:
    """The experiments with these names; "all" selects all of them."""
    choices = f"{', '.join(EXPERIMENTS)}, or all"
    if not names:
        raise InputError(f"no table or figure given; choose from {choices}")
    for name in names:
        if name != "all" and name not in EXPERIMENTS:
            hint = did_you_mean(name, list(EXPERIMENTS))
            raise InputError(f"unknown table or figure {name!r}{hint}; choose from {choices}")
    return [EXPERIMENTS[name] for name in (EXPERIMENTS if "all" in names else dict.fromkeys(names))]


def select_cells(
    experiment: Experiment,
    budget: Budget,
    ambiguities: Ambiguities = Ambiguities(),
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
) -> list[Cell]:
    """The cells of an experiment at a budget, in the given rows and columns (by default all)."""
    selected = []
    for cell in experiment.short_cells if budget == "short" else experiment.cells:
        if not _matches(cell.label, rows) or (columns and cell.column not in columns):
            continue
        settings, data_settings = dict[str, Any](), dict[str, Any]()
        if budget == "smoke":
            settings |= SMOKE_SETTINGS | ({"encoder": "resnet18"} if cell.eval_data == "voc" else {})
            data_settings |= SMOKE_DATA_SETTINGS
        if cell.training.settings.mix != "none":
            settings |= {"per_sample": ambiguities.per_sample, "fold": ambiguities.fold}
        if DATASETS[cell.training.data].kind == "table":
            data_settings |= {"standardize": ambiguities.standardize}
        selected.append(cell.with_settings(settings, data_settings))
    return selected


def _matches(label: str, rows: Sequence[str]) -> bool:
    """Whether a label, or one of its parts (separated by commas and arrows), is among `rows`.

    Case, spaces and punctuation are ignored.
    """

    def normalize(text: str) -> str:
        return "".join(char for char in text.lower() if char.isalnum() or char in "+→")

    parts = {normalize(part) for part in (label, *re.split(", | → ", label))}
    return not rows or any(normalize(row) in parts for row in rows)
