"""Measures one protocol: a classifier or regressor on frozen features, or the distance between training and test."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor

from imix.evaluation.samples import Samples
from imix.probes.features import EncodedSource
from imix.probes.fed import fed
from imix.probes.knn import KNN, knn
from imix.probes.linear import Linear, fit_linear
from imix.probes.linear_paper import MAX_CONFUSION_CLASSES, LinearPaper, linear_paper
from imix.probes.metrics import classification_metrics, regression_metrics
from imix.probes.pinv import PInv, pinv
from imix.probes.trees import Trees, predict_by_trees
from imix.run.result import Result

HYPERPARAMETERS: Mapping[str, type] = {
    "linear": Linear,
    "knn": KNN,
    "trees": Trees,
    "pinv": PInv,
    "linear-paper": LinearPaper,
}
ON_FEATURES = ("linear", "knn", "trees")  # protocols that take all features at once


def measure_features(
    protocol: str, samples: Samples, result: Result, hyperparameters: Any, rows: Tensor | None = None
) -> Result:
    """Return `result` with the metrics of a protocol.

    With `rows` (D, n), the protocol is trained on each of these D draws of training samples, and the metrics are means
    over the draws; without, it is trained on all, and the metrics have bootstrap intervals.
    """
    n_classes, labels, test_labels = samples.n_classes, samples.labels, samples.test_labels
    samples = samples if protocol == "knn" else samples.standardized()
    x, y = (samples.train[None], labels[None]) if rows is None else (samples.train[rows], labels[rows])
    if n_classes == 1:
        mean, std = labels.mean(), labels.std()
        outputs, details = _predict(protocol, x, (y - mean) / std, samples, hyperparameters)
        outputs = outputs * std + mean
    else:
        outputs, details = _predict(protocol, x, y, samples, hyperparameters)
    result = replace(result, protocol=protocol, hyperparameters=asdict(hyperparameters), details=details)
    return with_metrics(result, outputs, test_labels)


def with_metrics(result: Result, outputs: Tensor, test_labels: Tensor) -> Result:
    """Return `result` with the metrics of probabilities (D, m, C), or of numeric predictions (D, m, 1).

    The metrics are means over the D draws of labels. A single draw also has bootstrap intervals.
    """
    n_classes = outputs.shape[2]
    draws = [
        regression_metrics(output[:, 0], test_labels, intervals=len(outputs) == 1)
        if n_classes == 1
        else classification_metrics(output, test_labels, intervals=len(outputs) == 1)
        for output in outputs
    ]
    values = {name: torch.tensor([draw.values[name] for draw in draws], dtype=torch.double) for name in draws[0].values}
    confusion = []
    if (
        result.protocol == "linear"
        and result.representation == "features"
        and len(outputs) == 1
        and 1 < n_classes <= MAX_CONFUSION_CLASSES
    ):
        pairs = test_labels * n_classes + outputs[0].argmax(1)
        confusion = torch.bincount(pairs, minlength=n_classes**2).view(n_classes, n_classes).tolist()
    return replace(
        result,
        metrics={name: float(value.mean()) for name, value in values.items()} | result.metrics,
        draws=len(draws),
        std={name: float(value.std()) for name, value in values.items()} if len(draws) > 1 else {},
        intervals=draws[0].intervals,
        confusion=confusion,
        classes=result.classes if confusion else [],
    )


def _predict(
    protocol: str, x: Tensor, y: Tensor, samples: Samples, hyperparameters: Any
) -> tuple[Tensor, dict[str, Any]]:
    """Train on D training sets x (D, n, F) and y (D, n), and predict for the m test samples.

    Returns probabilities (D, m, C), or numeric predictions (D, m, 1), and details of the fit.
    """
    test, n_classes = samples.test, samples.n_classes
    if protocol == "linear":
        model = fit_linear(x, y, n_classes, hyperparameters, samples.n_inputs)
        outputs = model(test)
        return outputs if n_classes == 1 else outputs.softmax(2), {"strength": model.strengths[0]}
    if protocol == "trees":
        outputs, name = predict_by_trees(x, y, test, n_classes, hyperparameters)
        return outputs, {"model": name}
    votes = [knn(x_draw, y_draw, test, n_classes, hyperparameters) for x_draw, y_draw in zip(x, y, strict=True)]
    return torch.stack(votes), {}


def measure_batches(
    protocol: str, train: EncodedSource, test: EncodedSource, n_classes: int, result: Result, hyperparameters: Any
) -> Result:
    """Return `result` with the metrics of a protocol that reads features in batches."""
    if protocol == "fed":
        return replace(result, metrics={"distance": fed(train, test)})
    used = asdict(hyperparameters)
    if protocol == "pinv":
        accuracy = pinv(train, test, n_classes, hyperparameters)
        return replace(result, metrics={"accuracy": accuracy} | result.metrics, hyperparameters=used)
    details = asdict(linear_paper(train, test, n_classes, hyperparameters))
    metrics = {name: details.pop(name) for name in ("accuracy", "train_accuracy", "paper_accuracy")}
    confusion = details.pop("confusion")
    return replace(
        result,
        metrics=metrics | result.metrics,
        hyperparameters=used,
        confusion=confusion,
        classes=result.classes if confusion else [],
        details=details,
    )
