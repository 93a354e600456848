"""Paper and ours side by side: paper.html for all that is known, and Markdown for a single table or figure."""

import html
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple, get_args

from imix.files import locked, write_text
from imix.paper.budget import EXPERIMENTS, Budget, Wanted, cells_of, seeds_of
from imix.paper.experiment import Cell, Experiment
from imix.paper.lines import picture
from imix.paper.results import Found, of_cell, ours, read
from imix.paper.switches import Switches

CHOSEN = {
    "test": "The linear classifier's rate is chosen on the test samples, as the authors did; in brackets on held-out "
    "training samples.",
    "held-out": "The linear classifier's rate is chosen on held-out training samples; in brackets on the test samples, "
    "as the authors did.",
}


def write_pages(out: Path, asked: Sequence[Wanted], budget: Budget, switches: Switches) -> Path:
    """Write the Markdown of what was asked for and paper.html, with what earlier commands found beside it."""
    names = [each.experiment.name for each in asked]
    with locked(out):  # commands that end together, such as shares of one, do not mix their pages
        shown = with_known(out, asked, budget, switches)
        for each, at in shown:
            if each.experiment.name in names:
                write_markdown(out, each, at, switches)
        return write_page(out, shown, switches)


def with_known(out: Path, asked: Sequence[Wanted], budget: Budget, switches: Switches) -> list[tuple[Wanted, Budget]]:
    """What was asked for, then what else is in the files of `out`.

    An experiment that was not asked for is shown at this budget, or at another if nothing is known at this one.
    """
    by_name = {each.experiment.name: each for each in asked}
    found = []
    for name in dict.fromkeys((*by_name, *EXPERIMENTS)):
        experiment, lines = EXPERIMENTS[name], read(out / f"{name}.csv")
        for at in [budget] if name in by_name else dict.fromkeys((budget, *get_args(Budget))):
            same = [line for line in lines if line.budget == at]
            _, cells, seeds = by_name.get(name) or Wanted(experiment, [], seeds_of(experiment, at))
            seeds = max([seeds, *(line.seed + 1 for line in same)])
            every = cells_of(experiment, at, switches)
            known = [cell for cell in every if cell in cells or of_cell(same, cell, seeds)]
            if known:
                found.append((Wanted(experiment, known, seeds), at))
                break
    return found


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
            difference = f"{b.mean - cell.paper.mean:+z.1f}" if b else ""
        if a and b and plain is not cell:
            gain = f"{b.mean - a.mean:+z.1f}"
            paper_gain = f"{cell.paper.mean - plain.paper.mean:+z.1f}" if cell.paper and plain.paper else ""
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


def write_page(out: Path, shown: Sequence[tuple[Wanted, Budget]], switches: Switches) -> Path:
    """OUT/paper.html, which holds everything and works offline."""
    sections = [_section(out, each, budget, switches) for each, budget in shown]
    style = (files("imix.reports") / "page.css").read_text(encoding="utf-8") + EXTRA_STYLE
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
