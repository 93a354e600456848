"""The data model of the paper's tables and figures: each is a list of cells, each cell a run and a measurement.

Imports no torch, so that `imix reproduce --list` starts quickly.
"""

import hashlib
import json
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

from imix.settings import RESUME_SAFE_SETTINGS, DataSettings, Settings

HASH_LENGTH = 8
DEFAULT_SETTINGS, DEFAULT_DATA_SETTINGS = Settings(), DataSettings()


class PaperNumber(NamedTuple):
    """A number from the paper: the mean, and the standard deviation over runs if the paper reports it."""

    mean: float
    std: float | None = None

    def __str__(self) -> str:
        return f"{self.mean:.1f}" + ("" if self.std is None else f" ± {self.std:.1f}")


@dataclass(frozen=True)
class Training:
    """A pretraining run without its seed."""

    data: str
    settings: Settings
    data_settings: DataSettings = field(default_factory=DataSettings)

    def name(self, seed: int) -> str:
        """The name of the run folder: readable, and unique because it ends with a hash.

        Only settings that differ from their defaults are hashed, so adding a setting does not change existing names.
        """
        settings = self.settings
        content = [
            self.data,
            _non_default(settings, DEFAULT_SETTINGS, ("seed", *RESUME_SAFE_SETTINGS)),
            _non_default(self.data_settings, DEFAULT_DATA_SETTINGS, ("data_dir",)),
        ]
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:HASH_LENGTH]
        mix = "" if settings.mix == "none" else f"-{settings.mix}"
        encoder = settings.encoder.replace(":", "_")
        return f"{self.data}-{settings.method}{mix}-{encoder}-{settings.epochs}-{digest}-seed{seed}"


def _non_default(settings: Any, defaults: Any, excluded: tuple[str, ...]) -> dict[str, Any]:
    """The settings that differ from their defaults."""
    values = {f.name: getattr(settings, f.name) for f in fields(settings) if f.name not in excluded}
    return {name: value for name, value in values.items() if value != getattr(defaults, name)}


class Measurement(NamedTuple):
    """A protocol of `imix.evaluate`, or "map", and the data set to apply it to."""

    protocol: str
    data: str


@dataclass(frozen=True)
class Cell:
    """One number of a table, or one point of a figure (on the line `row`, at position `x`).

    `metric` is "linear" (test accuracy), "training" (training accuracy of the same classifier), "fed", "pinv", "ap",
    "ap50", "ap75" or "map". It is measured on the data set `eval_data`.
    """

    row: str
    column: str
    training: Training
    eval_data: str
    metric: str = "linear"
    paper: PaperNumber | None = None
    x: float | None = None

    @property
    def measurement(self) -> Measurement:
        """The measurement that yields this number; several cells can share one."""
        protocols = {"training": "linear", "ap": "detection", "ap50": "detection", "ap75": "detection"}
        return Measurement(protocols.get(self.metric, self.metric), self.eval_data)

    @property
    def label(self) -> str:
        """The row, followed by the position on the axis if there is one."""
        return self.row if self.x is None else f"{self.row}, {self.x:g}"


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper.

    `cells` are the cells at the paper's full length and `short_cells` those of the short budget; `short_description`
    says how the short budget differs. `axis` is the label of the x axis of a figure.
    """

    name: str
    title: str
    cells: tuple[Cell, ...]
    short_cells: tuple[Cell, ...]
    short_description: str
    seeds: int = 1
    axis: str | None = None
    note: str = ""


def with_settings(cell: Cell, settings: dict[str, Any], data_settings: dict[str, Any]) -> Cell:
    """A copy of the cell with some settings of its training replaced."""
    training = cell.training
    return replace(
        cell,
        training=replace(
            training,
            settings=replace(training.settings, **settings),
            data_settings=replace(training.data_settings, **data_settings),
        ),
    )
