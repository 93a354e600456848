"""Groups of runs that differ only in their seed, with a name and comparable results for each group."""

import hashlib
import json
import os
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from imix.errors import InputError
from imix.evaluation import Result, evaluate
from imix.output import print_message
from imix.run import Run
from imix.settings import METHODS, RESUME_SAFE_SETTINGS

# These mostly follow from the data and from other settings, so the table of differences does not contain them.
DERIVED_SETTINGS = ("samples", "shape", "clip", "table", "table_values", "fingerprint", "weights")
INPUTS_SUFFIX = " (inputs)"  # end of the column name of a result of the inputs
# Results stay comparable if they differ in these.
IRRELEVANT_HYPERPARAMETERS = ("checkpoint_minutes", "seed")


@dataclass(frozen=True)
class RunGroup:
    """Runs that differ only in their seed, with their evaluation results.

    Parameters
    ----------
    name : str
        Name shown in tables and legends.
    runs : list of Run
        The runs, one per seed.
    results : dict of str to list of Result
        Results by column name, one for each run that has a result in this column.

    Examples
    --------
    >>> from imix.evaluation import Result, Split
    >>> from imix.reports import RunGroup
    >>> split = Split(train=1297, test=500)
    >>> results = [Result("knn", "digits", {"accuracy": accuracy}, {}, split) for accuracy in (0.94, 0.96)]
    >>> RunGroup("N-pair", [], {"knn": results}).formatted("knn")
    '95.0 ± 1.4'
    """

    name: str
    runs: list[Run]
    results: dict[str, list[Result]] = field(default_factory=dict)

    def values(self, column: str) -> list[float]:
        """The results in a column: percent, or units of 0.0001 for distances."""
        return [result.scaled for result in self.results.get(column, [])]

    def formatted(self, column: str) -> str:
        """Mean ± standard deviation over the runs."""
        values = self.values(column)
        if not values:
            return ""
        return f"{statistics.mean(values):.1f}" + (f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else "")


def group_runs(runs: Sequence[Run], run_names: Sequence[str] = ()) -> list[RunGroup]:
    """Group runs that differ only in their seed, in order of appearance.

    Groups are named by `run_names`, one for each run, or by their run folders.
    """
    members: dict[str, list[int]] = {}
    for i, run in enumerate(runs):
        members.setdefault(json.dumps(run_description(run), sort_keys=True), []).append(i)
    if not run_names:
        folders = _short_paths(str(run.path) for run in runs if run.path is not None)
        run_names = [method_name(run) if run.path is None else folders[str(run.path)] + _state(run) for run in runs]
    names = [_group_name([run_names[i] for i in indices], run_names) for indices in members.values()]
    names = [name if names.count(name) == 1 else f"{name} ({i})" for i, name in enumerate(names, 1)]
    results = _results_by_column(runs)
    groups = []
    for name, indices in zip(names, members.values(), strict=True):
        columns: dict[str, list[Result]] = {}
        for i in indices:
            for column, result in results[i].items():
                columns.setdefault(column, []).append(result)
        groups.append(RunGroup(name, [runs[i] for i in indices], columns))
    return groups


def _group_name(members: Sequence[str], run_names: Sequence[str]) -> str:
    """The name of the runs in a group; several are shortened to "moco-*" if that matches exactly these runs."""
    names = list(dict.fromkeys(members))
    prefix = os.path.commonprefix(names)  # noqa: RUF071 - of characters
    matches = {name for name in run_names if name.startswith(prefix)}
    return f"{prefix}*" if prefix and len(names) > 1 and matches == set(names) else ", ".join(names)


def _state(run: Run) -> str:
    """Return the part of a run's name that says which encoder it is, empty for the last one of a finished run."""
    file = run.encoder_file.removesuffix(".safetensors")
    parts = [] if file == "encoder" else [file]
    parts += [] if run.progress is None else run.progress.split(", ")[:1]
    return f" ({', '.join(parts)})" if parts else ""


def _short_paths(paths: Iterable[str]) -> dict[str, str]:
    """The file name of each path, or the whole path if another one has the same file name."""
    file_names = {path: os.path.basename(os.path.abspath(path)) for path in paths}
    counts = Counter(file_names.values())
    return {path: name if counts[name] == 1 else path for path, name in file_names.items()}


def format_setting(value: Any) -> str:
    """Format the value of a setting for display; an empty one is a dash.

    >>> format_setting({"id": "drop", "age": "numeric"}), format_setting((60, 80)), format_setting(None)
    ('id drop, age numeric', '60, 80', '–')
    """
    if isinstance(value, dict):
        value = [f"{key} {item}" for key, item in value.items()]
    if isinstance(value, list | tuple):
        value = ", ".join(map(str, value))
    return "–" if value in (None, "") else str(value)


