"""`imix reproduce --commands`: trainings of the paper as the commands that do them one by one."""

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from imix.paper.budget import Job, Wanted, all_jobs
from imix.paper.experiment import Measurement
from imix.paper.recipes import IMAGES
from imix.settings import Reading, Settings


def spelled_out(asked: Sequence[Wanted], data_dir: Path | None = None) -> str:
    """A few lines for each training: how it is pretrained, and how it is measured."""
    return "\n\n".join("\n".join(commands_of(job, data_dir)) for job in all_jobs(asked))


def commands_of(job: Job, data_dir: Path | None = None) -> list[str]:
    """What to type for a training, and for what is measured of it."""
    training, run = job.training, f"runs/{job.name}"
    flags = [*_flags(training.settings, Settings()), *_flags(training.reading, Reading())]
    pretrain = ["imix", "pretrain", training.data, *flags, *(["--seed", str(job.seed)] if job.seed else [])]
    lines = [shlex.join([*pretrain, *_place(training.data, data_dir), "--out", run])]
    for measurement in job.measurements:
        lines += _measured(run, training.data, measurement, data_dir)
    return lines


def _place(name: str, data_dir: Path | None) -> list[str]:
    if data_dir is None:
        return []
    from imix.paper.work import place_of  # and with it torch, which takes its time

    place = place_of(name, data_dir)
    return [] if place is None else ["--data-dir", place]


def _measured(run: str, trained_on: str, measurement: Measurement, data_dir: Path | None) -> list[str]:
    """How a run is measured."""
    protocol, on = measurement
    other = [] if on == trained_on else ["--data", on, *_place(on, data_dir)]
    if protocol == "map":
        return [shlex.join(["imix", "map", run, *other, "--out", f"{run}-{on}.svg"])]
    anew = ["--standardise"] if other and on in IMAGES else []
    how = [] if protocol == "linear" else ["--protocol", protocol]
    line = shlex.join(["imix", "evaluate", run, *how, *other, *anew])
    if protocol != "linear":
        return [line]
    votes = shlex.join(["imix", "evaluate", run, "--protocol", "knn", *other, *anew])
    more = "  # constants=Linear(rates=(30,), milestones=(60, 80), decay=0.1)" if on.startswith("imagenet") else ""
    return [f"{line}{' --augment' if on in IMAGES else ''}{more}", votes]


def _flags(given: Any, default: Any) -> list[str]:
    """What is not as by default, as flags."""
    usual, found = asdict(default), list[str]()
    for name, value in asdict(given).items():
        flag = name.replace("_", "-")
        if value == usual[name]:
            continue
        if isinstance(value, bool):
            found.append(f"--{'' if value else 'no-'}{flag}")
        else:
            found += [f"--{flag}", *(map(str, value) if isinstance(value, tuple) else [str(value)])]
    return found
