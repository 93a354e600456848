"""A Markdown page per table or figure, with the paper's numbers and ours side by side, and figures as line charts."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from imix.files import locked, write_text
from imix.reports.figure import figure_file
from imix.reproduce.experiment import Ambiguities, Cell, Experiment, Number
from imix.reproduce.requests import Budget, Request, select_cells
from imix.reproduce.results import ResultRow, read_results, rows_for_cell, summarize

PANEL_WIDTH, PANEL_HEIGHT = 5.0, 3.5  # of a line chart, in inches, without the legend
COLORS = ("#d1495b", "#00798c", "#edae49", "#5e4fa2")
Numbers = Mapping[tuple[str, str], Number]  # by row label and column
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
    experiment, requested, _ = request
    results = read_results(out / f"{experiment.name}.csv")
    all_cells = select_cells(experiment, budget, ambiguities)
    cells = [cell for cell in all_cells if cell in requested or rows_for_cell(results, cell)]
    numbers = {(c.label, c.column): number for c in cells if (number := summarize(c, results, ambiguities))}
    parts = [f"# {experiment.name}: {experiment.title}", _describe(request, results, cells, budget)]
    if any(cell.metric == "map" for cell in cells):
        maps = [(cell, f"{cell.training.name(0)}-{cell.eval_data}.svg") for cell in cells]
        parts += [f"![{c.column}, {c.label}](maps/{name})" for c, name in maps if (out / "maps" / name).exists()]
    else:
        columns, rows = build_table(cells, numbers)
        lines = [[experiment.axis or "", *columns], ["---"] * (1 + len(columns))]
        lines += [[label, *texts] for label, texts in rows.items()]
        parts.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
        parts.append(LR_CHOICE[ambiguities.choose_on])
    if experiment.axis:
        draw_line_chart(out / f"{experiment.name}.svg", experiment, cells, numbers)
        parts.append(f"![{experiment.title}]({experiment.name}.svg)")
    path = out / f"{experiment.name}.md"
    write_text(path, "\n\n".join(parts) + "\n")
    return path


def build_table(cells: Sequence[Cell], numbers: Numbers) -> tuple[list[str], dict[str, list[str]]]:
    """The column titles, and for each row label its cells: our number, the paper's, and the effect of mixing."""
    columns = list(dict.fromkeys(cell.column for cell in cells))
    rows = {cell.label: [""] * len(columns) for cell in cells}
    papers = {(cell.label, cell.column): cell.paper for cell in cells}
    for cell in cells:
        number, paper = numbers.get((cell.label, cell.column)), cell.paper
        plain_column = cell.column.split(" + ")[0]
        plain, plain_paper = (values.get((cell.label, plain_column)) for values in (numbers, papers))
        lines = [f"**{number or 'not run'}**"]
        if paper:
            lines.append(f"paper {paper}" + (f", {_change(paper, number)}" if number else ""))
        if number and plain and plain_column != cell.column:
            lines.append(f"effect of mixing {_change(plain, number)}")
            if paper and plain_paper:
                lines[-1] += f", paper {_change(plain_paper, paper)}"
        rows[cell.label][columns.index(cell.column)] = "<br>".join(lines)
    return columns, rows


def _change(before: Number, after: Number) -> str:
    return f"{after.mean - before.mean:+z.1f}"


def _describe(request: Request, results: Sequence[ResultRow], cells: Sequence[Cell], budget: Budget) -> str:
    """Budget, number of runs, time, machines and dates of the results."""
    experiment = request.experiment
    budgets = {
        "paper": "the paper's full length",
        "short": f"short ({experiment.short_description})",
        "smoke": "smoke, fake data",
    }
    text = f"Budget: {budgets[budget]}."
    rows = [row for cell in cells for row in rows_for_cell(results, cell)]
    if rows:
        runs = {row.run: row for row in rows}
        machines = ", ".join(sorted({row.machine for row in rows}))
        dates = sorted({row.date for row in rows})
        period = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
        seconds = sum(row.seconds for row in runs.values())
        seeds = max(request.seeds, *(row.seed + 1 for row in results))
        text += f" {len(runs)} runs, {seconds:,.0f} s in total on {machines}, {period}."
        text += f" Mean ± standard deviation over up to {seeds} seeds." if seeds > 1 else " One seed."
    return f"{text} {experiment.note}".strip()


def draw_line_chart(path: Path, experiment: Experiment, cells: Sequence[Cell], numbers: Numbers) -> None:
    """Write a figure with one panel per data set and one line per row and column, dashed without mixing.

    It shows accuracy over a logarithmic x axis.
    """
    panels: dict[str, dict[tuple[str, str], list[tuple[float, float]]]] = {}  # data set -> (row, column) -> points
    for cell in cells:
        dataset, _, row = cell.row.partition(", ")
        lines = panels.setdefault(dataset, {})
        number = numbers.get((cell.label, cell.column))
        if number and cell.x is not None:
            lines.setdefault((row, cell.column), []).append((cell.x, number.mean))
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
