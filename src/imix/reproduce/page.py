"""A Markdown page per table or figure, with the paper's numbers and ours side by side."""

from collections.abc import Sequence
from pathlib import Path

from imix.files import locked, write_text
from imix.reproduce.ambiguities import Ambiguities
from imix.reproduce.experiment import Cell, Experiment
from imix.reproduce.line_chart import draw_line_chart
from imix.reproduce.requests import Budget, Request, select_cells
from imix.reproduce.results import ResultRow, read_results, rows_for_cell, summarize

LR_CHOICE = {  # by Ambiguities.choose_on
    "test": "The linear classifier's learning rate is chosen on the test samples, as the authors did; in parentheses, "
    "on held-out training samples.",
    "held-out": "The linear classifier's learning rate is chosen on held-out training samples; in parentheses, on the "
    "test samples, as the authors did.",
}


def write_pages(out: Path, requests: Sequence[Request], budget: Budget, ambiguities: Ambiguities) -> list[Path]:
    """Write OUT/NAME.md for each request, and OUT/NAME.svg for a figure; returns the Markdown files."""
    with locked(out):  # several commands, such as shards of one, may finish at the same time
        return [_write_page(out, request, budget, ambiguities) for request in requests]


def _write_page(out: Path, request: Request, budget: Budget, ambiguities: Ambiguities) -> Path:
    """Write the page of an experiment: the requested cells, and those with results of earlier commands."""
    experiment, requested, seeds = request
    results = read_results(out / f"{experiment.name}.csv")
    seeds = max([seeds, *(row.seed + 1 for row in results)])
    all_cells = select_cells(experiment, budget, ambiguities)
    cells = [cell for cell in all_cells if cell in requested or rows_for_cell(results, cell, seeds)]
    parts = [f"# {experiment.name}: {experiment.title}", _describe(experiment, results, cells, seeds, budget)]
    if any(cell.metric == "map" for cell in cells):
        maps = [(cell, f"{cell.training.name(0)}-{cell.eval_data}.svg") for cell in cells]
        parts += [f"![{c.column}, {c.label}](maps/{name})" for c, name in maps if (out / "maps" / name).exists()]
    else:
        columns, rows = build_table(cells, results, seeds, ambiguities)
        lines = [[experiment.axis or "", *columns], ["---"] * (1 + len(columns))]
        lines += [[label, *texts] for label, texts in rows.items()]
        parts.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
        parts.append(LR_CHOICE[ambiguities.choose_on])
    if experiment.axis:
        draw_line_chart(out / f"{experiment.name}.svg", experiment, cells, results, seeds, ambiguities)
        parts.append(f"![{experiment.title}]({experiment.name}.svg)")
    path = out / f"{experiment.name}.md"
    write_text(path, "\n\n".join(parts) + "\n")
    return path


def build_table(
    cells: Sequence[Cell], results: Sequence[ResultRow], seeds: int, ambiguities: Ambiguities
) -> tuple[list[str], dict[str, list[str]]]:
    """The column titles, and for each row label its cells: our number, the paper's, and the effect of mixing."""
    columns = list(dict.fromkeys(cell.column for cell in cells))
    rows = {cell.label: [""] * len(columns) for cell in cells}
    by_position = {(cell.label, cell.column): cell for cell in cells}
    for cell in cells:
        plain = by_position.get((cell.label, cell.column.split(" + ")[0]), cell)
        plain_summary, summary = (summarize(c, results, seeds, ambiguities) for c in (plain, cell))
        lines = [f"**{summary or 'not run'}**"]
        if cell.paper:
            lines.append(f"paper {cell.paper}" + (f", {summary.mean - cell.paper.mean:+z.1f}" if summary else ""))
        if plain_summary and summary and plain is not cell:
            lines.append(f"effect of mixing {summary.mean - plain_summary.mean:+z.1f}")
            if cell.paper and plain.paper:
                lines[-1] += f", paper {cell.paper.mean - plain.paper.mean:+z.1f}"
        rows[cell.label][columns.index(cell.column)] = "<br>".join(lines)
    return columns, rows


def _describe(
    experiment: Experiment, results: Sequence[ResultRow], cells: Sequence[Cell], seeds: int, budget: Budget
) -> str:
    """Budget, number of runs, time, machines and dates of the results."""
    budgets = {
        "paper": "the paper's full length",
        "short": f"short ({experiment.short_description})",
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
