"""Paper and ours side by side: paper.html for all that was asked for, and Markdown for a single table or figure."""

import html
import math
import statistics
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from imix.files import write_text
from imix.paper.budget import Budget, Wanted
from imix.paper.experiment import Cell, Experiment
from imix.paper.results import Found, of_cell, read
from imix.paper.switches import Switches

WIDTH, HEIGHT, MARGIN = 480, 340, 52  # of a panel of lines
COLOURS = ("#d1495b", "#00798c", "#edae49", "#5e4fa2")
Lines = dict[tuple[str, str], list[tuple[float, float]]]  # by row and column
CHOSEN = {
    "test": "The linear classifier's rate is chosen on the test samples, as the authors did; in brackets on held-out "
    "training samples.",
    "held-out": "The linear classifier's rate is chosen on held-out training samples; in brackets on the test samples, "
    "as the authors did.",
}


class Ours(NamedTuple):
    """What was found of a cell over seeds, and the other reading of it."""

    mean: float
    spread: float | None
    other: float

    def __str__(self) -> str:
        spread = "" if self.spread is None else f" ± {self.spread:.1f}"
        other = "" if f"{self.other:.1f}" == f"{self.mean:.1f}" else f" ({self.other:.1f})"
        return f"{self.mean:.1f}{spread}{other}"


def ours(cell: Cell, lines: Sequence[Found], seeds: int, switches: Switches) -> Ours | None:
    """Mean and standard deviation of what was found; None where nothing was."""
    found = [line for line in of_cell(lines, cell, seeds) if line.value is not None]
    if not found:
        return None
    chosen = [line.value or 0.0 for line in found]
    papers = [line.paper_way or 0.0 for line in found]
    first, other = (papers, chosen) if switches.choose_on == "test" else (chosen, papers)
    spread = statistics.stdev(first) if len(first) > 1 else None
    return Ours(statistics.mean(first), spread, statistics.mean(other))


class Shown(NamedTuple):
    """A cell of a table, in words: ours, the paper's, the difference, and what mixing adds for us and in the paper."""

    ours: str
    paper: str = ""
    difference: str = ""
    gain: str = ""
    paper_gain: str = ""


def table(
    cells: Sequence[Cell], lines: Sequence[Found], seeds: int, switches: Switches
) -> tuple[list[str], dict[str, list[Shown | None]]]:
    """Columns, and for each row what stands in them."""
    columns = list(dict.fromkeys(cell.column for cell in cells))
    rows: dict[str, list[Shown | None]] = {cell.label: [None] * len(columns) for cell in cells}
    by_place = {(cell.label, cell.column): cell for cell in cells}
    for cell in cells:
        plain = by_place.get((cell.label, cell.column.split(" + ")[0]), cell)
        a, b = (ours(each, lines, seeds, switches) for each in (plain, cell))
        paper, difference, gain, paper_gain = "", "", "", ""
        if cell.paper:
            paper = str(cell.paper)
            difference = f"{b.mean - cell.paper.mean:+.1f}" if b else ""
        if a and b and plain is not cell:
            gain = f"{b.mean - a.mean:+.1f}"
            paper_gain = f"{cell.paper.mean - plain.paper.mean:+.1f}" if cell.paper and plain.paper else ""
        at = columns.index(cell.column)
        rows[cell.label][at] = Shown(str(b or "not run"), paper, difference, gain, paper_gain)
    return columns, rows


def _told(experiment: Experiment, lines: Sequence[Found], cells: Sequence[Cell], seeds: int, budget: Budget) -> str:
    """How long, on what, when."""
    length = {
        "paper": "the paper's full length",
        "short": f"short ({experiment.told})",
        "smoke": "smoke, stand-in data",
    }
    found = [line for cell in cells for line in of_cell(lines, cell, seeds)]
    runs = {line.run: line for line in found}
    machines = ", ".join(sorted({line.machine for line in found}))
    dates = sorted({line.date for line in found})
    when = "" if not dates else f", {dates[0]}" if len(dates) == 1 else f", {dates[0]} to {dates[-1]}"
    done = f" {len(runs)} runs, {sum(run.seconds for run in runs.values()):,.0f} s in all on {machines}{when}."
    many = f" Mean ± standard deviation over up to {seeds} seeds." if seeds > 1 else " One seed."
    return f"Budget: {length[budget]}.{done if runs else ''}{many if runs else ''} {experiment.note}".strip()


def write_markdown(out: Path, asked: Wanted, budget: Budget, switches: Switches) -> None:
    """OUT/NAME.md."""
    experiment, cells, seeds = asked
    lines = read(out / f"{experiment.name}.csv")
    text = [f"# {experiment.name}: {experiment.title}", _told(experiment, lines, cells, seeds, budget)]
    if any(cell.measure == "map" for cell in cells):
        text += [f"![{c.column}, {c.label}](maps/{_map(c).name})" for c in cells if (out / "maps" / _map(c)).exists()]
    else:
        columns, rows = table(cells, lines, seeds, switches)
        body = [[experiment.axis or "", *columns], ["---"] * (1 + len(columns))]
        for label, row in rows.items():
            body.append([label, *("" if each is None else _in_words(each) for each in row)])
        text.append("\n".join(f"| {' | '.join(line)} |" for line in body))
        text.append(CHOSEN[switches.choose_on])
    if experiment.axis:
        write_text(out / f"{experiment.name}.svg", picture(experiment, cells, lines, seeds, switches))
        text.append(f"![{experiment.title}]({experiment.name}.svg)")
    write_text(out / f"{experiment.name}.md", "\n\n".join(text) + "\n")


