"""A figure of the paper as an SVG: accuracy as lines along an axis."""

import html
import math
from collections.abc import Sequence

from imix.paper.experiment import Cell, Experiment
from imix.paper.results import Found, ours
from imix.paper.switches import Switches

WIDTH, HEIGHT, MARGIN = 480, 340, 52  # of a panel
COLOURS = ("#d1495b", "#00798c", "#edae49", "#5e4fa2")
Lines = dict[tuple[str, str], list[tuple[float, float]]]  # by row and column


def picture(
    experiment: Experiment, cells: Sequence[Cell], lines: Sequence[Found], seeds: int, switches: Switches
) -> str:
    """Accuracy along the axis, a panel for each data set: an SVG."""
    panels: dict[str, Lines] = {}
    for cell in cells:
        found = ours(cell, lines, seeds, switches)
        if found and cell.x is not None:
            name, *rest = cell.row.split(", ")
            line = panels.setdefault(name, {}).setdefault((", ".join(rest), cell.column), [])
            line.append((cell.x, found.mean))
    height = HEIGHT + max((20 * len(panel) for panel in panels.values()), default=0)
    width = WIDTH * max(1, len(panels))
    drawn = "".join(
        f'<g transform="translate({WIDTH * at} 0)">{_panel(name, experiment.axis or "", panel)}</g>'
        for at, (name, panel) in enumerate(panels.items())
    )
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    drawn = drawn or '<text x="20" y="30">nothing has been run yet</text>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">{drawn}</svg>\n'


def _panel(name: str, axis: str, points: Lines) -> str:
    """A line for each row and column, dashed without mixing."""
    places = [place for line in points.values() for place in line]
    (left, right), (low, high) = ((min(at), max(at)) for at in zip(*places, strict=True))
    step = next(step for step in (1, 2, 5, 10, 20) if high - low < 5 * step or step == 20)
    low, high = step * math.floor(low / step), step * (math.floor(high / step) + 1)

    def across(x: float) -> float:
        share = 0.5 if left == right else math.log(x / left) / math.log(right / left)
        return MARGIN + share * (WIDTH - 2 * MARGIN)

    def down(y: float) -> float:
        return HEIGHT - MARGIN - (y - low) / (high - low) * (HEIGHT - 2 * MARGIN)

    drawn = f'<text x="{WIDTH / 2}" y="28" text-anchor="middle" font-weight="bold">{html.escape(name)}</text>'
    drawn += f'<text x="{WIDTH / 2}" y="{HEIGHT - 12}" text-anchor="middle">{html.escape(axis)}</text>'
    for x in sorted({x for x, _ in places}):
        drawn += f'<text x="{across(x):.1f}" y="{HEIGHT - MARGIN + 18}" text-anchor="middle">{x:g}</text>'
    for y in range(low, high + 1, step):
        drawn += f'<line x1="{MARGIN}" x2="{WIDTH - MARGIN}" y1="{down(y):.1f}" y2="{down(y):.1f}" stroke="#e1e4ec"/>'
        drawn += f'<text x="{MARGIN - 8}" y="{down(y) + 4:.1f}" text-anchor="end">{y:g}</text>'
    rows = list(dict.fromkeys(row for row, _ in points))
    for at, ((row, column), line) in enumerate(points.items()):
        colour = COLOURS[rows.index(row) % len(COLOURS)]
        mixed = "+" in column
        stroke = f'stroke="{colour}" stroke-width="2"'
        dot = f'r="4" fill="{colour if mixed else "white"}" {stroke}'
        stroke += "" if mixed else ' stroke-dasharray="5 4"'
        path = " ".join(f"{across(x):.1f},{down(y):.1f}" for x, y in sorted(line))
        drawn += f'<polyline points="{path}" fill="none" {stroke}/>'
        drawn += "".join(f'<circle cx="{across(x):.1f}" cy="{down(y):.1f}" {dot}/>' for x, y in line)
        y = HEIGHT + 20 * at + 4
        drawn += f'<line x1="{MARGIN}" x2="{MARGIN + 30}" y1="{y}" y2="{y}" {stroke}/>'
        drawn += f'<circle cx="{MARGIN + 15}" cy="{y}" {dot}/>'
        label = ", ".join(filter(None, (row, column)))
        drawn += f'<text x="{MARGIN + 40}" y="{y + 4}">{html.escape(label)}</text>'
    return drawn
