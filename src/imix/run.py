"""A run, and its folder.

    config.json           what was run, on what, with which versions; how columns of a table become numbers
    metrics.jsonl         one record every few steps
    checkpoint.pt         everything needed to go on, atomically replaced
    encoder.safetensors   the result: standardisation and encoder, with their architecture in the header
    evaluations.jsonl     what `imix evaluate` found
    detection.pt          a detector that is being fine-tuned; gone when it is done
    report.html           the page of `imix report`
    tensorboard/          where that was asked for

Nothing is ever unpickled from it.
"""

import shutil
from collections import OrderedDict
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from imix.config import known, read_config
from imix.data import GIVEN, Table
from imix.encoders.stored import load_encoder
from imix.errors import StorageError
from imix.files import append_line, read_lines, read_metrics
from imix.result import Result
from imix.settings import Reading, Settings


@dataclass(repr=False)
class Run:
    """A finished run: its encoder, its configuration, its metrics, and its folder if it has one."""

    encoder: nn.Sequential
    config: dict[str, Any]
    metrics: list[dict[str, Any]] = field(default_factory=list)
    path: Path | None = None

    @property
    def settings(self) -> Settings:
        """How it was trained."""
        return Settings(**known(Settings, self.config["settings"]))

    @property
    def reading(self) -> Reading:
        """How the run's data was read."""
        return Reading(**known(Reading, self.config["data"].get("reading", {})))

    @property
    def evaluations(self) -> list[dict[str, Any]]:
        """What `imix.evaluate` found of it, in order: protocol, data, value, and the constants and details behind."""
        return [] if self.path is None else read_lines(self.path / "evaluations.jsonl")

    def keep(self, result: Result) -> None:
        """Add a result to the folder's evaluations, if there is one; where that fails, the error has it."""
        if self.path is None:
            return
        try:
            append_line(self.path / "evaluations.jsonl", asdict(result))
        except StorageError as error:
            raise StorageError(f"{error}; what was found: {' '.join(str(result).split())}") from error

    @property
    def own(self) -> dict[str, str]:
        """What was one's own, by name: method, mix, augment."""
        return self.config.get("own", {})

    @property
    def table(self) -> Table | None:
        """How the columns of the run's table became numbers, if it was one."""
        table = self.config["data"].get("table")
        return None if table is None else Table.from_json(table)

    def __repr__(self) -> str:
        settings, place = self.settings, "" if self.path is None else f" in {str(self.path)!r}"
        method, mix = self.own.get("method", settings.method), self.own.get("mix", settings.mix)
        what = f"{method}{'' if mix == 'none' else f' + {mix}'} on {self.config['data']['name']}"
        loss = f", loss {self.metrics[-1]['loss']:.4g}" if self.metrics else ""
        return f"<Run{place}: {what}, {settings.epochs} epochs{loss}>"

    @classmethod
    def load(cls, path: str | Path, encoder: nn.Module | None = None) -> "Run":
        """Read a run folder; `encoder` is the module to fill where a run was made with one of your own."""
        path = Path(path)
        config = read_config(path)
        return cls(load_encoder(path, encoder), config, read_metrics(path / "metrics.jsonl"), path)


def as_run(given: "Run | nn.Module | str | Path") -> Run:
    """A run, as it is or from its folder; or one around a network of one's own, or a method's, trained elsewhere."""
    from imix.methods import Method

    if isinstance(given, Run):
        return given
    if not isinstance(given, nn.Module):
        return Run.load(given)
    if isinstance(given, Method):
        given = given.encoder
    whole = nn.Sequential(OrderedDict(standardise=nn.Identity(), encoder=given))
    architecture: dict[str, Any] = {
        "encoder": "custom",
        "shape": None,
        "groups": [],
        "standardise": False,
        "clip": None,
    }
    return Run(whole, {"settings": asdict(Settings()), "data": {"name": GIVEN}, "architecture": architecture})


def clear(path: Path) -> None:
    """Remove the run from a folder; other files in it stay, and so does config.json, by which it is known as a run.

    The checkpoint goes first: a run without it begins anew, whatever else is still there.
    """
    files = (
        "checkpoint.pt",
        "metrics.jsonl",
        "encoder.safetensors",
        "evaluations.jsonl",
        "detection.pt",
        "report.html",
    )
    for name in files:
        (path / name).unlink(missing_ok=True)
    shutil.rmtree(path / "tensorboard", ignore_errors=True)
