"""Selects the tables and figures, and their cells, that a command requests."""

import re
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

from imix.errors import InputError, did_you_mean
from imix.reproduce.ambiguities import Ambiguities
from imix.reproduce.datasets import is_table
from imix.reproduce.experiment import Cell, Experiment, with_settings
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
    """The requested experiments with the selected rows and columns; `seeds=None` uses the budget's number of seeds."""
    if budget not in get_args(Budget):
        raise InputError(f"unknown budget {budget!r}; choose from {', '.join(get_args(Budget))}")
    rows, columns = ([names] if isinstance(names, str) else names for names in (rows, columns))
    if seeds is not None and seeds < 1:
        raise InputError(f"`seeds` must be at least 1; got {seeds}")
    requests = []
    for experiment in find_experiments(names):
        cells = select_cells(experiment, budget, ambiguities, rows, columns)
        if not cells and "all" not in names:
            raise InputError(_no_such_cells(experiment, budget, rows, columns))
        if cells:
            requests.append(Request(experiment, cells, seeds or default_seeds(experiment, budget)))
    if not requests:
        raise InputError(f"no table or figure has {_selection(rows, columns)}")
    return requests


def find_experiments(names: Sequence[str]) -> list[Experiment]:
    """The experiments with these names; "all" selects all of them."""
    choices = f"{', '.join(EXPERIMENTS)}, or all"
    if not names:
        raise InputError(f"no table or figure given; choose from {choices}")
    for name in names:
        if name != "all" and name not in EXPERIMENTS:
            hint = did_you_mean(name, list(EXPERIMENTS))
            raise InputError(f"unknown table or figure {name!r}{hint}; choose from {choices}")
    return list(EXPERIMENTS.values()) if "all" in names else [EXPERIMENTS[name] for name in dict.fromkeys(names)]


def select_cells(
    experiment: Experiment,
    budget: Budget,
    ambiguities: Ambiguities = Ambiguities(),
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
) -> list[Cell]:
    """The cells of an experiment at a budget, in the given rows and columns (by default all)."""
    cells = list(experiment.short_cells if budget == "short" else experiment.cells)
    if budget == "smoke":
        cells = [_smoke_cell(cell) for cell in cells]
    selected = [cell for cell in cells if _matches(cell.label, rows) and (not columns or cell.column in columns)]
    return [_apply_ambiguities(cell, ambiguities) for cell in selected]


def default_seeds(experiment: Experiment, budget: Budget) -> int:
    """The number of seeds in the paper for the paper's budget, otherwise one."""
    return experiment.seeds if budget == "paper" else 1


def _matches(label: str, rows: Sequence[str]) -> bool:
    """Whether a label, or one of its parts (separated by commas and arrows), is among `rows`.

    Case, spaces and punctuation are ignored.
    """

    def normalize(text: str) -> str:
        return "".join(char for char in text.lower() if char.isalnum() or char in "+→")

    parts = {normalize(part) for part in (label, *re.split(", | → ", label))}
    return not rows or any(normalize(row) in parts for row in rows)


def _selection(rows: Sequence[str], columns: Sequence[str]) -> str:
    return " and ".join(f"{axis} {[*names]}" for axis, names in (("row", rows), ("column", columns)) if names)


def _no_such_cells(experiment: Experiment, budget: Budget, rows: Sequence[str], columns: Sequence[str]) -> str:
    cells = select_cells(experiment, budget)
    all_rows, all_columns = [*dict.fromkeys(c.label for c in cells)], [*dict.fromkeys(c.column for c in cells)]
    return f"{experiment.name} has no {_selection(rows, columns)}; its rows: {all_rows}; its columns: {all_columns}"


def _smoke_cell(cell: Cell) -> Cell:
    settings = SMOKE_SETTINGS | ({"encoder": "resnet18"} if cell.eval_data == "voc" else {})
    return with_settings(cell, settings, SMOKE_DATA_SETTINGS)


def _apply_ambiguities(cell: Cell, ambiguities: Ambiguities) -> Cell:
    return with_settings(
        cell,
        {"per_sample": ambiguities.per_sample, "fold": ambiguities.fold}
        if cell.training.settings.mix != "none"
        else {},
        {"standardize": ambiguities.standardize} if is_table(cell.training.data) else {},
    )
