"""`imix reproduce --list`: what there is, what it costs, what is done."""

from collections.abc import Sequence
from pathlib import Path

from imix.paper.budget import Budget, Wanted, all_jobs, hours, remaining


def listing(everything: Sequence[Wanted], out: Path, budget: Budget) -> str:
    """A line for each experiment: its cells, its trainings, what an H200 needs for them, and how many are done."""
    lines = [f"{'':<12}{'cells':>7}{'trainings':>11}{'H200 hours':>12}{'done':>9}"]

    def add(name: str, cells: int | str, asked: Sequence[Wanted], title: str) -> None:
        jobs = all_jobs(asked)
        cost = "-" if budget == "smoke" else f"{sum(map(hours, jobs)):,.1f}"
        done = f"{len(jobs) - len(remaining(asked, out))}/{len(jobs)}"
        lines.append(f"{name:<12}{cells:>7}{len(jobs):>11}{cost:>12}{done:>9}  {title}")

    for each in everything:
        add(each.experiment.name, len(each.cells), [each], each.experiment.title)
        if budget == "short":
            lines.append(f"{'':<12}{each.experiment.told}")
    if len(everything) > 1:
        add("together", "", everything, "trainings that several share run once")
    return "\n".join(lines)
