"""One training behind the paper's numbers, and what is measured of it."""

import json
import platform
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from imix.data.uci import COVTYPE_FILES, HIGGS_FILES
from imix.detection import Detection
from imix.errors import InputError, TrainingError
from imix.evaluation import KNN, Linear, PInv, Result, evaluate
from imix.evaluation.reading import load_for
from imix.paper.budget import Budget, Job
from imix.paper.experiment import Measurement
from imix.paper.recipes import IMAGES
from imix.paper.stand_in import stand_in, stand_in_voc
from imix.pretraining import pretrain
from imix.reports.maps import draw_map
from imix.run import Run
from imix.train.device import pick_device

MAP_CLASSES, MAP_SAMPLES = 10, 2000  # that a map shows
FILES = {  # by one of which a folder is known as that of a data set
    "cifar10": ("cifar10.npz", "test_batch.bin", "cifar-10-batches-bin", "cifar-10-batches-py"),
    "cifar100": ("cifar100.npz", "test.bin", "cifar-100-binary", "cifar-100-python"),
    "imagenet": ("train",),
    "imagenet100": ("train",),
    "speech_commands": ("testing_list.txt", "speech_commands_v0.01"),
    "covtype": COVTYPE_FILES,
    "higgs100k": HIGGS_FILES,
    "higgs1m": HIGGS_FILES,
    "voc": ("Annotations", "VOC2007", "VOCdevkit"),
}


class Value(NamedTuple):
    """As in `Found`."""

    value: float | None = None
    paper_way: float | None = None
    knn: float | None = None


class Outcome(NamedTuple):
    """What came of a job, by what a cell asks (a measure, and the data); and what could not be done."""

    values: dict[tuple[str, str], Value]
    failures: list[InputError | TrainingError]
    seconds: float
    machine: str


def place_of(name: str, data_dir: Path | None) -> str | None:
    """Where a data set's files are: the folder of its name, or the one that was given; None has it fetched."""
    if data_dir is None:
        return None
    inner = data_dir / name
    if inner.is_dir():
        return str(inner)
    return str(data_dir) if any((data_dir / file).exists() for file in FILES[name]) else None


@dataclass(frozen=True)
class Worker:
    """Does jobs on a device; runs and maps go to the folder `out`, data sets are looked for in `data_dir`."""

    out: Path
    budget: Budget = "short"
    data_dir: Path | None = None
    device: str = "auto"
    progress: bool = True

    def do(self, job: Job) -> Outcome:
        """Train, unless that is done, and measure what is not measured yet."""
        folder = self.out / "runs" / job.name
        folder.parent.mkdir(parents=True, exist_ok=True)
        started = time.monotonic()
        values: dict[tuple[str, str], Value] = {}
        failures: list[InputError | TrainingError] = []
        device = self._device(job)
        try:
            run = self._train(job, folder, device)
            for measurement in job.measurements:
                try:
                    values |= self._measure(run, measurement, device)
                except InputError as error:  # of data that is not there; the other measurements are good
                    failures.append(error)
        except (InputError, TrainingError) as error:
            failures.append(error)
        where = pick_device(device)
        machine = torch.cuda.get_device_name(where) if where.type == "cuda" else f"CPU ({platform.machine()})"
        return Outcome(values, failures, time.monotonic() - started, machine)

    def _train(self, job: Job, folder: Path, device: str) -> Run:
        if (folder / "encoder.safetensors").exists():
            return Run.load(folder)
        training = job.training
        settings = replace(training.settings, seed=job.seed, device=device)
        reading = replace(training.reading, data_dir=self._place(training.data))
        data: Any = stand_in(training.data, reading) if self.budget == "smoke" else training.data
        return pretrain(data, settings, reading, out=folder, resume=True, progress=self.progress)

    def _measure(self, run: Run, measurement: Measurement, device: str) -> dict[tuple[str, str], Value]:
        """One measurement of a run, as every value that a cell may ask of it."""
        protocol, on = measurement
        if protocol == "map":
            self._draw_map(run, on, device)
            return {("map", on): Value()}
        result = self._evaluate(run, protocol, on, device)
        if protocol == "detection":
            found = {"ap": result.value, "ap50": result.details["ap50"], "ap75": result.details["ap75"]}
            return {(name, on): Value(100 * value, 100 * value) for name, value in found.items()}
        if protocol == "linear":
            train = 100 * result.details["train_accuracy"]
            knn = 100 * self._evaluate(run, "knn", on, device).value
            accuracy = Value(100 * result.value, 100 * result.details["paper_accuracy"], knn)
            return {("linear", on): accuracy, ("training", on): Value(train, train)}
        return {(protocol, on): Value(result.scaled, result.scaled)}

    def _evaluate(self, run: Run, protocol: str, on: str, device: str) -> Result:
        """By a protocol, unless the same was done before the command was stopped."""
        assert run.path is not None
        views = protocol == "linear" and on in IMAGES
        standardise = on in IMAGES and on != run.config["data"]["name"]
        constants, data, place = self._constants(protocol, on), self._data(on), self._place(on)
        if on == "voc" and self.budget == "smoke":
            place = str(stand_in_voc(self.out / "stand-in-voc"))
        used = {} if constants is None else json.loads(json.dumps(asdict(constants)))
        for line in run.evaluations:
            if line.get("protocol") != protocol or line.get("data") not in (on, place):
                continue
            before = line["constants"]  # which say more: what was held out, the views
            same = used == {name: before.get(name) for name in used}
            seen = (views, standardise) == ("views" in before, "standardised" in before)
            if same and seen and "of" not in before:
                return Result(**line)
        return evaluate(
            run,
            data,
            protocol,
            data_dir=place,
            augment=views,
            standardise=standardise,
            device=device,
            constants=constants,
        )

    def _constants(self, protocol: str, on: str) -> Any:
        """Of a protocol, if it has any."""
        if protocol == "detection":
            if self.budget == "smoke":
                quick = Detection(iterations=2, batch_size=2, warmup=1, milestones=(1,), precise_bn=1)
                return replace(quick, min_sizes=(64,), test_size=64, max_size=96, regions=16)
            return Detection(iterations=2000, milestones=(1500, 1800)) if self.budget == "short" else Detection()
        if protocol == "linear" and self.budget == "smoke":
            return Linear(epochs=2, milestones=(1,))
        if protocol == "linear" and on.startswith("imagenet"):
            return Linear(rates=(30,), milestones=(60, 80), decay=0.1)
        return {"linear": Linear(), "knn": KNN(), "pinv": PInv()}.get(protocol)

    def _draw_map(self, run: Run, on: str, device: str) -> None:
        """A map of ten classes, evenly spread where there are more."""
        assert run.path is not None
        data = load_for(run, self._data(on), data_dir=self._place(on))
        chosen = data.called[:: max(1, len(data.called) // MAP_CLASSES)][:MAP_CLASSES]
        path = self.out / "maps" / f"{run.path.name}-{on}.svg"
        path.parent.mkdir(exist_ok=True)
        draw_map(run, path, data, samples=MAP_SAMPLES, classes=chosen, device=device)

    def _device(self, job: Job) -> str:
        return self.device if job.training.settings.device == "auto" else job.training.settings.device

    def _data(self, name: str) -> Any:
        return stand_in(name) if self.budget == "smoke" and name != "voc" else name

    def _place(self, name: str) -> str | None:
        """Where a data set's files are, unless tiny data stands in for it."""
        return None if self.budget == "smoke" else place_of(name, self.data_dir)
