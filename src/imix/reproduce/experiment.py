"""The data model of the paper's tables and figures: each is a list of cells, each cell a run and a measurement.

Imports no torch, so that `imix reproduce --list` starts quickly.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from imix.settings import RESUME_SAFE_SETTINGS, DataSettings, ResolvedSettings, Settings

HASH_LENGTH = 8


@dataclass(frozen=True)
class Ambiguities:
    """Points the paper leaves open, or on which it differs from the authors' code.

    The defaults follow the authors' code, because it produced the paper's numbers.
    """

    per_sample: bool = True
    """One lam per sample, as in the authors' code; --no-per-sample: one per batch, as in the paper's appendix."""
    fold: bool = True
    """lam <- max(lam, 1 - lam), as in the authors' code; --no-fold: lam as drawn, as in the paper's algorithm."""
    standardize: Literal["train", "all"] = "all"
    """Standardize tables with statistics of training and test rows (all), as in the authors' code, or of the training
    rows only (train)."""
    choose_on: Literal["test", "held-out"] = "test"
    """Samples on which the linear classifier's learning rate is chosen: the test samples, as the authors did, or
    held-out training samples. The number for the other choice is shown in parentheses."""


class Number(NamedTuple):
    """A mean over runs, with the standard deviation and the mean for the other choice of learning rate, if known."""

    mean: float
    std: float | None = None
    other_mean: float | None = None

    def __str__(self) -> str:
        mean, other = (
            f"{value:.1f}" for value in (self.mean, self.mean if self.other_mean is None else self.other_mean)
        )
        return mean + ("" if self.std is None else f" ± {self.std:.1f}") + ("" if other == mean else f" ({other})")


@dataclass(frozen=True)
class Training:
    """A pretraining run without its seed."""

    data: str
    settings: ResolvedSettings
    data_settings: DataSettings

    def name(self, seed: int) -> str:
        """The name of the run folder: readable, and unique because it ends with a hash.

        Only settings that differ from their defaults are hashed, so adding a setting does not change existing names.
        """
        settings, excluded = self.settings, ("seed", "data_dir", *RESUME_SAFE_SETTINGS)
        content = [self.data, non_default(settings, excluded), non_default(self.data_settings, excluded)]
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:HASH_LENGTH]
        mix = "" if settings.mix == "none" else f"-{settings.mix}"
        encoder = settings.encoder.replace(":", "_")
        return f"{self.data}-{settings.method}{mix}-{encoder}-{settings.epochs}-{digest}-seed{seed}"


def non_default(settings: Settings | DataSettings, excluded: tuple[str, ...] = ()) -> dict[str, Any]:
    """The settings that differ from their defaults, except for those excluded."""
    defaults = vars(type(settings)())
    return {k: v for k, v in vars(settings).items() if v != defaults[k] and k not in excluded}


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
    paper: Number | None = None
    x: float | None = None

    @property
    def measurement(self) -> tuple[str, str]:
        """The measurement that yields this number: a protocol of `imix.evaluate`, or "map", and the data set."""
        linear, detection = dict.fromkeys(["linear", "training"], "linear-paper"), ("ap", "ap50", "ap75")
        protocols = linear | dict.fromkeys(detection, "detection")
        return protocols.get(self.metric, self.metric), self.eval_data

    @property
    def label(self) -> str:
        """The row, followed by the position on the axis if there is one."""
        return self.row if self.x is None else f"{self.row}, {self.x:g}"

    def with_settings(self, settings: dict[str, Any], data_settings: dict[str, Any]) -> "Cell":
        """A copy of the cell with some settings of its training replaced."""
        old = self.training
        training = Training(old.data, replace(old.settings, **settings), replace(old.data_settings, **data_settings))
        return replace(self, training=training)


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper.

    `cells` are the cells at the paper's full length and `short_cells` those of the short budget; `short_description`
    says how the short budget differs. `axis` is the label of the x axis of a figure.
    """

    name: str
    title: str
    cells: Sequence[Cell]
    short_cells: Sequence[Cell]
    short_description: str
    seeds: int = 1
    axis: str | None = None
    note: str = ""
