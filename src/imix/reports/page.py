"""The content of report.html; page.html is its template, and page.js draws the plots."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from imix.errors import InputError
from imix.files import write_text
from imix.output import print_message
from imix.probes.embed import encode_source
from imix.probes.run_data import load_for_run
from imix.reports.answers import answer_sections
from imix.reports.baselines import split_baselines
from imix.reports.groups import (
    DERIVED_SETTINGS,
    INPUTS_SUFFIX,
    RunGroup,
    differences,
    format_setting,
    run_description,
)
from imix.reports.maps import COLORS, DARK_COLORS, nearest_neighbors, project_2d
from imix.reports.samples import sample_content, select_samples

CURVES = {  # metric -> title of its plot
    "loss": "Training loss",
    "knn": "kNN accuracy",
    "batch_1nn": "1-NN accuracy in the batch",
    "effective_rank": "Effective rank of the features",
    "alignment": "Alignment (lower: views of a sample are closer)",
    "uniformity": "Uniformity (lower: samples are more spread out)",
}
PROTOCOLS = {  # protocol -> what its number means
    "linear": "test accuracy of L2-regularized logistic regression on the frozen features",
    "linear-paper": "test accuracy of a linear classifier trained by SGD on the frozen features, as in the paper",
    "trees": "test accuracy of gradient boosting or extremely randomized trees",
    "knn": "test accuracy of k-nearest-neighbor classification on the frozen features",
    "pinv": "test accuracy of a linear classifier fitted with the pseudoinverse of the frozen features",
    "fed": "Fréchet distance between the features of training and test samples (lower is better)",
    "finetune": "test accuracy of the encoder fine-tuned with the labels of the training samples",
    "detection": "average precision of an object detector fine-tuned from the encoder",
}
BASELINES = {  # name of a row -> what its numbers are
    "inputs": "the same classifier on the preprocessed inputs of the encoder",
    "most frequent class": "the accuracy of always predicting this class",
}
MAX_POINTS = 600  # per curve
MAX_MAPS = 6


def write_report(
    path: Path,
    title: str,
    groups: list[RunGroup],
    note: str,
    command: str,
    samples: int = 2000,
    reload_seconds: int = 0,
) -> Path:
    """Write a report of groups of runs; `imix.report` does this for a list of runs.

    Parameters
    ----------
    path : Path
        File to write.
    title : str
        Heading of the page.
    groups : list of RunGroup
        Groups to compare, in the order of the results table. At least one must have runs; groups without runs appear
        in this table only. The best result of each column is highlighted.
    note : str
        Text below the results table.
    command : str
        The command that creates this report, shown at the end of the page.
    samples : int
        Maximum number of samples in an embedding map.
    reload_seconds : int
        The open page reloads itself after this time. 0 disables it.

    Returns
    -------
    Path
        The file that was written.
    """
    import jinja2
    from plotly.offline import get_plotlyjs

    groups, baselines = split_baselines(groups)
    results = _results_table(groups, baselines)
    groups = [group for group in groups if group.runs]
    maps, map_samples = _maps(groups, samples)
    answers, answer_samples = answer_sections(groups[:MAX_MAPS])
    content = {
        "colors": {"light": COLORS, "dark": DARK_COLORS},
        "groups": [group.name for group in groups],
        "curves": _curves(groups),
        "maps": maps,
        "samples": map_samples | answer_samples,
        "answers": answers,
        "confusionMatrices": _confusion_matrices(groups, map_samples),
    }
    template, style, script = (
        (files("imix.reports") / name).read_text(encoding="utf-8") for name in ("page.html", "page.css", "page.js")
    )
    page = jinja2.Template(template, autoescape=True).render(
        title=title,
        style=style,
        plotly=get_plotlyjs(),
        script=script,
        results=results,
        note=note,
        evaluation_settings=_evaluation_settings(groups),
        settings=_settings(groups),
        command=command,
        content=content,
        reload_seconds=reload_seconds,
    )
    write_text(path, page)
    return path


def _results_table(groups: Sequence[RunGroup], baselines: Sequence[RunGroup]) -> dict[str, Any]:
    """A row per group and a column per protocol. Highlights a result that is better than all others."""
    columns = {column: results[0].is_distance for group in groups for column, results in group.results.items()}
    all_rows, best = [*groups, *baselines], {}
    for column, is_distance in columns.items():
        protocol = column.removesuffix(INPUTS_SUFFIX)  # results of the inputs have a column if they are not a row
        compared = (protocol, protocol + INPUTS_SUFFIX)
        means = [statistics.mean(row.values(name)) for row in all_rows for name in compared if name in row.results]
        best_mean = min(means) if is_distance else max(means)
        if sum(column in group.results for group in groups) > 1 and means.count(best_mean) == 1:
            best[column] = best_mean
    protocols = [result.protocol for group in groups for results in group.results.values() for result in results]
    names = dict.fromkeys([*protocols, *(row.name for row in baselines)])
    return {
        "columns": columns,
        "rows": [(row.name, [_cell(row, column, best) for column in columns]) for row in all_rows],
        "n_groups": len(groups),
        "meanings": {name: (PROTOCOLS | BASELINES)[name] for name in names if name in PROTOCOLS | BASELINES},
        "seeds": max(len(group.runs) for group in groups) > 1,
    }


def _cell(row: RunGroup, column: str, best: dict[str, float]) -> tuple[str, bool]:
    """The text of a cell, and whether it is the best result of its column."""
    is_best = column in best and column in row.results and statistics.mean(row.values(column)) == best[column]
    return row.formatted(column), is_best


def _evaluation_settings(groups: list[RunGroup]) -> list[str]:
    """The hyperparameters of each column of the results table."""
    lines: dict[str, str] = {}
    for group in groups:
        for column, (result, *_) in group.results.items():
            used = [f"{name} {value}" for name, value in result.hyperparameters.items() if name != "seed"]
            lines.setdefault(column, f"{column}: {', '.join([*used, *result.conditions])}")
    return list(lines.values())


def _settings(groups: list[RunGroup]) -> dict[str, Any]:
    """The table of the settings that differ between groups, and that of all others, by name with a cell per group."""
    config = groups[0].runs[0].config
    descriptions = [run_description(group.runs[0]) for group in groups]
    differing = differences(descriptions)
    main = [name for name in differing if name not in DERIVED_SETTINGS]
    rows = {name: [format_setting(description.get(name)) for description in descriptions] for name in differing}
    folders = [[str(run.path) for run in group.runs if run.path is not None] for group in groups]
    common = {name: [format_setting(value)] for name, value in (asdict(config.settings) | descriptions[0]).items()}
    others = {name: cells for name, cells in (common | rows).items() if name not in (*main, "seed") and cells != ["–"]}
    versions = ", ".join(f"{name} {value}" for name, value in config.versions.items())
    return {
        "groups": [group.name for group in groups],
        "folders": folders if sum(map(len, folders)) > 1 else [],
        "rows": {name: rows[name] for name in main},
        "others": others | {"versions": [versions]},
    }


def _curves(groups: list[RunGroup]) -> list[dict[str, Any]]:
    """For each metric that was logged during training, one line per run."""
    curves = []
    for key, title in CURVES.items():
        lines: list[dict[str, Any]] = []
        for i, group in enumerate(groups):
            for run in group.runs:
                records = [record for record in run.metrics if key in record]
                records = records[:: max(1, len(records) // MAX_POINTS)]
                if records:
                    epochs_per_step = run.metrics[-1]["epoch"] / run.metrics[-1]["step"]
                    epochs = [round(record["step"] * epochs_per_step, 3) for record in records]
                    values = [float(f"{record[key]:.5g}") for record in records]
                    lines.append({"group": i, "x": epochs, "y": values})
        if any(value != 0 for line in lines for value in line["y"]):  # without augmentation, alignment is 0
            curves.append({"key": key, "title": title, "lines": lines})
    return curves


def _maps(groups: list[RunGroup], max_samples: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """A map of the first run of each group, and the samples in the maps; maps of the same samples share them."""
    maps: list[dict[str, Any]] = []
    samples: dict[str, Any] = {}
    keys: dict[str, str] = {}
    for i, group in enumerate(groups[:MAX_MAPS]):
        run = group.runs[0]
        name = run.config.data.name
        try:
            data = load_for_run(run, name)
        except (InputError, OSError) as error:
            print_message(f"no embedding map of {group.name}: {error}")
            continue
        selection = select_samples(data, max_samples)
        settings = replace(data.settings, standardize="train")  # affects only the numbers shown for a table
        identity = repr((name, settings, run.table, selection.split, len(selection.source)))
        key = keys.setdefault(identity, f"{len(samples) + 1}: {name}" if name in samples else name)
        if key not in samples:
            samples[key] = sample_content(run, data, selection)
        features = encode_source(run, selection.take())
        points = project_2d(features)
        print_message(f"embedding map of {group.name}: {len(features):,} samples")
        maps.append(
            {
                "group": i,
                "samples": key,
                "x": [round(x, 4) for x in points[:, 0].tolist()],
                "y": [round(y, 4) for y in points[:, 1].tolist()],
                "neighbors": nearest_neighbors(features).tolist(),
            }
        )
    return maps, samples


def _confusion_matrices(groups: list[RunGroup], samples: dict[str, Any]) -> list[dict[str, Any]]:
    """Confusion matrices of the linear classifier of each group's first run.

    Class names come from the result, else from a map of the same data; without either, classes are numbered.
    """
    map_classes = {(content["data"], content["label"]): content["classes"] for content in samples.values()}
    matrices = []
    for i, group in enumerate(groups):
        for column, results in group.results.items():
            result = results[0]
            counts = result.confusion
            if not counts:
                continue
            candidates = (
                result.classes,
                map_classes.get((result.data, result.label), []),
                [str(number) for number in range(len(counts))],
            )
            classes = next(names for names in candidates if len(names) == len(counts))
            matrices.append({"group": i, "column": column, "classes": classes, "counts": counts})
    return matrices
