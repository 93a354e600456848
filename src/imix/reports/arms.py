"""Runs to compare: those that differ in their seed alone are one arm, with a mean and a spread."""

import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from imix.errors import InputError
from imix.evaluation import Result, evaluate
from imix.files import read_lines
from imix.run import Run

UNTOLD = ("seed", "device", "checkpoint_minutes", "tensorboard", "wandb", "knn_every")  # do not make another arm
METHODS = {"npair": "N-pair", "simclr": "SimCLR", "moco": "MoCo v2", "byol": "BYOL", "supclr": "SupCLR"}
METHODS |= {"supnpair": "Sup-N-pair", "supervised": "supervised"}


@dataclass(frozen=True)
class Arm:
    """One side of a comparison: runs that differ in their seed, and what was found of each."""

    name: str
    runs: list[Run]
    results: dict[str, list[Result]] = field(default_factory=dict)  # by protocol, one for each run that has it

    def accuracy(self, protocol: str) -> str:
        """Mean and standard deviation over seeds: per cent, or a distance in units of 0.0001."""
        results = self.results.get(protocol, [])
        if not results:
            return ""
        scale = 1e4 if results[0].protocol == "fed" else 100
        values = [scale * result.value for result in results]
        deviation = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
        return f"{statistics.mean(values):.1f}{deviation}"


def report(runs: Sequence["Run | str | Path"], out: "str | Path" = "report.html", *, samples: int = 2000) -> Path:
    """Write a page about runs: settings that differ, curves, results, maps of their features, confusions.

    Runs that differ in their seed alone are put together. A run that was not evaluated yet is, where its data has
    labels. The maps show up to that many `samples`.
    """
    from imix.reports.page import write_report

    if not runs:
        raise InputError("a report needs at least one run")
    if samples < 10:
        raise InputError(f"a map needs at least 10 samples; got {samples}")
    out = Path(out)
    if not out.parent.is_dir():
        raise InputError(f"cannot write {str(out)!r}: there is no folder {str(out.parent)!r}")
    loaded = [run if isinstance(run, Run) else Run.load(run) for run in runs]
    for run in loaded:
        _evaluate_if_need_be(run)
    arms = group(loaded)
    about = loaded[0].config["data"]["name"] if len({run.config["data"]["name"] for run in loaded}) == 1 else "data"
    title = (
        f"{arms[0].name} on {Path(about).name}" if len(arms) == 1 else f"{len(arms)} ways to learn {Path(about).name}"
    )
    given = " ".join(str(run.path) for run in loaded if run.path is not None)
    return write_report(out, title, arms, [], "", f"imix report {given}", samples)


def group(runs: Sequence[Run]) -> list[Arm]:
    """Arms in the order of their first runs, named by what tells them apart."""
    arms: dict[str, list[Run]] = {}
    for run in runs:
        told = {name: value for name, value in run.config["settings"].items() if name not in UNTOLD}
        data = {name: value for name, value in run.config["data"].items() if name in ("name", "samples")}
        arms.setdefault(repr((told, data)), []).append(run)
    differing = differences([runs[0].config["settings"] for runs in arms.values()])
    short = [name_of(runs[0]) for runs in arms.values()]
    names = []
    for at, runs in enumerate(arms.values()):
        settings = runs[0].config["settings"]
        also = [f"{name} {settings[name]}" for name in differing if name not in ("method", "mix", "input_mix")]
        unique = short.count(short[at]) == 1
        names.append(short[at] if unique else ", ".join([short[at], *also]) if also else f"{short[at]} ({at + 1})")
    return [Arm(name, runs, _results(runs)) for name, runs in zip(names, arms.values(), strict=True)]


def name_of(run: Run) -> str:
    """A run by its method and mixing."""
    settings = run.settings
    mix = {"mixup": " + i-Mix", "cutmix": " + i-Mix (CutMix)", "none": ""}[settings.mix]
    return METHODS[settings.method] + mix + (" + InputMix" if settings.input_mix else "")


def differences(settings: Sequence[dict[str, Any]]) -> list[str]:
    """Names of the settings in which some differ, but for those that make no difference."""
    names = [name for name in settings[0] if name not in UNTOLD]
    return [name for name in names if any(other.get(name) != settings[0][name] for other in settings)]


def _results(runs: Sequence[Run]) -> dict[str, list[Result]]:
    """What was last found of each run by each protocol on each data set."""
    found: dict[str, list[Result]] = {}
    for run in runs:
        last: dict[str, Result] = {}
        for line in [] if run.path is None else read_lines(run.path / "evaluations.jsonl"):
            try:
                result = Result(**line)
            except TypeError:
                print(f"{run.path}/evaluations.jsonl has a line that is not of this version", file=sys.stderr)
                continue
            views = ", with views" if "views" in result.constants else ""
            other = "" if result.data == run.config["data"]["name"] else f" on {Path(result.data).name}"
            last[f"{result.protocol}{views}{other}"] = result
        for name, result in last.items():
            found.setdefault(name, []).append(result)
    return found


def _evaluate_if_need_be(run: Run) -> None:
    """Evaluate a run that was not, if its data is at hand and has labels."""
    if run.path is None or (run.path / "evaluations.jsonl").exists():
        return
    try:
        for protocol in ("linear", "knn", "fed"):
            print(evaluate(run, protocol=protocol), file=sys.stderr, flush=True)
    except InputError as error:
        print(f"{run.path} is not evaluated: {error}", file=sys.stderr)
