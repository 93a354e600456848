"""report.html: everything the page shows is gathered here, as JSON; page.js draws it, page.css dresses it."""

import html
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from imix.errors import InputError
from imix.evaluation import embed
from imix.evaluation.reading import load_for
from imix.files import writable, write_text
from imix.reports.arms import Arm, differences, evaluate_if_need_be, group, in_words, told
from imix.reports.baselines import set_apart
from imix.reports.maps import COLOURS, neighbours, places
from imix.reports.samples import choose, show
from imix.run import Run, as_run

CURVES = {
    "loss": "loss",
    "knn": "nearest neighbours' accuracy",
    "nearest": "nearest of the batch is of the same class",
    "rank": "effective rank of features",
    "alignment": "alignment of views (low is close)",
    "uniformity": "uniformity (low is spread out)",
}
ARMS = ("#8a8f98", "#d1495b", "#00798c", "#edae49", "#66a182", "#5e4fa2", "#c76f9b", "#7a5c3e")
MOST_POINTS = 600  # of a curve
MOST_MAPS = 6


def write_report(
    path: Path, title: str, arms: list[Arm], baselines: list[Arm], note: str, command: str, samples: int = 2000
) -> Path:
    """Write the page: results with baselines below the arms, curves, maps of features, confusions, settings."""
    from plotly.offline import get_plotlyjs

    arms, found = set_apart(arms)
    baselines = [*baselines, *found]
    maps, shown = _maps(arms, samples)
    content = {
        "colours": ARMS,
        "classColours": COLOURS,
        "arms": [arm.name for arm in arms],
        "curves": _curves(arms),
        "maps": maps,
        "samples": shown,
        "confusions": _confusions(arms, shown),
    }
    parts = files("imix.reports")
    page = (parts / "page.html").read_text(encoding="utf-8")
    for name, text in {
        "title": html.escape(title),
        "style": (parts / "page.css").read_text(encoding="utf-8"),
        "plotly": get_plotlyjs(),
        "script": (parts / "page.js").read_text(encoding="utf-8"),
        "table": _table(arms, baselines),
        "note": html.escape(note),
        "constants": _constants(arms),
        "settings": _settings(arms),
        "command": html.escape(command),
        "content": json.dumps(content).replace("<", "\\u003c"),  # no name can end the script element, or begin another
    }.items():
        page = page.replace(f"<!--{name}-->", text)
    write_text(path, page)
    return path


def _table(arms: list[Arm], baselines: list[Arm]) -> str:
    """Results: a row for each arm, a column for each protocol; the best arm of a column stands out."""
    protocols = list(dict.fromkeys(protocol for arm in arms for protocol in arm.results))
    if not protocols:
        return "<p>Not evaluated yet: <code>imix evaluate RUN</code>.</p>"
    distances = {name for arm in arms for name, results in arm.results.items() if results[0].is_distance}
    means = {protocol: [_mean(arm, protocol) for arm in arms] for protocol in protocols}
    rows = ""
    for arm in (*arms, *baselines):
        cells = ""
        for protocol in protocols:
            known = [mean for mean in means[protocol] if mean is not None]
            best = min(known) if protocol in distances else max(known)
            stands_out = len(known) > 1 and arm not in baselines and _mean(arm, protocol) == best
            kind = ' class="best"' if stands_out else ""
            cells += f"<td{kind}>{arm.shown(protocol)}</td>"
        rows += f"<tr><th>{html.escape(arm.name)}</th>{cells}</tr>"
    units = [f"{html.escape(name)} ({'10<sup>−4</sup>' if name in distances else '%'})" for name in protocols]
    head = "".join(f"<th>{unit}</th>" for unit in units)
    return f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _mean(arm: Arm, protocol: str) -> float | None:
    results = arm.results.get(protocol)
    return statistics.mean(result.value for result in results) if results else None


def _constants(arms: list[Arm]) -> str:
    """Every constant behind every number."""
    lines = []
    for protocol in dict.fromkeys(protocol for arm in arms for protocol in arm.results):
        result = next(arm.results[protocol][0] for arm in arms if arm.results.get(protocol))
        constants = ", ".join(f"{name} {value}" for name, value in result.constants.items() if name != "seed")
        lines.append(html.escape(f"{protocol}: {constants}"))
    seeds = max((len(arm.runs) for arm in arms), default=1)
    spread = f"Mean ± standard deviation over {seeds} seeds. " if seeds > 1 else ""
    return f"{spread}{'; '.join(lines)}."


def _settings(arms: list[Arm]) -> str:
    """Where the runs of arms are, what differs between them, settings, data or encoder, then what they share."""
    arms = [arm for arm in arms if arm.runs]
    if not arms:
        return ""
    columns = [told(arm.runs[0]) for arm in arms]
    differing = differences(columns)
    rows = {
        name: [html.escape(in_words(name, one.get(name)).removeprefix(f"{name} ")) for one in columns]
        for name in differing
    }
    if sum(len(arm.runs) for arm in arms) > 1:
        paths = [[str(run.path) for run in arm.runs if run.path is not None] for arm in arms]
        rows = {"run folder": ["<br>".join(map(html.escape, several)) for several in paths]} | rows
    lines = "".join(
        f"<tr><th>{html.escape(name)}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
        for name, cells in rows.items()
    )
    head = "".join(f"<th>{html.escape(arm.name)}</th>" for arm in arms)
    table = f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{lines}</tbody></table>" if rows else ""
    first = arms[0].runs[0].config["settings"] | columns[0]
    shared = ", ".join(in_words(name, value) for name, value in first.items() if name not in [*differing, "seed"])
    versions = ", ".join(f"{name} {value}" for name, value in arms[0].runs[0].config.get("versions", {}).items())
    rest = f"{'Shared: ' if differing else ''}{shared}. Versions: {versions}"
    return f"{table}<details><summary>All settings</summary><p>{html.escape(rest)}</p></details>"


