"""`imix reproduce --slurm`: a Slurm array job with one task per training run, each on its own GPU."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from imix.files import write_text
from imix.reproduce.jobs import all_jobs, estimate_hours
from imix.reproduce.requests import Request

SCRIPT = """#!/bin/bash
#SBATCH --job-name=imix-{name}
#SBATCH --array=0-{last}
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=8
#SBATCH --time={time}
#SBATCH --requeue
#SBATCH --signal=TERM@120
#SBATCH --output={logs}/%A_%a.txt

# Slurm sends SIGTERM two minutes before the time limit. The task then writes its checkpoint and exits with code 75,
# and is requeued to continue from there. When all tasks are done, run the same command without --shard: it writes the
# page.
srun {command} --shard "$SLURM_ARRAY_TASK_ID/{tasks}"
code=$?
if [ "$code" -eq 75 ]; then scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}"; fi
exit "$code"
"""


def write_script(name: str, requests: Sequence[Request], arguments: Sequence[str], out: Path) -> Path:
    """Write OUT/NAME.sbatch, which runs `imix reproduce` with the same arguments, one training run per task."""
    jobs = all_jobs(requests)
    command = shlex.join(["imix", "reproduce", *(word for word in arguments if word != "--slurm")])
    return write_array_job(out, name, len(jobs), max(map(estimate_hours, jobs)), command)


def write_array_job(out: Path, name: str, tasks: int, hours: float, command: str) -> Path:
    """Write OUT/NAME.sbatch with `tasks` tasks; `hours` is the estimate for the longest one on an H200."""
    logs = out / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    time = f"{max(1, min(48, round(2 * hours + 0.5)))}:00:00"  # the estimate may be off by a factor of two
    path = out / f"{name}.sbatch"
    write_text(path, SCRIPT.format(name=name, last=tasks - 1, tasks=tasks, time=time, logs=logs, command=command))
    return path
