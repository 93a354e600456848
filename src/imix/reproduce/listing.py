"""`imix reproduce --list`: the tables and figures, their cost and their progress."""

from collections.abc import Sequence
from pathlib import Path

from imix.reproduce.jobs import all_jobs, estimate_hours, remaining_jobs
from imix.reproduce.requests import Budget, Request


def listing(requests: Sequence[Request], out: Path, budget: Budget) -> str:
    """One line per experiment: number of cells and runs, hours on an H200, and how many runs are finished."""
    lines = [f"{'':<12}{'cells':>7}{'runs':>11}{'H200 hours':>12}{'done':>9}"]

    def add_line(name: str, n_cells: int | str, requests: Sequence[Request], title: str) -> None:
        jobs = all_jobs(requests)
        cost = "-" if budget == "smoke" else f"{sum(map(estimate_hours, jobs)):,.1f}"
        done = f"{len(jobs) - len(remaining_jobs(requests, out))}/{len(jobs)}"
        lines.append(f"{name:<12}{n_cells:>7}{len(jobs):>11}{cost:>12}{done:>9}  {title}")

    for request in requests:
        add_line(request.experiment.name, len(request.cells), [request], request.experiment.title)
        if budget == "short":
            lines.append(f"{'':<12}{request.experiment.short_description}")
    if len(requests) > 1:
        add_line("total", "", requests, "runs shared by several tables are counted once")
    return "\n".join(lines)
