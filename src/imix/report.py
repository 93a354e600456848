"""report.html: what was run, how it went and what came out, on one self-contained page that works offline."""

import html
import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from imix.evaluation import Result
from imix.run import Run
from imix.train.checkpoint import write_text

COLOURS = ("#8a8f98", "#d1495b", "#00798c", "#edae49")  # one per arm, the first for the plain method


@dataclass(frozen=True)
class Arm:
    """One side of a comparison: runs that differ in their seed, their results, and features of the first run."""

    name: str
    runs: list[Run]
    results: dict[str, list[Result]]  # by protocol, one for each run
    features: np.ndarray  # (N, F) of labelled samples, for the map
    labels: np.ndarray  # (N,)

    def accuracy(self, protocol: str) -> str:
        """Mean and standard deviation over seeds, in per cent."""
        values = [100 * result.accuracy for result in self.results[protocol]]
        deviation = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
        return f"{statistics.mean(values):.1f}{deviation}"


def write_report(path: Path, title: str, arms: list[Arm], baselines: list[Arm], note: str, command: str) -> Path:
    """Write the page: a table with baselines below the arms, loss curves, a map of each arm's features, settings."""
    from plotly.offline import get_plotlyjs

    page = _PAGE.format(
        title=html.escape(title),
        plotly=get_plotlyjs(),
        table=_table([*arms, *baselines]),
        note=html.escape(note),
        constants=_constants(arms),
        curves=_figure("curves", _curves(arms), height=360),
        maps="".join(
            f"<section><h3>{html.escape(arm.name)}</h3>{_figure(f'map-{i}', _map(arm), height=420)}</section>"
            for i, arm in enumerate(arms)
        ),
        settings=_settings(arms),
        command=html.escape(command),
    )
    write_text(path, page)
    return path


def _table(arms: list[Arm]) -> str:
    protocols = list(arms[0].results)
    head = "".join(f"<th>{html.escape(protocol)}</th>" for protocol in protocols)
    rows = "".join(
        f"<tr><th>{html.escape(arm.name)}</th>" + "".join(f"<td>{arm.accuracy(p)}</td>" for p in protocols) + "</tr>"
        for arm in arms
    )
    return f"<table><thead><tr><th>test accuracy, %</th>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _constants(arms: list[Arm]) -> str:
    """Every constant behind every number."""
    lines = []
    for protocol, results in arms[0].results.items():
        constants = ", ".join(f"{name} {value}" for name, value in results[0].constants.items() if name != "seed")
        lines.append(f"{html.escape(protocol)}: {html.escape(constants)}")
    return f"Mean ± standard deviation over {len(arms[0].runs)} seeds. " + "; ".join(lines) + "."


def _curves(arms: list[Arm]) -> dict[str, Any]:
    traces = [
        {
            "x": [record["step"] for record in run.metrics],
            "y": [round(record["loss"], 4) for record in run.metrics],
            "name": arm.name,
            "legendgroup": arm.name,
            "showlegend": index == 0,
            "mode": "lines",
            "line": {"color": colour, "width": 1.5},
        }
        for arm, colour in zip(arms, COLOURS, strict=False)
        for index, run in enumerate(arm.runs)
    ]
    return {"data": traces, "layout": {"xaxis": {"title": {"text": "step"}}, "yaxis": {"title": {"text": "loss"}}}}


def _map(arm: Arm) -> dict[str, Any]:
    from sklearn.manifold import TSNE

    places = TSNE(init="pca", perplexity=min(30, (len(arm.features) - 1) / 3), random_state=0).fit_transform(
        arm.features
    )
    traces = [
        {
            "x": places[arm.labels == label, 0].round(2).tolist(),
            "y": places[arm.labels == label, 1].round(2).tolist(),
            "name": str(label),
            "hovertemplate": f"class {label}<extra></extra>",
            "type": "scatter",
            "mode": "markers",
            "marker": {"size": 6},
        }
        for label in np.unique(arm.labels)
    ]
    hidden = {"visible": False}
    return {"data": traces, "layout": {"xaxis": hidden, "yaxis": hidden}}


def _figure(name: str, figure: dict[str, Any], height: int) -> str:
    # "</" could end the script element early; JSON allows the escape.
    data = json.dumps(figure).replace("</", "<\\/")
    return f'<div id="{name}" style="height:{height}px"></div><script>draw("{name}", {data})</script>'


def _settings(arms: list[Arm]) -> str:
    """The settings that differ between arms, then those they share."""
    columns = [run.runs[0].config["settings"] for run in arms]
    differing = [name for name in columns[0] if any(column[name] != columns[0][name] for column in columns)]
    shared = ", ".join(f"{name} {columns[0][name]}" for name in columns[0] if name not in [*differing, "seed"])
    rows = [f"{arm.name}: " + ", ".join(f"{n} {c[n]}" for n in differing) for arm, c in zip(arms, columns, strict=True)]
    return "".join(f"<p>{html.escape(row)}</p>" for row in rows) + f"<p>Shared: {html.escape(shared)}</p>"


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --text: #1d2330; --faint: #667; --rule: #dde; --page: #fff; }}
@media (prefers-color-scheme: dark) {{ :root {{ --text: #e6e8ee; --faint: #99a; --rule: #334; --page: #14161c; }} }}
body {{ font: 16px/1.5 system-ui, sans-serif; color: var(--text); background: var(--page);
       max-width: 1080px; margin: 2rem auto; padding: 0 1rem; }}
h1 {{ font-size: 1.7rem; }} h2 {{ font-size: 1.2rem; margin-top: 2rem; }} h3 {{ font-size: 1rem; margin: 0; }}
table {{ border-collapse: collapse; }} th, td {{ padding: .4rem 1.2rem .4rem 0; border-bottom: 1px solid var(--rule); }}
th {{ text-align: left; font-weight: 600; }} td {{ font-variant-numeric: tabular-nums; }}
.faint, .faint p {{ color: var(--faint); font-size: .85rem; }}
.maps {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(420px, 1fr)); gap: 1rem; }}
section {{ min-width: 0; }}
code {{ background: var(--rule); padding: .1rem .4rem; border-radius: .3rem; }}
</style>
<script>{plotly}</script>
<script>
const figures = [];
function draw(name, figure) {{ figures.push([name, figure]); }}
window.addEventListener("load", () => {{
  const style = getComputedStyle(document.documentElement);
  const [text, rule] = ["--text", "--rule"].map(name => style.getPropertyValue(name));
  for (const [name, figure] of figures) {{
    const layout = Object.assign({{margin: {{l: 50, r: 10, t: 10, b: 40}}, paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)", font: {{color: text}}}}, figure.layout);
    for (const axis of [layout.xaxis, layout.yaxis]) Object.assign(axis, {{gridcolor: rule, zerolinecolor: rule}});
    Plotly.newPlot(name, figure.data, layout, {{responsive: true, displayModeBar: false}});
  }}
}});
</script>
</head>
<body>
<h1>{title}</h1>
{table}
<p>{note}</p>
<p class="faint">{constants}</p>
<h2>Loss</h2>
<p class="faint">The losses of the two are not comparable: a mixed sample has two right answers, so its loss cannot
reach 0.</p>
{curves}
<h2>Map of the test samples</h2>
<p class="faint">t-SNE of the features of the first seed; colours are the true classes.</p>
<div class="maps">{maps}</div>
<h2>Settings</h2>
<div class="faint">{settings}<p>Made by <code>{command}</code></p></div>
</body>
</html>
"""
