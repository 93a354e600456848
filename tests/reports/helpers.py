"""Shared by the tests of reports: quick settings, and runs with changed configs or results."""

import json
import re
from dataclasses import replace
from pathlib import Path

import imix
from imix.evaluation import Result, Split
from imix.files import write_jsonl
from imix.reports.groups import RunGroup
from imix.run import Run

QUICK = imix.Settings(epochs=12, batch_size=16, encoder="small", device="cpu")
SPLIT = Split(train=72, test=18)
HOSTILE = "<img src=x onerror=window.hurt=1>"  # a class name that would run code if it were not escaped


def content_of(path: Path) -> dict:
    """The JSON content of a report."""
    match = re.search(r'id="content">(.*?)</script>', path.read_text(), re.S)
    return json.loads(match.group(1))


def quick_run(data: Path, out: Path, label: str, fraction: float = 1.0) -> Path:
    """Train for one epoch and evaluate."""
    data_settings = imix.DataSettings(label=label, fraction=fraction)
    imix.pretrain(data, replace(QUICK, epochs=1), data_settings, out=out, progress=False)
    imix.evaluate(out)
    return out


def with_config(run: Run, section: str, **values: object) -> Run:
    """A copy of the run with other values in a section of its config."""
    config = run.config
    if section == "data_settings":
        changed = replace(config, data=replace(config.data, settings=replace(config.data.settings, **values)))
    else:
        changed = replace(config, **{section: replace(getattr(config, section), **values)})
    return Run(run.encoder, changed, run.metrics)


def with_results(run: Run, path: Path, *results: Result) -> Run:
    """A copy of the run in another folder, with these results."""
    path.mkdir(parents=True)
    write_jsonl(path / "evaluations.jsonl", [result.to_json() for result in results])
    return replace(run, path=path)


def make_result(
    data: str,
    protocol: str = "linear",
    value: float = 0.5,
    majority: float | None = None,
    split: Split = SPLIT,
    inputs: bool = False,
    **hyperparameters: object,
) -> Result:
    metric = {"fed": "distance", "detection": "ap"}.get(protocol, "accuracy")
    metrics = {metric: value} | ({} if majority is None else {"majority_accuracy": majority})
    return Result(protocol, data, metrics, hyperparameters, split, representation="inputs" if inputs else "features")


def columns_of(groups: list[RunGroup]) -> list[list[str]]:
    return [[*group.results] for group in groups]
