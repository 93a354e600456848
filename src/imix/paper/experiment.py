"""What an experiment of the paper is: cells, each a training, a measurement of it, and the number that the paper got.

No torch here, so that `imix reproduce --list` is quick.
"""

import hashlib
import json
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

from imix.settings import SURROUNDINGS, Reading, Settings

HASH = 8  # characters
USUAL, USUAL_READING = Settings(), Reading()


class Number(NamedTuple):
    """What the paper got: a mean, and its spread over runs if it says."""

    mean: float
    spread: float | None = None

    def __str__(self) -> str:
        return f"{self.mean:.1f}" + ("" if self.spread is None else f" ± {self.spread:.1f}")


@dataclass(frozen=True)
class Training:
    """A pretraining, but for its seed."""

    data: str
    settings: Settings
    reading: Reading = field(default_factory=Reading)

    def name(self, seed: int) -> str:
        """What its run folder is called: readable, different for any other training, the same with settings to come."""
        settings = self.settings
        told = [_told(settings, USUAL, ("seed", *SURROUNDINGS)), _told(self.reading, USUAL_READING, ("data_dir",))]
        content = json.dumps([self.data, *told], sort_keys=True)
        mix = "" if settings.mix == "none" else f"-{settings.mix}"
        encoder = settings.encoder.replace(":", "_")
        described = f"{self.data}-{settings.method}{mix}-{encoder}-{settings.epochs}"
        return f"{described}-{hashlib.sha256(content.encode()).hexdigest()[:HASH]}-seed{seed}"


def _told(given: Any, default: Any, without: tuple[str, ...]) -> dict[str, Any]:
    """What is not as it is by default."""
    values = {each.name: getattr(given, each.name) for each in fields(given) if each.name not in without}
    return {name: value for name, value in values.items() if value != getattr(default, name)}


class Measurement(NamedTuple):
    """A protocol of `imix.evaluate`, or "map", on data."""

    protocol: str
    data: str


@dataclass(frozen=True)
class Cell:
    """One number of a table, or one place of a figure: in the line `row` at `x`, where there is an axis.

    `measure` is linear (test accuracy), training (the same classifier's accuracy on what it was trained on), fed, pinv,
    ap, ap50, ap75 or map; it is taken on the data `on`.
    """

    row: str
    column: str
    training: Training
    on: str
    measure: str = "linear"
    paper: Number | None = None
    x: float | None = None

    @property
    def measurement(self) -> Measurement:
        """What has to be done for this number; one that is done serves many cells."""
        protocols = {"training": "linear", "ap": "detection", "ap50": "detection", "ap75": "detection"}
        return Measurement(protocols.get(self.measure, self.measure), self.on)

    @property
    def label(self) -> str:
        """The row, with its place on the axis."""
        return self.row if self.x is None else f"{self.row}, {self.x:g}"


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper.

    `cells` is the paper's full length, `short` what a GPU does in minutes, `told` says how that is shorter, and `axis`
    names what `Cell.x` counts.
    """

    name: str
    title: str
    cells: tuple[Cell, ...]
    short: tuple[Cell, ...]
    told: str
    seeds: int = 1
    axis: str | None = None
    note: str = ""


def changed(cell: Cell, settings: dict[str, Any], reading: dict[str, Any]) -> Cell:
    """A cell whose training differs in that."""
    training = cell.training
    return replace(
        cell,
        training=replace(
            training, settings=replace(training.settings, **settings), reading=replace(training.reading, **reading)
        ),
    )
