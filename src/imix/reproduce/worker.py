"""Runs one job: a training run and its measurements."""

import datetime
import json
import platform
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from imix._version import __version__
from imix.data.named import DATASETS
from imix.detection import Detection
from imix.errors import InputError, RunFolderBusy, TrainingError
from imix.evaluation import KNN, LinearPaper, PInv, Result, evaluate
from imix.probes.run_data import load_for_run
from imix.reports.maps import draw_map
from imix.reproduce.experiment import Cell
from imix.reproduce.fake_data import fake_data, fake_voc
from imix.reproduce.jobs import Job, dataset_folder
from imix.reproduce.requests import Budget
from imix.reproduce.results import ResultRow, add_result
from imix.run import Run, load_run
from imix.runtime.device import pick_device
from imix.settings import DataSettings
from imix.train.pretrain import pretrain

MAP_CLASSES, MAP_SAMPLES = 10, 2000
Failure = InputError | TrainingError | RunFolderBusy


class Outcome(NamedTuple):
    """The errors of what failed in a job, and the time it took."""

    failures: list[Failure]
    seconds: float


@dataclass(frozen=True)
class Worker:
    """Runs jobs on a device. Runs, results and maps are written to `out`; data sets are read from `data_dir`."""

    out: Path
    budget: Budget = "short"
    data_dir: Path | None = None
    device: str = "auto"
    progress: bool = True

    def run(self, job: Job) -> Outcome:
        """Train, unless the run is finished, make the measurements, and add the numbers to the result files."""
        start = time.monotonic()
        numbers = []
        failures: dict[str, Failure] = {}
        device = job.training.settings.device
        device = self.device if device == "auto" else device
        try:
            run = self._train(job, device)
            for experiment, cell in job.cells:
                try:
                    numbers.append((experiment, cell, self._measure(run, cell, device)))
                except InputError as error:  # for example missing data; the other measurements can still be made
                    failures[str(error)] = error
        except (InputError, TrainingError, RunFolderBusy) as error:
            failures[str(error)] = error
        outcome = Outcome(list(failures.values()), time.monotonic() - start)
        for experiment, cell, values in numbers:
            add_result(self.out / f"{experiment}.csv", self._result_row(job, cell, values, outcome.seconds, device))
        return outcome

    def _result_row(self, job: Job, cell: Cell, values: list[float | None], seconds: float, device: str) -> ResultRow:
        torch_device = pick_device(device)
        value, best_on_test, knn = values
        return ResultRow(
            row=cell.label,
            column=cell.column,
            seed=job.seed,
            budget=self.budget,
            value=value,
            best_on_test=best_on_test,
            knn=knn,
            run=job.name,
            seconds=round(seconds, 1),
            machine=torch.cuda.get_device_name(torch_device)
            if torch_device.type == "cuda"
            else f"CPU ({platform.machine()})",
            version=__version__,
            date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        )

    def _train(self, job: Job, device: str) -> Run:
        folder = self.out / "runs" / job.name
        if (folder / "encoder.safetensors").exists() and (run := load_run(folder)).progress is None:
            return run
        folder.parent.mkdir(parents=True, exist_ok=True)
        training = job.training
        settings = replace(training.settings, seed=job.seed, device=device)
        data, data_dir = self._locate(training.data, training.data_settings)
        data_settings = replace(training.data_settings, data_dir=data_dir)
        return pretrain(data, settings, data_settings, out=folder, resume=True, progress=self.progress)

    def _measure(self, run: Run, cell: Cell, device: str) -> list[float | None]:
        """The numbers of a cell, as in `ResultRow`: value, best_on_test and knn."""
        protocol, data = cell.measurement
        if protocol == "map":
            self._draw_map(run, data, device)
            return [None, None, None]
        result = self._evaluate(run, protocol, data, device)
        if cell.metric == "linear":
            knn = self._evaluate(run, "knn", data, device)
            return [round(100 * value, 3) for value in (result.value, result.metrics["paper_accuracy"], knn.value)]
        metric = {"training": "train_accuracy"}.get(cell.metric, cell.metric)
        value = result.scaled if protocol == metric else 100 * result.metrics[metric]
        return [round(value, 3), round(value, 3), None]

    def _evaluate(self, run: Run, protocol: str, data_name: str, device: str) -> Result:
        """Evaluate, or return the stored result of the same evaluation, for another cell or before an interruption."""
        is_images = DATASETS[data_name].kind == "images"
        random_crops = protocol == "linear-paper" and is_images
        restandardize = is_images and data_name != run.config.data.name
        hyperparameters = self._hyperparameters(protocol, data_name)
        expected = {} if hyperparameters is None else json.loads(json.dumps(asdict(hyperparameters)))
        data, data_dir = self._locate(data_name)
        for result in run.evaluations:
            same_data = result.protocol == protocol and result.data in (data_name, data_dir)
            same_options = (bool(result.random_crops), result.restandardized) == (random_crops, restandardize)
            same_options &= result.representation == "features" and result.labels_per_class is None
            if same_data and same_options and result.hyperparameters == expected:
                return result
        return evaluate(
            run,
            data,
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
        if protocol == "linear-paper" and self.budget == "smoke":
            return LinearPaper(epochs=2, milestones=(1,))
        if protocol == "linear-paper" and data_name.startswith("imagenet"):
            return LinearPaper(lrs=(30,), milestones=(60, 80), decay=0.1)
        return {"linear-paper": LinearPaper(), "knn": KNN(), "pinv": PInv()}.get(protocol)

    def _draw_map(self, run: Run, data_name: str, device: str) -> None:
        """Draw a map of ten classes, spread evenly over all classes if there are more."""
        assert run.path is not None
        data, data_dir = self._locate(data_name)
        data = load_for_run(run, data, data_dir=data_dir)
        classes = data.display_names[:: max(1, len(data.display_names) // MAP_CLASSES)][:MAP_CLASSES]
        path = self.out / "maps" / f"{run.path.name}-{data_name}.svg"
        path.parent.mkdir(exist_ok=True)
        draw_map(run, path, data, samples=MAP_SAMPLES, classes=classes, device=device)

    def _locate(self, name: str, data_settings: DataSettings = DataSettings()) -> tuple[Any, str | None]:
        """A data set's name, or fake data, and the folder with its files, unless it is downloaded."""
        if self.budget != "smoke":
            return name, dataset_folder(name, self.data_dir)
        if name == "voc":
            return name, str(fake_voc(self.out / "fake-voc"))
        return fake_data(name, data_settings), None
