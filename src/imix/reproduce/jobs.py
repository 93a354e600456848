"""The training runs that the requested cells need: all of them, the remaining ones, and their cost."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from imix.data.named import DATASETS
from imix.reproduce.experiment import Cell, Training
from imix.reproduce.requests import Request
from imix.reproduce.results import read_results

# Views per second of training on an H200 with 32 x 32 images; ResNets take 3.2 times as long with 224 x 224.
VIEWS_PER_SECOND = {"resnet18": 82_000, "resnet50": 21_000, "resnet101": 12_500, "resnet152": 8_800, "mlp": 600_000}
LARGE_IMAGE_COST = 3.2
# Cost of a step in views per sample; 2 for other methods. Keys have no backward pass: a third of the cost of anchors.
VIEWS_PER_SAMPLE = {"moco": 4 / 3, "byol": 4 / 3, "supervised": 1.0}
LINEAR_EPOCHS = 100  # forward passes over the training images of the linear classifier


@dataclass(frozen=True)
class Job:
    """One training run with its seed, and the cells that it yields, each with the name of its experiment."""

    training: Training
    seed: int
    cells: list[tuple[str, Cell]]

    @property
    def name(self) -> str:
        """The name of its run folder."""
        return self.training.name(self.seed)

    @property
    def measurements(self) -> list[tuple[str, str]]:
        """The measurements that its cells need, each once: protocol and data set."""
        return list(dict.fromkeys(cell.measurement for _, cell in self.cells))


def list_jobs(requests: Sequence[Request], out: Path | None = None) -> list[Job]:
    """Return each training run that the requests need, once; with `out`, without cells that have a result there."""
    jobs: dict[str, Job] = {}
    for experiment, cells, seeds in requests:
        results = [] if out is None else read_results(out / f"{experiment.name}.csv")
        done = {result.key for result in results}
        for seed in range(seeds):
            for cell in cells:
                name = cell.training.name(seed)
                if (cell.label, cell.column, name) not in done:
                    job = jobs.setdefault(name, Job(cell.training, seed, []))
                    job.cells.append((experiment.name, cell))
    return list(jobs.values())


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
    if DATASETS[data].kind == "images":  # a forward pass costs a third of a training step
        views += sum(
            LINEAR_EPOCHS / 3 * DATASETS[data].n_train
            for protocol, data in job.measurements
            if protocol == "linear-paper"
        )
    return views / speed / 3600


def dataset_folder(name: str, data_dir: Path | None) -> str | None:
    """The folder with a data set's files: DATA_DIR/NAME, or DATA_DIR itself if it contains them; otherwise None."""
    if data_dir is None:
        return None
    subfolder = data_dir / name
    if subfolder.is_dir():
        return str(subfolder)
    return str(data_dir) if any((data_dir / file).exists() for file in DATASETS[name].marker_files) else None
