"""A figure of the paper as a line chart: accuracy over a logarithmic x axis."""

from collections.abc import Sequence
from pathlib import Path

from imix.reports.figure import figure_file
from imix.reproduce.ambiguities import Ambiguities
from imix.reproduce.experiment import Cell, Experiment
from imix.reproduce.results import ResultRow, summarize

PANEL_WIDTH, PANEL_HEIGHT = 5.0, 3.5  # in inches, without the legend
COLORS = ("#d1495b", "#00798c", "#edae49", "#5e4fa2")
Lines = dict[tuple[str, str], list[tuple[float, float]]]  # (row, column) -> points


def draw_line_chart(
    path: Path,
    experiment: Experiment,
    cells: Sequence[Cell],
    results: Sequence[ResultRow],
    seeds: int,
    ambiguities: Ambiguities,
) -> None:
    """Write a figure with one panel per data set and one line per row and column, dashed without mixing."""
    panels: dict[str, Lines] = {cell.row.split(", ")[0]: {} for cell in cells}
    for cell in cells:
        summary = summarize(cell, results, seeds, ambiguities)
        if summary and cell.x is not None:
            dataset, *rest = cell.row.split(", ")
            panels[dataset].setdefault((", ".join(rest), cell.column), []).append((cell.x, summary.mean))
    with figure_file(path, PANEL_WIDTH * len(panels), PANEL_HEIGHT) as figure:
        all_axes = figure.subplots(1, len(panels), squeeze=False)[0]
        for axes, (dataset, lines) in zip(all_axes, panels.items(), strict=True):
            rows = list(dict.fromkeys(row for row, _ in lines))
            for (row, column), points in lines.items():
                line_style, marker_color = ("-", None) if "+" in column else ("--", "white")
                axes.plot(
                    *zip(*sorted(points), strict=True),
                    color=COLORS[rows.index(row) % len(COLORS)],
                    linestyle=line_style,
                    marker="o",
                    markerfacecolor=marker_color,
                    label=", ".join(filter(None, (row, column))),
                )
            ticks = sorted({x for points in lines.values() for x, _ in points})
            axes.set_xscale("log")
            axes.set_xticks(ticks, [f"{x:g}" for x in ticks])
            axes.set_xticks([], minor=True)
            axes.set(title=dataset if lines else f"{dataset}: no results yet", xlabel=experiment.axis)
            axes.grid(axis="y", alpha=0.4)
            axes.legend(handles=axes.get_lines(), loc="upper center", bbox_to_anchor=(0.5, -0.15), frameon=False)