def _curves(arms: list[Arm]) -> list[dict[str, Any]]:
    """For each thing that was measured along the way, a line for each run."""
    found = []
    for key, title in CURVES.items():
        lines = []
        for at, arm in enumerate(arms):
            for run in arm.runs:
                records = [record for record in run.metrics if key in record]
                records = records[:: max(1, len(records) // MOST_POINTS)]
                if records:
                    epochs = [round(_epoch(record, run), 3) for record in records]
                    lines.append({"arm": at, "x": epochs, "y": [float(f"{r[key]:.5g}") for r in records]})
        if lines:
            found.append({"key": key, "title": title, "lines": lines})
    return found


def _epoch(record: dict[str, Any], run: Run) -> float:
    last = run.metrics[-1]
    return record["step"] * last["epoch"] / last["step"]


def _maps(arms: list[Arm], most: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """A map of the first run of each arm, and the samples they show, once for maps that show the same."""
    maps: list[dict[str, Any]] = []
    samples: dict[str, Any] = {}
    keys: dict[str, str] = {}
    for at, arm in enumerate(arms[:MOST_MAPS]):
        if not arm.runs:
            continue
        run = arm.runs[0]
        name = run.config["data"]["name"]
        try:
            data = load_for(run, name)
        except (InputError, OSError) as error:
            print(f"no map of {arm.name}: {error}", file=sys.stderr)
            continue
        chosen = choose(data, most)
        read = replace(data.reading, standardise="train")  # which no sample shows but in its table's numbers
        same = repr((name, read, run.config["data"].get("table"), chosen.part, len(chosen.source)))
        key = keys.setdefault(same, f"{len(samples) + 1}: {name}" if name in samples else name)
        if key not in samples:
            samples[key] = show(run, data, chosen)
        features = embed(run, chosen.taken)
        where = places(features)
        print(f"map of {arm.name}: {len(features):,} samples", file=sys.stderr, flush=True)
        maps.append(
            {
                "arm": at,
                "samples": key,
                "x": [round(x, 4) for x in where[:, 0].tolist()],
                "y": [round(y, 4) for y in where[:, 1].tolist()],
                "near": neighbours(features).tolist(),
            }
        )
    return maps, samples


def _confusions(arms: list[Arm], samples: dict[str, Any]) -> list[dict[str, Any]]:
    """What the linear classifier of each arm's first run took for what.

    Classes have the names that came with the result, or those of a map of the same data, or numbers.
    """
    named = {(shown["data"], shown["label"]): shown["classes"] for shown in samples.values()}
    found = []
    for at, arm in enumerate(arms):
        for protocol, results in arm.results.items():
            result = results[0]
            counts = result.details.get("confusion") if protocol.startswith("linear") else None
            if counts:
                seen = named.get((result.data, result.constants.get("label", arm.runs[0].reading.label)), [])
                numbers = [str(number) for number in range(len(counts))]
                known = (result.details.get("classes", []), seen, numbers)
                classes = next(names for names in known if len(names) == len(counts))
                found.append({"arm": at, "protocol": protocol, "classes": classes, "counts": counts})
    return found


def report(
    runs: "Sequence[Run | str | Path] | Run | str | Path", out: "str | Path | None" = None, *, samples: int = 2000
) -> Path:
    """Write a page about runs, or one: settings that differ, curves, results, maps of their features, confusions.

    Runs that differ in their seed alone are put together; of several, those that are not finished are left out. A run
    that was not evaluated yet is, where its data has labels. The maps show up to that many `samples`. Unless said, the
    page is report.html: in the folder of the run, if there is but one, or else where one is.
    """
    runs = [runs] if isinstance(runs, Run | str | Path) else runs
    if not runs:
        raise InputError("a report needs at least one run")
    if samples < 10:
        raise InputError(f"a map needs at least 10 samples; got {samples}")
    loaded = [as_run(run) for run in _finished(runs)]
    home = loaded[0].path if len(loaded) == 1 else None
    out = Path("report.html" if home is None else home / "report.html") if out is None else Path(out)
    writable(out, (".html", ".htm"), "a report")
    for run in loaded:
        evaluate_if_need_be(run)
    arms = group(loaded)
    first, *others = {Path(run.config["data"]["name"]) for run in loaded}
    if others:
        title = f"{len(loaded)} runs on {1 + len(others)} data sets"
    else:
        title = f"{arms[0].name} on {first.name}" if len(arms) == 1 else f"{len(arms)} ways to learn {first.name}"
    given = " ".join(str(run.path) for run in loaded if run.path is not None)
    return write_report(out, title, arms, [], "", f"imix report {given}", samples)


def _finished(runs: "Sequence[Run | str | Path]") -> "list[Run | str | Path]":
    """Those runs that have their encoder, if any do; the others are named."""
    unfinished = [
        run
        for run in runs
        if not isinstance(run, Run)
        and (Path(run) / "config.json").is_file()
        and not (Path(run) / "encoder.safetensors").is_file()
    ]
    if len(unfinished) == len(runs):
        return list(runs)  # which is refused by name
    for run in unfinished:
        print(f"{run} is not finished, and left out", file=sys.stderr)
    return [run for run in runs if run not in unfinished]
