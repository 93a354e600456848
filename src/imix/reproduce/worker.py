"""Runs one job: a training run and its measurements."""

import json
import platform
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from imix.detection import Detection
from imix.errors import InputError, RunFolderBusy, TrainingError
from imix.evaluation import KNN, Linear, PInv, Result, evaluate
from imix.probes.run_data import load_for_run
from imix.reports.maps import draw_map
from imix.reproduce.datasets import dataset_folder, is_image_data
from imix.reproduce.experiment import Measurement
from imix.reproduce.fake_data import fake_data, fake_voc
from imix.reproduce.jobs import Job
from imix.reproduce.requests import Budget
from imix.run import Run, load_run
from imix.runtime.device import pick_device
from imix.train.pretrain import pretrain

MAP_CLASSES, MAP_SAMPLES = 10, 2000
Failure = InputError | TrainingError | RunFolderBusy


class CellValue(NamedTuple):
    """The numbers of a cell, as in `ResultRow`."""

    value: float | None = None
    best_on_test: float | None = None
    knn: float | None = None


class Outcome(NamedTuple):
    """The result of a job: the numbers by (metric, data set), and the errors of what failed."""

    values: dict[tuple[str, str], CellValue]
    failures: list[Failure]
    seconds: float
    machine: str


@dataclass(frozen=True)
class Worker:
    """Runs jobs on a device. Runs and maps are written to `out`; data sets are read from `data_dir`."""

    out: Path
    budget: Budget = "short"
    data_dir: Path | None = None
    device: str = "auto"
    progress: bool = True

    def run(self, job: Job) -> Outcome:
        """Train, unless the run is finished, and make the measurements that are missing."""
        folder = self.out / "runs" / job.name
        folder.parent.mkdir(parents=True, exist_ok=True)
        start = time.monotonic()
        values: dict[tuple[str, str], CellValue] = {}
        failures: list[Failure] = []
        device = self._device(job)
        try:
            run = self._train(job, folder, device)
            for measurement in job.measurements:
                try:
                    values |= self._measure(run, measurement, device)
                except InputError as error:  # for example missing data; the other measurements can still be made
                    failures.append(error)
        except (InputError, TrainingError, RunFolderBusy) as error:
            failures.append(error)
        torch_device = pick_device(device)
        is_gpu = torch_device.type == "cuda"
        machine = torch.cuda.get_device_name(torch_device) if is_gpu else f"CPU ({platform.machine()})"
        return Outcome(values, failures, time.monotonic() - start, machine)

    def _train(self, job: Job, folder: Path, device: str) -> Run:
        if (folder / "encoder.safetensors").exists():
            return load_run(folder)
        training = job.training
        settings = replace(training.settings, seed=job.seed, device=device)
        data_settings = replace(training.data_settings, data_dir=self._data_dir(training.data))
        data: Any = fake_data(training.data, data_settings) if self.budget == "smoke" else training.data
        return pretrain(data, settings, data_settings, out=folder, resume=True, progress=self.progress)

    def _measure(self, run: Run, measurement: Measurement, device: str) -> dict[tuple[str, str], CellValue]:
        """Make one measurement; returns every number a cell may take from it."""
        protocol, data_name = measurement
        if protocol == "map":
            self._draw_map(run, data_name, device)
            return {("map", data_name): CellValue()}
        result = self._evaluate(run, protocol, data_name, device)
        if protocol == "detection":
            return {(name, data_name): CellValue(100 * value, 100 * value) for name, value in result.metrics.items()}
        if protocol == "linear":
            train_accuracy = 100 * result.metrics["train_accuracy"]
            knn = 100 * self._evaluate(run, "knn", data_name, device).value
            accuracy = CellValue(100 * result.value, 100 * result.metrics["paper_accuracy"], knn)
            return {("linear", data_name): accuracy, ("training", data_name): CellValue(train_accuracy, train_accuracy)}
        return {(protocol, data_name): CellValue(result.scaled, result.scaled)}

    def _evaluate(self, run: Run, protocol: str, data_name: str, device: str) -> Result:
        """Evaluate, or return the stored result of the same evaluation from before an interruption."""
        assert run.path is not None
        random_crops = protocol == "linear" and is_image_data(data_name)
        restandardize = is_image_data(data_name) and data_name != run.config.data.name
        hyperparameters = self._hyperparameters(protocol, data_name)
        data_dir = self._data_dir(data_name)
        if data_name == "voc" and self.budget == "smoke":
            data_dir = str(fake_voc(self.out / "fake-voc"))
        expected = {} if hyperparameters is None else json.loads(json.dumps(asdict(hyperparameters)))
        for result in run.evaluations:
            same_data = result.protocol == protocol and result.data in (data_name, data_dir)
            same_options = (bool(result.random_crops), result.restandardized) == (random_crops, restandardize)
            if same_data and same_options and result.hyperparameters == expected and not result.inputs:
                return result
        return evaluate(
            run,
            self._data(data_name),
            protocol,
            data_dir=data_dir,
            random_crops=random_crops,
            restandardize=restandardize,
            device=device,
            hyperparameters=hyperparameters,
        )

    def _hyperparameters(self, protocol: str, data_name: str) -> Any:
        """The hyperparameters of a protocol; None if it has none."""
        if protocol == "detection":
            if self.budget == "smoke":
                quick = Detection(iterations=2, batch_size=2, warmup=1, milestones=(1,), precise_bn=1)
                return replace(quick, min_sizes=(64,), test_size=64, max_size=96, regions=16)
            return Detection(iterations=2000, milestones=(1500, 1800)) if self.budget == "short" else Detection()
        if protocol == "linear" and self.budget == "smoke":
            return Linear(epochs=2, milestones=(1,))
        if protocol == "linear" and data_name.startswith("imagenet"):
            return Linear(lrs=(30,), milestones=(60, 80), decay=0.1)
        return {"linear": Linear(), "knn": KNN(), "pinv": PInv()}.get(protocol)

    def _draw_map(self, run: Run, data_name: str, device: str) -> None:
        """Draw a map of ten classes, spread evenly over all classes if there are more."""
        assert run.path is not None
        data = load_for_run(run, self._data(data_name), data_dir=self._data_dir(data_name))
        classes = data.display_names[:: max(1, len(data.display_names) // MAP_CLASSES)][:MAP_CLASSES]
        path = self.out / "maps" / f"{run.path.name}-{data_name}.svg"
        path.parent.mkdir(exist_ok=True)
        draw_map(run, path, data, samples=MAP_SAMPLES, classes=classes, device=device)

    def _device(self, job: Job) -> str:
        return self.device if job.training.settings.device == "auto" else job.training.settings.device

    def _data(self, name: str) -> Any:
        return fake_data(name) if self.budget == "smoke" and name != "voc" else name

    def _data_dir(self, name: str) -> str | None:
        """The folder with a data set's files; None if it is downloaded or replaced by fake data."""
        return None if self.budget == "smoke" else dataset_folder(name, self.data_dir)
