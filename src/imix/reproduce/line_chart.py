"""A figure of the paper as an SVG line chart: accuracy over a logarithmic x axis."""

import html
import math
from collections.abc import Sequence

from imix.reproduce.ambiguities import Ambiguities
from imix.reproduce.experiment import Cell, Experiment
from imix.reproduce.results import ResultRow, summarize

WIDTH, HEIGHT, MARGIN = 480, 340, 52  # of a panel, without its legend
LEGEND_LINE = 20
COLORS = ("#d1495b", "#00798c", "#edae49", "#5e4fa2")
Lines = dict[tuple[str, str], list[tuple[float, float]]]  # (row, column) -> points


def draw_line_chart(
    experiment: Experiment, cells: Sequence[Cell], results: Sequence[ResultRow], seeds: int, ambiguities: Ambiguities
) -> str:
    """An SVG with one panel per data set and one line per row and column."""
    panels: dict[str, Lines] = {}
    for cell in cells:
        summary = summarize(cell, results, seeds, ambiguities)
        if summary and cell.x is not None:
            dataset, *rest = cell.row.split(", ")
            points = panels.setdefault(dataset, {}).setdefault((", ".join(rest), cell.column), [])
            points.append((cell.x, summary.mean))
    height = HEIGHT + max((LEGEND_LINE * len(lines) for lines in panels.values()), default=0)
    width = WIDTH * max(1, len(panels))
    content = "".join(
        f'<g transform="translate({WIDTH * i} 0)">{_panel(dataset, experiment.axis or "", lines)}</g>'
        for i, (dataset, lines) in enumerate(panels.items())
    )
    content = content or '<text x="20" y="30">no results yet</text>'
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">{content}</svg>\n'


def _panel(title: str, axis: str, lines: Lines) -> str:
    """One color per row; lines without mixing are dashed."""
    points = [point for line in lines.values() for point in line]
    (left, right), (low, high) = ((min(values), max(values)) for values in zip(*points, strict=True))
    step = next(step for step in (1, 2, 5, 10, 20) if high - low < 5 * step or step == 20)
    low, high = step * math.floor(low / step), step * (math.floor(high / step) + 1)

    def to_x(x: float) -> float:
        fraction = 0.5 if left == right else math.log(x / left) / math.log(right / left)
        return MARGIN + fraction * (WIDTH - 2 * MARGIN)

    def to_y(y: float) -> float:
        return HEIGHT - MARGIN - (y - low) / (high - low) * (HEIGHT - 2 * MARGIN)

    svg = f'<text x="{WIDTH / 2}" y="28" text-anchor="middle" font-weight="bold">{html.escape(title)}</text>'
    svg += f'<text x="{WIDTH / 2}" y="{HEIGHT - 12}" text-anchor="middle">{html.escape(axis)}</text>'
    for x in sorted({x for x, _ in points}):
        svg += f'<text x="{to_x(x):.1f}" y="{HEIGHT - MARGIN + 18}" text-anchor="middle">{x:g}</text>'
    for y in range(low, high + 1, step):
        svg += f'<line x1="{MARGIN}" x2="{WIDTH - MARGIN}" y1="{to_y(y):.1f}" y2="{to_y(y):.1f}" stroke="#e1e4ec"/>'
        svg += f'<text x="{MARGIN - 8}" y="{to_y(y) + 4:.1f}" text-anchor="end">{y:g}</text>'
    rows = list(dict.fromkeys(row for row, _ in lines))
    for i, ((row, column), line) in enumerate(lines.items()):
        color = COLORS[rows.index(row) % len(COLORS)]
        mixed = "+" in column
        stroke = f'stroke="{color}" stroke-width="2"'
        dot = f'r="4" fill="{color if mixed else "white"}" {stroke}'
        stroke += "" if mixed else ' stroke-dasharray="5 4"'
        path = " ".join(f"{to_x(x):.1f},{to_y(y):.1f}" for x, y in sorted(line))
        svg += f'<polyline points="{path}" fill="none" {stroke}/>'
        svg += "".join(f'<circle cx="{to_x(x):.1f}" cy="{to_y(y):.1f}" {dot}/>' for x, y in line)
        legend_y = HEIGHT + LEGEND_LINE * i + 4
        svg += f'<line x1="{MARGIN}" x2="{MARGIN + 30}" y1="{legend_y}" y2="{legend_y}" {stroke}/>'
        svg += f'<circle cx="{MARGIN + 15}" cy="{legend_y}" {dot}/>'
        label = ", ".join(filter(None, (row, column)))
        svg += f'<text x="{MARGIN + 40}" y="{legend_y + 4}">{html.escape(label)}</text>'
    return svg
