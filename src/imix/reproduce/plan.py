"""What `imix reproduce` would run, without running it: a list, individual `imix` commands, or a Slurm script."""

import shlex
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from imix.data.named import DATASETS
from imix.files import write_text
from imix.reproduce.experiment import non_default
from imix.reproduce.jobs import Job, dataset_folder, estimate_hours, list_jobs
from imix.reproduce.requests import Budget, Request


def listing(requests: Sequence[Request], out: Path, budget: Budget) -> str:
    """One line per experiment: number of cells and runs, hours on an H200, and how many runs are finished."""
    lines = [f"{'':<12}{'cells':>7}{'runs':>11}{'H200 hours':>12}{'done':>9}"]

    def add_line(name: str, n_cells: int | str, requests: Sequence[Request], title: str) -> None:
        jobs = list_jobs(requests)
        cost = "-" if budget == "smoke" else f"{sum(map(estimate_hours, jobs)):,.1f}"
        done = f"{len(jobs) - len(list_jobs(requests, out))}/{len(jobs)}"
        lines.append(f"{name:<12}{n_cells:>7}{len(jobs):>11}{cost:>12}{done:>9}  {title}")

    for request in requests:
        add_line(request.experiment.name, len(request.cells), [request], request.experiment.title)
        if budget == "short":
            lines.append(f"{'':<12}{request.experiment.short_description}")
    if len(requests) > 1:
        add_line("total", "", requests, "runs shared by several tables are counted once")
    return "\n".join(lines)


def write_slurm_script(name: str, requests: Sequence[Request], arguments: Sequence[str], out: Path) -> Path:
    """Write OUT/NAME.sbatch, which runs `imix reproduce` with the same arguments, one training run per task."""
    jobs = list_jobs(requests)
    hours = 2 * max(map(estimate_hours, jobs)) + 0.5  # the estimate may be off by a factor of two
    command = shlex.join(["imix", "reproduce", *(word for word in arguments if word != "--slurm")])
    logs, path = out / "logs", out / f"{name}.sbatch"
    logs.mkdir(parents=True, exist_ok=True)
    template = (files("imix.reproduce") / "array_job.sh").read_text(encoding="utf-8")
    text = template.format(
        name=name, last=len(jobs) - 1, tasks=len(jobs), hours=max(1, min(48, round(hours))), logs=logs, command=command
    )
    write_text(path, text)
    return path


def as_commands(requests: Sequence[Request], data_dir: Path | None = None) -> str:
    """Format a block of commands per training run: one to pretrain, one or two per measurement."""
    return "\n\n".join("\n".join(job_commands(job, data_dir)) for job in list_jobs(requests))


def job_commands(job: Job, data_dir: Path | None = None) -> list[str]:
    """The commands for one training and its measurements."""
    data, run = job.training.data, f"runs/{job.name}"
    settings = non_default(job.training.settings) | non_default(job.training.data_settings)
    flags = list[str]()
    for name, value in (settings | ({"seed": job.seed} if job.seed else {})).items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            flags.append(f"--{'' if value else 'no-'}{flag}")
        else:
            flags += [f"--{flag}", *(map(str, value) if isinstance(value, tuple) else [str(value)])]
    commands = [shlex.join(["imix", "pretrain", data, *flags, *_data_dir_flag(data, data_dir), "--out", run])]
    for protocol, eval_data in job.measurements:
        commands += _measurement_commands(run, protocol, eval_data, eval_data != data, data_dir)
    return commands


def _measurement_commands(run: str, protocol: str, data: str, is_transfer: bool, data_dir: Path | None) -> list[str]:
    is_images = DATASETS[data].kind == "images"
    flags = ["--data", data, *_data_dir_flag(data, data_dir)] if is_transfer else []
    if protocol == "map":
        return [shlex.join(["imix", "map", run, *flags, "--out", f"{run}-{data}.svg"])]
    if is_transfer and is_images:
        flags.append("--restandardize")
    if protocol != "linear-paper":
        return [shlex.join(["imix", "evaluate", run, "--protocol", protocol, *flags])]
    crops = ["--random-crops"] if is_images else []
    linear = shlex.join(["imix", "evaluate", run, "--protocol", protocol, *flags, *crops])
    if data.startswith("imagenet"):
        linear += "  # in Python: hyperparameters=LinearPaper(lrs=(30,), milestones=(60, 80), decay=0.1)"
    return [linear, shlex.join(["imix", "evaluate", run, "--protocol", "knn", *flags])]


def _data_dir_flag(name: str, data_dir: Path | None) -> list[str]:
    folder = dataset_folder(name, data_dir)
    return [] if folder is None else ["--data-dir", folder]
