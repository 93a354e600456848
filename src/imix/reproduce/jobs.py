"""The training runs that the requested cells need: all of them, the remaining ones, and their cost."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from imix.data.named import DATASETS
from imix.reproduce.datasets import is_image_data
from imix.reproduce.experiment import Measurement, Training
from imix.reproduce.requests import Request
from imix.reproduce.results import read_results, rows_for_cell

# Views per second of training on an H200 with 32 x 32 images; ResNets take 3.2 times as long with 224 x 224.
VIEWS_PER_SECOND = {"resnet18": 82_000, "resnet50": 21_000, "resnet101": 12_500, "resnet152": 8_800, "mlp": 600_000}
LARGE_IMAGE_COST = 3.2
# Cost of a step in views per sample; 2 for other methods. Keys have no backward pass: a third of the cost of anchors.
VIEWS_PER_SAMPLE = {"moco": 4 / 3, "byol": 4 / 3, "supervised": 1.0}
LINEAR_EPOCHS = 100  # forward passes over the training images of the linear classifier


@dataclass(frozen=True)
class Job:
    """One training run with its seed, and its measurements."""

    training: Training
    seed: int
    measurements: tuple[Measurement, ...]

    @property
    def name(self) -> str:
        """The name of its run folder."""
        return self.training.name(self.seed)


def all_jobs(requests: Sequence[Request]) -> list[Job]:
    """Return each training run that the requests need, once, in an order that does not depend on what is finished."""
    measurements: dict[str, dict[Measurement, None]] = {}
    jobs: dict[str, Job] = {}
    for _, cells, seeds in requests:
        for seed in range(seeds):
            for cell in cells:
                job = Job(cell.training, seed, ())
                jobs.setdefault(job.name, job)
                measurements.setdefault(job.name, {})[cell.measurement] = None
    return [replace(job, measurements=tuple(measurements[name])) for name, job in jobs.items()]


def remaining_jobs(requests: Sequence[Request], out: Path) -> list[Job]:
    """The jobs with measurements that are missing from the result files in `out`, with only these measurements."""
    missing = {
        (cell.training.name(seed), cell.measurement)
        for experiment, cells, seeds in requests
        for results in [read_results(out / f"{experiment.name}.csv")]
        for cell in cells
        for seed in range(seeds)
        if not any(result.seed == seed for result in rows_for_cell(results, cell, seeds))
    }
    jobs = []
    for job in all_jobs(requests):
        measurements = tuple(measurement for measurement in job.measurements if (job.name, measurement) in missing)
        if measurements:
            jobs.append(replace(job, measurements=measurements))
    return jobs


def estimate_hours(job: Job) -> float:
    """A rough estimate of the hours a job takes on an H200."""
    data, settings, data_settings = job.training.data, job.training.settings, job.training.data_settings
    speed = VIEWS_PER_SECOND.get(settings.encoder.split(":")[0], 1e6)
    if data.startswith("imagenet") and data_settings.image_size is None:
        speed /= LARGE_IMAGE_COST
    views_per_sample = VIEWS_PER_SAMPLE.get(settings.method, 2.0)
    if settings.method in ("simclr", "supclr") and settings.mix != "none":
        views_per_sample *= 2
    views = DATASETS[data].n_train * data_settings.fraction * settings.epochs * views_per_sample
    if is_image_data(data):  # a forward pass costs a third of a training step
        views += sum(LINEAR_EPOCHS / 3 * DATASETS[m.data].n_train for m in job.measurements if m.protocol == "linear")
    return views / speed / 3600