def run_description(run: Run) -> dict[str, Any]:
    """Everything that defines a run except its seed: settings, data, data options, encoder, and how far it is."""
    config = run.config.to_json()
    data, table = config["data"], run.table
    table_hash = hashlib.sha256(json.dumps(data["table"], sort_keys=True).encode()).hexdigest()[:8]
    description = {
        **config["settings"],
        "data": data["name"],
        **config["architecture"],  # overrides the encoder of the settings, which may be user-supplied
        **data["settings"],
        "samples": data["samples"],
        "table": None if table is None else str(table),
        "table_values": None if table is None else table_hash,
        "fingerprint": data["fingerprint"],
        **{f"user-supplied {name}": value for name, value in run.user_supplied.items()},
        "weights": sum(weight.numel() for weight in run.encoder.parameters()),
        "encoder_file": run.encoder_file,
        "progress": run.progress,
    }
    ignored = ("seed", *RESUME_SAFE_SETTINGS, "data_dir", "groups")
    return {name: value for name, value in description.items() if name not in ignored}


def method_name(run: Run) -> str:
    """The method and mixing of a run, such as "MoCo v2 + i-Mix"."""
    settings, user_supplied = run.settings, run.user_supplied
    method = user_supplied.get("method", METHODS[settings.method])
    if "mix" in user_supplied:
        mix = f" + i-Mix ({user_supplied['mix']})"
    elif settings.method == "supervised" and "method" not in user_supplied:  # mixes class labels, not virtual labels
        mix = {"mixup": " + MixUp", "cutmix": " + CutMix", "none": ""}[settings.mix]
    else:
        mix = {"mixup": " + i-Mix", "cutmix": " + i-Mix (CutMix)", "none": ""}[settings.mix]
    return method + mix + (" + InputMix" if settings.input_mix else "")


def differences(descriptions: Sequence[dict[str, Any]]) -> list[str]:
    """Names of the settings that are not the same in all descriptions."""
    names = dict.fromkeys(name for description in descriptions for name in description)
    return [name for name in names if any(other.get(name) != descriptions[0].get(name) for other in descriptions)]


def _results_by_column(runs: Sequence[Run]) -> list[dict[str, Result]]:
    """The latest results of each run, by column name; only comparable results get the same column name.

    If results with the same name used different hyperparameters, their column names state those hyperparameters.
    """
    results = [[result for result in run.evaluations if _has_column(result)] for run in runs]
    all_results = [result for run_results in results for result in run_results]
    used = [path for result in all_results for path in (result.data, result.split.test_file) if path]
    paths = _short_paths([*(run.config.data.name for run in runs), *used])
    variants: dict[str, list[dict[str, Any]]] = {}
    for result in all_results:
        variants.setdefault(_column_name(result, runs, paths), []).append(_protocol_settings(result))

    def column(result: Result) -> str:
        name, used = _column_name(result, runs, paths), _protocol_settings(result)
        differing = [key for key in differences(variants[name]) if key in used]
        settings = [f"{key} {format_setting(used[key])}" for key in differing]
        return ", ".join([name, *settings]) + (
            "" if result.representation == "features" else f" ({result.representation})"
        )

    return [{column(result): result for result in run_results} for run_results in results]


def _has_column(result: Result) -> bool:
    """Whether a result is shown in the table: those with all labels, except the most frequent class, which is a row."""
    return result.labels_per_class is None and result.protocol not in ("majority", "no labels")


def _column_name(result: Result, runs: Sequence[Run], paths: Mapping[str, str]) -> str:
    """The protocol, plus the data, label and test file unless all runs were trained with them."""
    test_file = result.split.test_file
    name = result.protocol
    if result.random_crops:
        name += ", random crops"
    if {run.config.data.name for run in runs} != {result.data}:
        name += f" on {paths[result.data]}"
    if result.restandardized:
        name += ", restandardized"
    if result.label is not None and {run.data_settings.label for run in runs} != {result.label}:
        name += f", label {result.label}"
    if test_file is not None and {run.data_settings.test for run in runs} != {test_file}:
        name += f", tested on {paths[test_file]}"
    return name


def _protocol_settings(result: Result) -> dict[str, Any]:
    """The hyperparameters that must be equal for results to be comparable."""
    return {name: value for name, value in result.hyperparameters.items() if name not in IRRELEVANT_HYPERPARAMETERS}


def evaluate_if_needed(run: Run) -> None:
    """Evaluate a run that has no results yet, if its data can be loaded and has labels."""
    if run.path is None or any(result.representation == "features" for result in run.evaluations):
        return
    try:
        print_message(*str(evaluate(run, labels_per_class=(), trees=False)).split("\n"))
    except InputError as error:
        print_message(f"{run.path} was not evaluated: {error}. To include results, run imix evaluate first")
