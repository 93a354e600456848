"""Paper and reproduction side by side: paper.html for all tables and figures, and a Markdown file for each."""

import html
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple, get_args

from imix.files import locked, write_text
from imix.reproduce.ambiguities import Ambiguities
from imix.reproduce.experiment import Cell, Experiment
from imix.reproduce.line_chart import draw_line_chart
from imix.reproduce.requests import EXPERIMENTS, Budget, Request, default_seeds, select_cells
from imix.reproduce.results import ResultRow, read_results, rows_for_cell, summarize

TITLE = "i-Mix: paper and reproduction"
LR_CHOICE = {  # by Ambiguities.choose_on
    "test": "The linear classifier's learning rate is chosen on the test samples, as the authors did; in parentheses, "
    "on held-out training samples.",
    "held-out": "The linear classifier's learning rate is chosen on held-out training samples; in parentheses, on the "
    "test samples, as the authors did.",
}


def write_pages(out: Path, requests: Sequence[Request], budget: Budget, ambiguities: Ambiguities) -> Path:
    """Write a Markdown file per request, and paper.html, which also shows the results of earlier commands."""
    names = [request.experiment.name for request in requests]
    with locked(out):  # several commands, such as the parts of one, may finish at the same time
        sections = with_earlier_results(out, requests, budget, ambiguities)
        for request, section_budget in sections:
            if request.experiment.name in names:
                write_markdown(out, request, section_budget, ambiguities)
        return write_html(out, sections, ambiguities)


def with_earlier_results(
    out: Path, requests: Sequence[Request], budget: Budget, ambiguities: Ambiguities
) -> list[tuple[Request, Budget]]:
    """The requests, extended by the cells and experiments that have results in `out`.

    An experiment that was not requested is shown at this budget, or at another one if it has no results at this one.
    """
    by_name = {request.experiment.name: request for request in requests}
    sections = []
    for name in dict.fromkeys((*by_name, *EXPERIMENTS)):
        experiment, results = EXPERIMENTS[name], read_results(out / f"{name}.csv")
        budgets = [budget] if name in by_name else dict.fromkeys((budget, *get_args(Budget)))
        for shown_budget in budgets:
            _, requested, seeds = by_name.get(name) or Request(experiment, [], default_seeds(experiment, shown_budget))
            seeds = max([seeds, *(row.seed + 1 for row in results)])
            all_cells = select_cells(experiment, shown_budget, ambiguities)
            cells = [cell for cell in all_cells if cell in requested or rows_for_cell(results, cell, seeds)]
            if cells:
                sections.append((Request(experiment, cells, seeds), shown_budget))
                break
    return sections


class TableCell(NamedTuple):
    """The text of a table cell: our number, the paper's, their difference, and the effects of mixing in both."""

    ours: str
    paper: str = ""
    difference: str = ""
    effect: str = ""
    paper_effect: str = ""


def build_table(
    cells: Sequence[Cell], results: Sequence[ResultRow], seeds: int, ambiguities: Ambiguities
) -> tuple[list[str], dict[str, list[TableCell | None]]]:
    """The column titles, and for each row label its table cells."""
    columns = list(dict.fromkeys(cell.column for cell in cells))
    rows: dict[str, list[TableCell | None]] = {cell.label: [None] * len(columns) for cell in cells}
    by_position = {(cell.label, cell.column): cell for cell in cells}
    for cell in cells:
        plain = by_position.get((cell.label, cell.column.split(" + ")[0]), cell)
        plain_summary, summary = (summarize(c, results, seeds, ambiguities) for c in (plain, cell))
        paper, difference, effect, paper_effect = "", "", "", ""
        if cell.paper:
            paper = str(cell.paper)
            difference = f"{summary.mean - cell.paper.mean:+z.1f}" if summary else ""
        if plain_summary and summary and plain is not cell:
            effect = f"{summary.mean - plain_summary.mean:+z.1f}"
            paper_effect = f"{cell.paper.mean - plain.paper.mean:+z.1f}" if cell.paper and plain.paper else ""
        table_cell = TableCell(str(summary or "not run"), paper, difference, effect, paper_effect)
        rows[cell.label][columns.index(cell.column)] = table_cell
    return columns, rows


def _describe(
    experiment: Experiment, results: Sequence[ResultRow], cells: Sequence[Cell], seeds: int, budget: Budget
) -> str:
    """Budget, number of runs, time, machines and dates of the results."""
    budgets = {
        "paper": "the paper's full length",
        "short": f"short ({experiment.description})",
        "smoke": "smoke, fake data",
    }
    text = f"Budget: {budgets[budget]}."
    rows = [row for cell in cells for row in rows_for_cell(results, cell, seeds)]
    if rows:
        runs = {row.run: row for row in rows}
        machines = ", ".join(sorted({row.machine for row in rows}))
        dates = sorted({row.date for row in rows})
        period = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
        seconds = sum(row.seconds for row in runs.values())
        text += f" {len(runs)} runs, {seconds:,.0f} s in total on {machines}, {period}."
        text += f" Mean ± standard deviation over up to {seeds} seeds." if seeds > 1 else " One seed."
    return f"{text} {experiment.note}".strip()


