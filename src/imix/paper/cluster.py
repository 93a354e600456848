"""A script for Slurm: each training of an experiment is a task of an array, on a GPU of its own."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from imix.files import write_text
from imix.paper.budget import Wanted, all_jobs, hours

SCRIPT = """#!/bin/bash
#SBATCH --job-name=imix-{name}
#SBATCH --array=0-{last}
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=8
#SBATCH --time={time}
#SBATCH --requeue
#SBATCH --signal=TERM@120
#SBATCH --output={logs}/%A_%a.txt

# Two minutes before its time is up a task is told to stop: it writes its checkpoint and leaves with 75, which means
# that it goes on when it is started again. When all are done, the same command without --part writes the page.
srun {command} --part "$SLURM_ARRAY_TASK_ID/{tasks}"
code=$?
if [ "$code" -eq 75 ]; then scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}"; fi
exit "$code"
"""


def script(name: str, asked: Sequence[Wanted], given: Sequence[str], out: Path) -> Path:
    """A script for Slurm that runs the command that was given, one training a task."""
    jobs = all_jobs(asked)
    command = shlex.join(["imix", "reproduce", *(word for word in given if word != "--slurm")])
    return write_slurm(out, name, len(jobs), max(map(hours, jobs)), command)


def write_slurm(out: Path, name: str, tasks: int, hours: float, command: str) -> Path:
    """OUT/NAME.sbatch for so many tasks, the longest of which takes that many hours on an H200."""
    logs = out / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    time = f"{max(1, min(48, round(2 * hours + 0.5)))}:00:00"
    path = out / f"{name}.sbatch"
    write_text(path, SCRIPT.format(name=name, last=tasks - 1, tasks=tasks, time=time, logs=logs, command=command))
    return path
