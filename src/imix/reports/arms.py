"""Runs to compare: those that differ in their seed alone are one arm, with a mean and a spread."""

import hashlib
import json
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from imix.errors import InputError
from imix.evaluation import Result, evaluate
from imix.run import Run
from imix.settings import METHODS, SURROUNDINGS

# What mostly follows from the rest: names do without.
FOLLOWS = ("samples", "shape", "clip", "table", "table_values", "fingerprint", "weights")
OPTIONAL = ("label", "test", *FOLLOWS)  # where there may be none; other things that are not given have a default
OF_INPUTS = ", of the inputs"  # how a column of `evaluate(..., inputs=True)` ends
# Constants that make no other protocol: what was at hand, randomness, and what a column says in its own way.
NO_SETTINGS = (
    *("train", "test", "unlabelled", "bf16", "checkpoint_minutes", "seed", "split_seed"),
    *("views", "standardised", "label", "test_file", "of"),
)


@dataclass(frozen=True)
class Arm:
    """One side of a comparison: runs that differ in their seed, and what was found of each."""

    name: str
    runs: list[Run]
    results: dict[str, list[Result]] = field(default_factory=dict)  # by column, one for each run that has it

    def shown(self, column: str) -> str:
        """Mean and standard deviation over seeds: per cent, or a distance in units of 0.0001."""
        results = self.results.get(column, [])
        if not results:
            return ""
        values = [result.scaled for result in results]
        deviation = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
        return f"{statistics.mean(values):.1f}{deviation}"


def group(runs: Sequence[Run]) -> list[Arm]:
    """Arms in the order of their first runs, named by what tells them apart."""
    arms: dict[str, list[int]] = {}
    for at, run in enumerate(runs):
        arms.setdefault(json.dumps(told(run), sort_keys=True), []).append(at)
    firsts = [runs[members[0]] for members in arms.values()]
    short, known = [name_of(run) for run in firsts], [told(run) for run in firsts]
    files = _file_names(path for run in runs for path in (run.config["data"]["name"], run.reading.test) if path)
    names = []
    for name, one in zip(short, known, strict=True):
        alike = [other for called, other in zip(short, known, strict=True) if called == name]
        names.append(", ".join([name, *_apart(one, alike, files)]))
    names = [name if names.count(name) == 1 else f"{name} ({at + 1})" for at, name in enumerate(names)]
    results = _results(runs)
    return [
        Arm(name, [runs[at] for at in members], _together([results[at] for at in members]))
        for name, members in zip(names, arms.values(), strict=True)
    ]


def _file_names(paths: Iterable[str]) -> dict[str, str]:
    """What paths are called: by their last part, or as a whole where others have the same last part."""
    last = {path: Path(path).name for path in paths}
    times = Counter(last.values())
    return {path: name if times[name] == 1 else path for path, name in last.items()}


def _apart(one: dict[str, Any], alike: Sequence[dict[str, Any]], files: Mapping[str, str]) -> list[str]:
    """What tells one from others of its method and mixing, in words; what files are called is given."""
    differing = [name for name in differences(alike) if name not in ("method", "mix", "input_mix")]
    chosen = [name for name in differing if name not in FOLLOWS] or differing
    shown = one | {name: files[one[name]] for name in ("data", "test") if one.get(name)}
    return [in_words(name, shown.get(name)) for name in chosen]


def in_words(name: str, value: Any) -> str:
    """Something that is told of a run, as people would say it.

    >>> in_words("columns", {"id": "drop", "age": "numeric"}), in_words("label", None), in_words("lr", None)
    ('columns id drop, age numeric', 'no label', 'lr by default')
    """
    if value is None or value in ({}, [], ()):
        return f"no {name}" if name in OPTIONAL else f"{name} by default"
    if isinstance(value, dict):
        value = [f"{key} {one}" for key, one in value.items()]
    return f"{name} {', '.join(map(str, value)) if isinstance(value, list | tuple) else value}"


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
        "fingerprint": data.get("fingerprint"),
        **{f"own {name}": value for name, value in run.own.items()},
        "weights": sum(weight.numel() for weight in run.encoder.parameters()),
    }
    return {name: value for name, value in parts.items() if name not in ("seed", *SURROUNDINGS, "data_dir", "groups")}