def write_markdown(out: Path, request: Request, budget: Budget, ambiguities: Ambiguities) -> None:
    """Write OUT/NAME.md, and OUT/NAME.svg for a figure."""
    experiment, cells, seeds = request
    results = read_results(out / f"{experiment.name}.csv")
    parts = [f"# {experiment.name}: {experiment.title}", _describe(experiment, results, cells, seeds, budget)]
    if any(cell.measure == "map" for cell in cells):
        maps = [(cell, _map_name(cell)) for cell in cells]
        parts += [f"![{c.column}, {c.label}](maps/{name})" for c, name in maps if (out / "maps" / name).exists()]
    else:
        columns, rows = build_table(cells, results, seeds, ambiguities)
        lines = [[experiment.axis or "", *columns], ["---"] * (1 + len(columns))]
        for label, row in rows.items():
            lines.append([label, *("" if cell is None else _markdown_cell(cell) for cell in row)])
        parts.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
        parts.append(LR_CHOICE[ambiguities.choose_on])
    if experiment.axis:
        write_text(out / f"{experiment.name}.svg", draw_line_chart(experiment, cells, results, seeds, ambiguities))
        parts.append(f"![{experiment.title}]({experiment.name}.svg)")
    write_text(out / f"{experiment.name}.md", "\n\n".join(parts) + "\n")


def _comparison(cell: TableCell) -> list[str]:
    """The lines below a number: the paper's number, and the effect of mixing."""
    paper = [f"paper {cell.paper}", cell.difference] if cell.paper else []
    effect = (
        [f"effect of mixing {cell.effect}", cell.paper_effect and f"paper {cell.paper_effect}"] if cell.effect else []
    )
    return [", ".join(filter(None, parts)) for parts in (paper, effect) if parts]


def _markdown_cell(cell: TableCell) -> str:
    return "<br>".join([f"**{cell.ours}**", *_comparison(cell)])


def _map_name(cell: Cell) -> str:
    return f"{cell.training.name(0)}-{cell.eval_data}.svg"


def write_html(out: Path, sections: Sequence[tuple[Request, Budget]], ambiguities: Ambiguities) -> Path:
    """Write OUT/paper.html, a single file that works offline."""
    body = "".join(_section(out, request, budget, ambiguities) for request, budget in sections)
    style = (files("imix.reports") / "page.css").read_text(encoding="utf-8") + EXTRA_STYLE
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{TITLE}</title><style>{style}</style></head><body>"
        f"<header><h1>{TITLE}</h1><p class=faint>{LR_CHOICE[ambiguities.choose_on]}</p></header>"
        f"<main>{body}</main></body></html>\n"
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


def _section(out: Path, request: Request, budget: Budget, ambiguities: Ambiguities) -> str:
    experiment, cells, seeds = request
    results = read_results(out / f"{experiment.name}.csv")
    description = html.escape(_describe(experiment, results, cells, seeds, budget))
    if any(cell.measure == "map" for cell in cells):
        body = '<div class="grid two">' + "".join(_html_map(out, cell) for cell in cells) + "</div>"
    else:
        columns, rows = build_table(cells, results, seeds, ambiguities)
        head = "".join(f"<th>{html.escape(column)}</th>" for column in (experiment.axis or "", *columns))
        table_rows = "".join(
            f"<tr><th>{html.escape(label)}</th>{''.join(_html_cell(cell) for cell in row)}</tr>"
            for label, row in rows.items()
        )
        body = f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{table_rows}</tbody></table></div>'
    if experiment.axis:
        body += f'<div class="figure">{draw_line_chart(experiment, cells, results, seeds, ambiguities)}</div>'
    title = f"{experiment.name}: {html.escape(experiment.title)}"
    return f"<section><h2>{title}</h2><p class=faint>{description}</p>{body}</section>"


def _html_cell(cell: TableCell | None) -> str:
    if cell is None:
        return "<td></td>"
    kind = "none" if cell.ours == "not run" else "ours"
    lines = "".join(f'<span class="paper">{line}</span>' for line in _comparison(cell))
    return f'<td><span class="{kind}">{cell.ours}</span>{lines}</td>'


def _html_map(out: Path, cell: Cell) -> str:
    path = out / "maps" / _map_name(cell)
    svg = path.read_text(encoding="utf-8") if path.exists() else "<p class=faint>not run</p>"
    return f"<div><h3>{html.escape(f'{cell.column}, {cell.label}')}</h3>{svg}</div>"
