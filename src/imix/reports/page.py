"""report.html: everything the page shows is gathered here, as JSON; page.js draws it, page.css dresses it."""

import html
import json
import statistics
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

from imix.data import Data
from imix.errors import InputError
from imix.evaluation import embed
from imix.evaluation.vectors import load_for
from imix.files import write_text
from imix.reports.arms import Arm, differences
from imix.reports.maps import COLOURS, neighbours, places
from imix.reports.samples import choose, show
from imix.run import Run

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

    maps, shown = _maps(arms, samples)
    content = {
        "colours": ARMS,
        "classColours": COLOURS,
        "arms": [arm.name for arm in arms],
        "curves": _curves(arms),
        "maps": maps,
        "samples": shown,
        "confusions": _confusions(arms),
    }
    parts = files("imix.reports")
    page = (parts / "page.html").read_text()
    for name, text in {
        "title": html.escape(title),
        "style": (parts / "page.css").read_text(),
        "plotly": get_plotlyjs(),
        "script": (parts / "page.js").read_text(),
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
    means = {protocol: [_mean(arm, protocol) for arm in arms] for protocol in protocols}
    rows = ""
    for arm in (*arms, *baselines):
        cells = ""
        for protocol in protocols:
            known = [mean for mean in means[protocol] if mean is not None]
            best = min(known) if protocol.startswith("fed") else max(known)
            stands_out = len(known) > 1 and arm not in baselines and _mean(arm, protocol) == best
            kind = ' class="best"' if stands_out else ""
            cells += f"<td{kind}>{arm.accuracy(protocol)}</td>"
        rows += f"<tr><th>{html.escape(arm.name)}</th>{cells}</tr>"
    units = [
        f"{name} (10<sup>−4</sup>)" if name.startswith("fed") else f"{html.escape(name)} (%)" for name in protocols
    ]
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
    """The settings that differ between arms, then those they share."""
    columns = [arm.runs[0].config["settings"] for arm in arms if arm.runs]
    if not columns:
        return ""
    differing = differences(columns)
    rows = "".join(
        f"<tr><th>{html.escape(name)}</th>{''.join(f'<td>{html.escape(str(c.get(name)))}</td>' for c in columns)}</tr>"
        for name in differing
    )
    head = "".join(f"<th>{html.escape(arm.name)}</th>" for arm in arms if arm.runs)
    table = f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{rows}</tbody></table>" if differing else ""
    shared = ", ".join(f"{name} {value}" for name, value in columns[0].items() if name not in [*differing, "seed"])
    versions = ", ".join(f"{name} {value}" for name, value in arms[0].runs[0].config.get("versions", {}).items())
    told = f"{'Shared: ' if differing else ''}{shared}. Versions: {versions}"
    return f"{table}<details><summary>All settings</summary><p>{html.escape(told)}</p></details>"


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
    """A map of the first run of each arm, and the samples they show, once for each data set."""
    maps: list[dict[str, Any]] = []
    samples: dict[str, Any] = {}
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
        part, rows = choose(data, most)
        if name not in samples:
            samples[name] = show(run, data, part, rows)
        features = _features(run, data, part, rows)
        where = places(features)
        print(f"map of {arm.name}: {len(rows):,} samples", file=sys.stderr, flush=True)
        maps.append(
            {
                "arm": at,
                "samples": name,
                "x": [round(x, 4) for x in where[:, 0].tolist()],
                "y": [round(y, 4) for y in where[:, 1].tolist()],
                "near": neighbours(features).tolist(),
            }
        )
    return maps, samples


def _features(run: Run, data: Data, part: str, rows: Any) -> Any:
    import torch

    source = data.train if part == "train" or data.test is None else data.test
    return embed(run, source.take(torch.from_numpy(rows)))


def _confusions(arms: list[Arm]) -> list[dict[str, Any]]:
    """What the linear classifier of each arm's first run took for what."""
    found = []
    for at, arm in enumerate(arms):
        for protocol, results in arm.results.items():
            counts = results[0].details.get("confusion") if protocol.startswith("linear") else None
            if counts:
                found.append({"arm": at, "protocol": protocol, "data": results[0].data, "counts": counts})
    return found