def name_of(run: Run) -> str:
    """A run by its method and mixing."""
    settings = run.settings
    mix = {"mixup": " + i-Mix", "cutmix": " + i-Mix (CutMix)", "none": ""}[settings.mix]
    if settings.method == "supervised" and "method" not in run.own:  # of class labels, not of virtual ones
        mix = {"mixup": " + MixUp", "cutmix": " + CutMix", "none": ""}[settings.mix]
    mix = f" + i-Mix ({run.own['mix']})" if "mix" in run.own else mix
    return run.own.get("method", METHODS[settings.method]) + mix + (" + InputMix" if settings.input_mix else "")


def differences(told: Sequence[dict[str, Any]]) -> list[str]:
    """Names of what is told of runs in which some differ."""
    names = dict.fromkeys(name for one in told for name in one)
    return [name for name in names if any(other.get(name) != told[0].get(name) for other in told)]


def _results(runs: Sequence[Run]) -> list[dict[str, Result]]:
    """What was last found of each run, by column: a protocol, and all that it takes for numbers to be compared.

    A column says its data, its label or its test file if that is not the run's own, and all do where runs do not share
    it. Where numbers would share a column and were made with different constants, it says these.
    """
    found = [_read_results(run) for run in runs]
    own = [run.config["data"]["name"] for run in runs]
    every = [result for results in found for result in results]
    tests = [test for result in every if (test := result.constants.get("test_file"))]
    called = _file_names([*own, *(result.data for result in every), *tests])
    one_data, one_label = len(set(own)) == 1, len({run.reading.label for run in runs}) == 1
    one_test = len({run.reading.test for run in runs}) == 1

    def plain(result: Result, run: Run) -> str:
        views = ", with views" if "views" in result.constants else ""
        known = one_data and result.data == run.config["data"]["name"]
        place = "" if known else f" on {called[result.data]}"
        anew = ", standardised anew" if "standardised" in result.constants else ""
        by = None if result.is_distance else result.constants.get("label", run.reading.label)
        label = "" if by is None or (one_label and by == run.reading.label) else f", label {by}"
        file = result.constants.get("test_file")
        tested = "" if file is None or (one_test and file == run.reading.test) else f", tested on {called[file]}"
        return f"{result.protocol}{views}{place}{anew}{label}{tested}"

    alike: dict[str, list[dict[str, Any]]] = {}
    for run, results in zip(runs, found, strict=True):
        for result in results:
            alike.setdefault(plain(result, run), []).append(_settings_of(result))

    def column(result: Result, run: Run) -> str:
        name, used = plain(result, run), _settings_of(result)
        constants = [
            in_words(one, "none" if used[one] == [] else used[one]) for one in differences(alike[name]) if one in used
        ]
        inputs = OF_INPUTS if result.constants.get("of") == "inputs" else ""
        return ", ".join([name, *constants]) + inputs

    return [{column(result, run): result for result in results} for run, results in zip(runs, found, strict=True)]


def _settings_of(result: Result) -> dict[str, Any]:
    """The constants of its protocol."""
    return {name: value for name, value in result.constants.items() if name not in NO_SETTINGS}


def _read_results(run: Run) -> list[Result]:
    """All that was found of a run, in order."""
    found = []
    for line in run.evaluations:
        try:
            found.append(Result(**line))
        except TypeError:
            print(f"{run.path}/evaluations.jsonl has a line that is not of this version", file=sys.stderr)
    return found


def _together(results: Sequence[dict[str, Result]]) -> dict[str, list[Result]]:
    """By column, those of all runs that have it."""
    columns = dict.fromkeys(column for found in results for column in found)
    return {column: [found[column] for found in results if column in found] for column in columns}


def evaluate_if_need_be(run: Run) -> None:
    """Evaluate a run that was not, if its data is at hand and has labels."""
    if run.path is None or any(result.constants.get("of") != "inputs" for result in _read_results(run)):
        return
    try:
        for protocol in ("linear", "knn", "fed"):
            print(evaluate(run, protocol=protocol), file=sys.stderr, flush=True)
    except InputError as error:
        print(f"{run.path} is not evaluated: {error}. What imix evaluate finds is shown, too", file=sys.stderr)
