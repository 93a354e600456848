"""Training runs with the paper's settings for each data set, and shorter ones.

The settings themselves are part of the data set records (`imix.data.named`). They follow the authors' code wherever
it differs from the paper, because it produced the numbers; docs/paper.md lists the differences.
"""

from collections.abc import Sequence
from typing import Any

from imix.reproduce.datasets import protocol_for, recipe_for, title_of
from imix.reproduce.experiment import Cell, Experiment, PaperNumber, Training, with_settings
from imix.settings import METHODS, DataSettings, Settings

Paper = tuple[float, ...] | float | None  # a mean and standard deviation, a mean, or nothing


def training(data: str, method: str, mix: str = "none", fraction: float = 1.0, **settings: Any) -> Training:
    """Build a training run of the paper: the recipe of the data set, overridden by `settings`."""
    recipe = recipe_for(data)
    data_settings = DataSettings(standardize=recipe.standardize, fraction=fraction)
    if method == "simclr" and mix != "none":
        settings = {"batch_size": 128} | settings  # mixing doubles SimCLR's memory use
    return Training(data, Settings(**({**recipe.settings, "method": method, "mix": mix} | settings)), data_settings)


def build_experiment(
    name: str, title: str, description: str, cells: Sequence[Cell], short_epochs: int | None = None, **options: Any
) -> Experiment:
    """An experiment whose short budget, described by `description`, follows from the recipes of its data sets."""
    short = []
    for cell in cells:
        recipe = recipe_for(cell.training.data)
        settings = recipe.short_settings | ({} if short_epochs is None else {"epochs": short_epochs})
        short.append(with_settings(cell, settings, recipe.short_data_settings))
    return Experiment(name, title, tuple(cells), tuple(short), description, **options)


def paper_number(value: Paper) -> PaperNumber | None:
    """A mean, or a mean and a standard deviation, as a `PaperNumber`."""
    return None if value is None else PaperNumber(*value) if isinstance(value, tuple) else PaperNumber(value)


def accuracy_cell(
    column: str,
    paper: Paper,
    data: str,
    method: str,
    mix: str = "none",
    *,
    row: str = "",
    eval_data: str = "",
    **settings: Any,
) -> Cell:
    """Build a cell for the accuracy of a run on the data set it was trained on, or on `eval_data`."""
    eval_data = eval_data or data
    row = row or title_of(eval_data)
    return Cell(
        row, column, training(data, method, mix, **settings), eval_data, protocol_for(eval_data), paper_number(paper)
    )


def pair(
    data: str, method: str, papers: tuple[Paper, Paper], plain: dict[str, Any], mixed: dict[str, Any], **options: str
) -> list[Cell]:
    """A method without and with mixing, each with its own settings."""
    column = METHODS[method]
    mix_name = "MixUp" if method == "supervised" else "i-Mix"
    return [
        accuracy_cell(column, papers[0], data, method, **plain, **options),
        accuracy_cell(f"{column} + {mix_name}", papers[1], data, method, **({"mix": "mixup"} | mixed), **options),
    ]


def epochs(plain: int, mixed: int) -> tuple[dict[str, int], dict[str, int]]:
    """The numbers of epochs without and with mixing, as settings for `pair`."""
    return {"epochs": plain}, {"epochs": mixed}


def transfer_row(data: str, eval_data: str) -> str:
    """Return the row label of a run that was trained on `data` and evaluated on `eval_data`."""
    return f"{title_of(data)} → {title_of(eval_data)}"
