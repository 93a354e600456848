"""What an encoder is worth: `evaluate` with a protocol, `embed` for the vectors themselves."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from imix.data import Data, Tensors, load
from imix.errors import InputError
from imix.evaluation.features import Encoded, frozen
from imix.evaluation.knn import KNN, knn
from imix.evaluation.linear import Linear, linear
from imix.evaluation.pinv import PInv, pinv
from imix.evaluation.vectors import check_shape, embed
from imix.run import Run
from imix.train.loop import pick_device

__all__ = ["KNN", "Linear", "PInv", "Result", "embed", "evaluate"]

PROTOCOLS = ("linear", "knn", "pinv")


@dataclass(frozen=True)
class Result:
    """An accuracy, never without the constants behind it."""

    protocol: str
    data: str
    accuracy: float
    constants: dict[str, Any]
    details: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        shown = {name: value for name, value in self.details.items() if name != "by_lr"} | self.constants
        shown |= {name: f"{100 * value:.2f} %" for name, value in shown.items() if name.endswith("accuracy")}
        constants = ", ".join(f"{name} {value}" for name, value in shown.items())
        return f"{self.protocol} on {self.data}: {100 * self.accuracy:.2f} % ({constants})"


def evaluate(
    run: "Run | str | Path",
    data: Any = None,
    protocol: str = "linear",
    *,
    labels: Any = None,
    device: str = "auto",
    seed: int = 0,
) -> Result:
    """Accuracy of a run's frozen encoder on labelled data; `data` is what the run was trained on unless given.

    "linear" is the paper's linear evaluation, "knn" the cosine nearest neighbours' vote, "pinv" the pseudoinverse.
    Data without a test part has a fifth held out. The result is added to the run folder's evaluations.jsonl.
    """
    if protocol not in PROTOCOLS:
        raise InputError(f"unknown protocol {protocol!r}; choose from {', '.join(PROTOCOLS)}")
    run = run if isinstance(run, Run) else Run.load(run)
    name = run.config["data"]["name"] if data is None else data
    if data is None and name == "given":
        raise InputError("the run was trained on arrays; give data=... (and labels=...) to evaluate it on")
    dataset, split = _with_test(load(name, labels), seed)
    check_shape(run, dataset)
    where = pick_device(device)
    encoder = run.encoder.to(where)
    classes = dataset.train.classes
    with frozen(encoder):
        train, test = (
            Encoded(encoder, source, where) for source in (dataset.train, dataset.test) if source is not None
        )
        if protocol == "linear":
            found = linear(train, test, classes, Linear(seed=seed))
            details = asdict(found)
            result = Result(protocol, dataset.name, details.pop("accuracy"), asdict(Linear(seed=seed)) | split, details)
        elif protocol == "knn":
            result = Result(protocol, dataset.name, knn(train, test, classes), asdict(KNN()) | split)
        else:
            result = Result(protocol, dataset.name, pinv(train, test, classes), asdict(PInv()) | split)
    if run.path is not None:
        with open(run.path / "evaluations.jsonl", "a") as file:
            file.write(json.dumps(asdict(result)) + "\n")
    return result


def _with_test(data: Data, seed: int) -> tuple[Data, dict[str, Any]]:
    """Data that surely has labelled test samples, and how it got them."""
    for part, source in (("training", data.train), ("test", data.test)):
        if source is not None and source.labels is None:
            raise InputError(f"the {part} samples of {data.name} have no labels, and every protocol needs them")
    sizes = {"train": len(data.train)}
    if data.test is not None:
        return data, sizes | {"test": len(data.test)}
    if not isinstance(data.train, Tensors) or len(data.train) < 5:
        raise InputError(f"{data.name} has no test samples, and {len(data.train)} are too few to hold some out")
    order = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(seed))
    cut = len(order) // 5
    train, test = data.train.take(order[cut:]), data.train.take(order[:cut])
    return Data(data.name, train, test, data.class_names), {
        "train": len(train),
        "test": f"{cut} held out of train",
    }
