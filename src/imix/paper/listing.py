"""`imix reproduce --list`: what there is, what it costs, what is done; and `--slurm`."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from imix.paper.budget import Budget, all_jobs, hours, remaining, wanted
from imix.paper.cluster import write_slurm
from imix.paper.experiments import EXPERIMENTS


def listing(budget: Budget, out: Path) -> str:
    """A line for each experiment: its cells, its trainings, what an H200 needs for them, and how many are done."""
    lines = [f"{'':<12}{'cells':>7}{'trainings':>11}{'H200 hours':>12}{'done':>9}"]
    for name, experiment in EXPERIMENTS.items():
        asked = wanted([name], budget)
        jobs, left = all_jobs(asked), remaining(asked, out)
        cost = "-" if budget == "smoke" else f"{sum(map(hours, jobs)):,.1f}"
        done = f"{len(jobs) - len(left)}/{len(jobs)}"
        lines.append(f"{name:<12}{len(asked[0].cells):>7}{len(jobs):>11}{cost:>12}{done:>9}  {experiment.title}")
        if budget == "short":
            lines.append(f"{'':<12}{experiment.told}")
    everything = all_jobs(wanted(["all"], budget))
    total = "-" if budget == "smoke" else f"{sum(map(hours, everything)):,.1f}"
    lines.append(f"{'all':<12}{'':>7}{len(everything):>11}{total:>12}{'':>9}  trainings that several share run once")
    return "\n".join(lines)


def script(names: Sequence[str], given: Sequence[str], out: Path, **chosen: Any) -> Path:
    """A script for Slurm that runs the command that was given, one training a task."""
    jobs = all_jobs(wanted(names, **chosen))
    command = shlex.join(["imix", "reproduce", *(word for word in given if word != "--slurm")])
    return write_slurm(out, "-".join(names), len(jobs), max(map(hours, jobs)), command)
