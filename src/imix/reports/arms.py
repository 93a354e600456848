"""Runs to compare: those that differ in their seed alone are one arm, with a mean and a spread."""

import hashlib
import json
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
from imix.settings import METHODS, SURROUNDINGS

FOLLOWS = ("samples", "shape", "clip", "table", "table_values", "weights")  # mostly from the rest: names do without


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
        values = [result.scaled for result in results]
        deviation = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
        return f"{statistics.mean(values):.1f}{deviation}"


def group(runs: Sequence[Run]) -> list[Arm]:
    """Arms in the order of their first runs, named by what tells them apart."""
    arms: dict[str, list[Run]] = {}
    for run in runs:
        arms.setdefault(json.dumps(told(run), sort_keys=True), []).append(run)
    short = [name_of(runs[0]) for runs in arms.values()]
    names = []
    for at, runs in enumerate(arms.values()):
        alike = [told(others[0]) for name, others in zip(short, arms.values(), strict=True) if name == short[at]]
        names.append(", ".join([short[at], *_apart(told(runs[0]), alike)]))
    names = [name if names.count(name) == 1 else f"{name} ({at + 1})" for at, name in enumerate(names)]
    return [Arm(name, runs, _results(runs)) for name, runs in zip(names, arms.values(), strict=True)]


def _apart(one: dict[str, Any], alike: Sequence[dict[str, Any]]) -> list[str]:
    """What tells one from others of its method and mixing, in words."""
    differing = [name for name in differences(alike) if name not in ("method", "mix", "input_mix")]
    chosen = [name for name in differing if name not in FOLLOWS] or differing
    places = ("data", "test")
    return [f"{name} {Path(one[name]).name if name in places and one[name] else one[name]}" for name in chosen]


def told(run: Run) -> dict[str, Any]:
    """What makes a run the one it is, by name, but for its seed: settings, data and how it was read, the encoder."""
    data, table = run.config["data"], run.table
    fitted = hashlib.sha256(json.dumps(data.get("table"), sort_keys=True).encode()).hexdigest()[:8]
    parts = {
        **run.config["settings"],
        "data": data["name"],
        **run.config["architecture"],  # its encoder is the one that was used, also where that is one's own
        **data.get("reading", {}),
        "samples": data.get("samples"),
        "table": None if table is None else str(table),
        "table_values": None if table is None else fitted,
        "weights": sum(weight.numel() for weight in run.encoder.parameters()),
    }
    return {name: value for name, value in parts.items() if name not in ("seed", *SURROUNDINGS, "data_dir", "groups")}


def name_of(run: Run) -> str:
    """A run by its method and mixing."""
    settings = run.settings
    mix = {"mixup": " + i-Mix", "cutmix": " + i-Mix (CutMix)", "none": ""}[settings.mix]
    return METHODS[settings.method] + mix + (" + InputMix" if settings.input_mix else "")


def differences(told: Sequence[dict[str, Any]]) -> list[str]:
    """Names of what is told of runs in which some differ."""
    names = dict.fromkeys(name for one in told for name in one)
    return [name for name in names if any(other.get(name) != told[0].get(name) for other in told)]


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
            anew = ", standardised anew" if "standardised" in result.constants else ""
            column = result.constants.get("label", run.reading.label)
            label = "" if column == run.reading.label else f", label {column}"
            last[f"{result.protocol}{views}{other}{anew}{label}"] = result
        for name, result in last.items():
            found.setdefault(name, []).append(result)
    return found


def evaluate_if_need_be(run: Run) -> None:
    """Evaluate a run that was not, if its data is at hand and has labels."""
    if run.path is None or (run.path / "evaluations.jsonl").exists():
        return
    try:
        for protocol in ("linear", "knn", "fed"):
            print(evaluate(run, protocol=protocol), file=sys.stderr, flush=True)
    except InputError as error:
        print(f"{run.path} is not evaluated: {error}", file=sys.stderr)
