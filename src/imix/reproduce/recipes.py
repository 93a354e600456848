"""Training runs with the paper's settings for each data set, and shorter ones.

The settings themselves are part of the data set records (`imix.data.named`). They follow the authors' code wherever
it differs from the paper, because it produced the numbers; docs/paper.md lists the differences. The paper's numbers are
in paper_numbers.csv.
"""

import csv
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any

from imix.data.named import DATASETS, PaperRecipe
from imix.reproduce.experiment import Cell, Experiment, Number, Training
from imix.settings import DataSettings, ResolvedSettings

_lines = (files("imix.reproduce") / "paper_numbers.csv").read_text(encoding="utf-8").splitlines()
PAPER_NUMBERS = {  # by experiment, row label and column
    (line["experiment"], line["row"], line["column"]): Number(
        float(line["mean"]), float(line["std"]) if line["std"] else None
    )
    for line in csv.DictReader(_lines)
}


def recipe_for(data: str) -> PaperRecipe:
    """The paper's recipe for a data set."""
    recipe = DATASETS[data].recipe
    assert recipe is not None, f"the paper does not train on {data}"
    return recipe


def training(data: str, method: str, mix: str = "none", fraction: float = 1.0, **settings: Any) -> Training:
    """Build a training run of the paper: the recipe of the data set, overridden by `settings`."""
    recipe = recipe_for(data)
    data_settings = DataSettings(standardize=recipe.standardize, fraction=fraction)
    if method == "simclr" and mix != "none":
        settings = {"batch_size": 128} | settings  # mixing doubles SimCLR's memory use
    options = {**recipe.settings, "method": method, "mix": mix} | settings
    return Training(data, ResolvedSettings(**options), data_settings)


def build_experiment(
    name: str,
    title: str,
    description: str,
    cells: Sequence[Cell],
    short_cells: Sequence[Cell] | None = None,
    short_epochs: int | None = None,
    **options: Any,
) -> Experiment:
    """An experiment with the paper's numbers.

    `description` describes the short budget. Its cells follow from the recipes of the data sets, unless given.
    """
    numbered = [replace(cell, paper=PAPER_NUMBERS.get((name, cell.label, cell.column))) for cell in cells]
    if short_cells is None:
        short_cells = [_shorten(cell, short_epochs) for cell in numbered]
    return Experiment(name, title, numbered, short_cells, description, **options)


def _shorten(cell: Cell, epochs: int | None) -> Cell:
    recipe = recipe_for(cell.training.data)
    settings = recipe.short_settings | ({} if epochs is None else {"epochs": epochs})
    return cell.with_settings(settings, recipe.short_data_settings)


def transfer_row(data: str, eval_data: str) -> str:
    """Return the row label of a run that was trained on `data` and evaluated on `eval_data`."""
    return f"{DATASETS[data].title} → {DATASETS[eval_data].title}"
