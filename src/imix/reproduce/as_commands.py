"""`imix reproduce --commands`: the paper's training runs as individual `imix` commands."""

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from imix.reproduce.datasets import dataset_folder, is_image_data
from imix.reproduce.experiment import Measurement
from imix.reproduce.jobs import Job, all_jobs
from imix.reproduce.requests import Request
from imix.settings import DataSettings, Settings


def as_commands(requests: Sequence[Request], data_dir: Path | None = None) -> str:
    """Format a block of commands per training run: one to pretrain, one or two per measurement."""
    return "\n\n".join("\n".join(job_commands(job, data_dir)) for job in all_jobs(requests))


def job_commands(job: Job, data_dir: Path | None = None) -> list[str]:
    """The commands for one training and its measurements."""
    training, run = job.training, f"runs/{job.name}"
    flags = [*_flags(training.settings, Settings()), *_flags(training.data_settings, DataSettings())]
    seed = ["--seed", str(job.seed)] if job.seed else []
    pretrain = ["imix", "pretrain", training.data, *flags, *seed, *_data_dir_flag(training.data, data_dir)]
    commands = [shlex.join([*pretrain, "--out", run])]
    for measurement in job.measurements:
        commands += _measurement_commands(run, training.data, measurement, data_dir)
    return commands


def _data_dir_flag(name: str, data_dir: Path | None) -> list[str]:
    folder = dataset_folder(name, data_dir)
    return [] if folder is None else ["--data-dir", folder]


def _measurement_commands(run: str, training_data: str, measurement: Measurement, data_dir: Path | None) -> list[str]:
    protocol, data = measurement
    is_transfer = data != training_data
    data_flags = ["--data", data, *_data_dir_flag(data, data_dir)] if is_transfer else []
    if protocol == "map":
        return [shlex.join(["imix", "map", run, *data_flags, "--out", f"{run}-{data}.svg"])]
    restandardize = ["--restandardize"] if is_transfer and is_image_data(data) else []
    if protocol != "linear":
        return [shlex.join(["imix", "evaluate", run, "--protocol", protocol, *data_flags, *restandardize])]
    random_crops = ["--random-crops"] if is_image_data(data) else []
    linear = shlex.join(["imix", "evaluate", run, *data_flags, *restandardize, *random_crops])
    if data.startswith("imagenet"):
        linear += "  # in Python: hyperparameters=Linear(lrs=(30,), milestones=(60, 80), decay=0.1)"
    return [linear, shlex.join(["imix", "evaluate", run, "--protocol", "knn", *data_flags, *restandardize])]


def _flags(settings: Any, defaults: Any) -> list[str]:
    """The settings that differ from their defaults, as flags."""
    default_values, flags = asdict(defaults), list[str]()
    for name, value in asdict(settings).items():
        flag = name.replace("_", "-")
        if value == default_values[name]:
            continue
        if isinstance(value, bool):
            flags.append(f"--{'' if value else 'no-'}{flag}")
        else:
            flags += [f"--{flag}", *(map(str, value) if isinstance(value, tuple) else [str(value)])]
    return flags