def _beside(shown: Shown) -> list[str]:
    """What stands below a number."""
    paper = ", ".join(filter(None, (f"paper {shown.paper}" if shown.paper else "", shown.difference)))
    added = ", ".join(
        filter(None, (f"by mixing {shown.gain}", f"paper {shown.paper_gain}" if shown.paper_gain else ""))
    )
    return [line for line in (paper, added if shown.gain else "") if line]


def _in_words(shown: Shown) -> str:
    return "<br>".join([f"**{shown.ours}**", *_beside(shown)])


def _map(cell: Cell) -> Path:
    return Path(f"{cell.training.name(0)}-{cell.on}.svg")


def write_page(out: Path, asked: Sequence[Wanted], budget: Budget, switches: Switches) -> Path:
    """OUT/paper.html, which holds everything and works offline."""
    sections = [_section(out, each, budget, switches) for each in asked]
    style = (files("imix.reports") / "page.css").read_text() + EXTRA_STYLE
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>i-Mix: the paper and ours</title><style>{style}</style></head><body>"
        f"<header><h1>i-Mix: the paper and ours</h1><p class=faint>{CHOSEN[switches.choose_on]}</p></header>"
        f"<main>{''.join(sections)}</main></body></html>\n"
    )
    path = out / "paper.html"
    write_text(path, page)
    return path


EXTRA_STYLE = """
header, main { max-width: 1500px; }
td .paper { display: block; color: var(--faint); font-size: .82rem; }
td .ours { font-weight: 600; }
td .none { color: var(--faint); }
.grid img, .grid svg, .figure svg { width: 100%; height: auto; background: #fff; border: 1px solid var(--rule); }
.figure { max-width: 960px; }
"""


def _section(out: Path, asked: Wanted, budget: Budget, switches: Switches) -> str:
    experiment, cells, seeds = asked
    lines = read(out / f"{experiment.name}.csv")
    told = html.escape(_told(experiment, lines, cells, seeds, budget))
    if any(cell.measure == "map" for cell in cells):
        body = '<div class="grid two">' + "".join(_framed_map(out, cell) for cell in cells) + "</div>"
    else:
        columns, rows = table(cells, lines, seeds, switches)
        head = "".join(f"<th>{html.escape(column)}</th>" for column in (experiment.axis or "", *columns))
        inner = "".join(
            f"<tr><th>{html.escape(label)}</th>{''.join(_html_cell(each) for each in row)}</tr>"
            for label, row in rows.items()
        )
        body = f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{inner}</tbody></table></div>'
    if experiment.axis:
        body += f'<div class="figure">{picture(experiment, cells, lines, seeds, switches)}</div>'
    return (
        f"<section><h2>{experiment.name}: {html.escape(experiment.title)}</h2><p class=faint>{told}</p>{body}</section>"
    )


def _html_cell(shown: Shown | None) -> str:
    if shown is None:
        return "<td></td>"
    kind = "none" if shown.ours == "not run" else "ours"
    below = "".join(f'<span class="paper">{line}</span>' for line in _beside(shown))
    return f'<td><span class="{kind}">{shown.ours}</span>{below}</td>'


def _framed_map(out: Path, cell: Cell) -> str:
    path = out / "maps" / _map(cell)
    picture = path.read_text(encoding="utf-8") if path.exists() else "<p class=faint>not run</p>"
    return f"<div><h3>{html.escape(f'{cell.column}, {cell.label}')}</h3>{picture}</div>"


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
    low, high = math.floor(low - 0.5), math.ceil(high + 0.5)

    def across(x: float) -> float:
        share = 0.5 if left == right else math.log(x / left) / math.log(right / left)
        return MARGIN + share * (WIDTH - 2 * MARGIN)

    def down(y: float) -> float:
        return HEIGHT - MARGIN - (y - low) / (high - low) * (HEIGHT - 2 * MARGIN)

    drawn = f'<text x="{WIDTH / 2}" y="28" text-anchor="middle" font-weight="bold">{html.escape(name)}</text>'
    drawn += f'<text x="{WIDTH / 2}" y="{HEIGHT - 12}" text-anchor="middle">{html.escape(axis)}</text>'
    for x in sorted({x for x, _ in places}):
        drawn += f'<text x="{across(x):.1f}" y="{HEIGHT - MARGIN + 18}" text-anchor="middle">{x:g}</text>'
    for y in (low + (high - low) * at / 4 for at in range(5)):
        drawn += f'<line x1="{MARGIN}" x2="{WIDTH - MARGIN}" y1="{down(y):.1f}" y2="{down(y):.1f}" stroke="#e1e4ec"/>'
        drawn += f'<text x="{MARGIN - 8}" y="{down(y) + 4:.1f}" text-anchor="end">{y:g}</text>'
    rows = list(dict.fromkeys(row for row, _ in points))
    for at, ((row, column), line) in enumerate(points.items()):
        colour = COLOURS[rows.index(row) % len(COLOURS)]
        stroke = f'stroke="{colour}" stroke-width="2"' + ("" if "+" in column else ' stroke-dasharray="5 4"')
        path = " ".join(f"{across(x):.1f},{down(y):.1f}" for x, y in sorted(line))
        drawn += f'<polyline points="{path}" fill="none" {stroke}/>'
        drawn += "".join(f'<circle cx="{across(x):.1f}" cy="{down(y):.1f}" r="3" fill="{colour}"/>' for x, y in line)
        y = HEIGHT + 20 * at + 4
        drawn += f'<line x1="{MARGIN}" x2="{MARGIN + 30}" y1="{y}" y2="{y}" {stroke}/>'
        label = ", ".join(filter(None, (row, column)))
        drawn += f'<text x="{MARGIN + 40}" y="{y + 4}">{html.escape(label)}</text>'
    return drawn
