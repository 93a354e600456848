"""Metrics of classifiers and regressors on test samples, with bootstrap intervals.

Every metric is computed for many weightings of the test samples at once: weights of one give the metric itself, and the
counts of a bootstrap resample give the metric of that resample.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

RESAMPLES = 200  # bootstrap resamples of the test samples
CHUNK = 1 << 24  # maximum number of weights in memory at a time
MAX_AUROC_CLASSES = 100  # no AUROC for more classes
MIN_PROBABILITY = 1e-15  # smaller probabilities are clipped in the log loss


@dataclass(frozen=True)
class Metrics:
    """Values by name, and their 95% bootstrap intervals."""

    values: dict[str, float]
    intervals: dict[str, tuple[float, float]]


def classification_metrics(probabilities: Tensor, labels: Tensor, intervals: bool = True) -> Metrics:
    """Return accuracy, balanced accuracy, macro F1, AUROC and log loss of probabilities (n, C) for labels (n,).

    Balanced accuracy and AUROC (one class against the others) are averaged over the classes among `labels`; macro F1
    over the classes among labels and predictions. With ``intervals=False`` there are none.
    """
    return _with_intervals(partial(_classification, probabilities.double(), labels), labels, intervals)


def regression_metrics(predictions: Tensor, targets: Tensor, intervals: bool = True) -> Metrics:
    """Return R² and mean absolute error of predictions (n,) for targets (n,)."""
    return _with_intervals(partial(_regression, predictions.double(), targets.double()), targets, intervals)


def _with_intervals(measure: Callable[[Tensor], dict[str, Tensor]], labels: Tensor, intervals: bool) -> Metrics:
    """Call `measure` with weights of one, and with the counts of bootstrap resamples."""
    n = len(labels)
    values = {name: float(value) for name, value in measure(torch.ones(1, n).to(labels.device).double()).items()}
    if not intervals:
        return Metrics(values, {})
    generator = torch.Generator().manual_seed(0)  # the same resamples for all results
    resampled: dict[str, list[Tensor]] = {name: [] for name in values}
    for chunk in torch.arange(RESAMPLES).split(max(1, CHUNK // n)):
        drawn = torch.randint(n, (len(chunk), n), generator=generator)
        counts = torch.zeros(len(chunk), n, dtype=torch.double).scatter_add_(1, drawn, torch.ones(drawn.shape).double())
        for name, value in measure(counts.to(labels.device)).items():
            resampled[name].append(value)
    quantiles = torch.tensor([0.025, 0.975], dtype=torch.double, device=labels.device)
    bounds = {name: torch.cat(parts).nanquantile(quantiles).tolist() for name, parts in resampled.items()}
    return Metrics(values, {name: (low, high) for name, (low, high) in bounds.items()})


def _classification(probabilities: Tensor, labels: Tensor, weights: Tensor) -> dict[str, Tensor]:
    """Return the metrics (B,) for each row of weights (B, n)."""
    n_classes, predicted = probabilities.shape[1], probabilities.argmax(1)

    def by_class(classes: Tensor, weights: Tensor) -> Tensor:
        return weights.new_zeros(len(weights), n_classes).index_add_(1, classes, weights)

    correct = by_class(labels, weights * (predicted == labels))
    true, chosen, total = by_class(labels, weights), by_class(predicted, weights), weights.sum(1)
    of_label = probabilities.gather(1, labels[:, None])[:, 0].clamp(min=MIN_PROBABILITY)
    metrics = {
        "accuracy": correct.sum(1) / total,
        "balanced_accuracy": (correct / true).nanmean(1),  # 0 / 0 for a class without samples
        "macro_f1": (2 * correct / (true + chosen)).nanmean(1),
        "log_loss": -(weights @ of_label.log()) / total,
    }
    if n_classes <= MAX_AUROC_CLASSES:
        positives = (1,) if n_classes == 2 else range(n_classes)
        areas = [_auroc(probabilities[:, c], labels == c, weights) for c in positives]
        metrics["auroc"] = torch.stack(areas, 1).nanmean(1)
    return metrics


def _auroc(scores: Tensor, positive: Tensor, weights: Tensor) -> Tensor:
    """Return P(score of a positive > score of a negative) + P(equal) / 2 for each row of weights (B, n)."""
    distinct, rank = scores.unique(return_inverse=True)  # sorted
    empty = weights.new_zeros(len(weights), len(distinct))
    positives = empty.index_add(1, rank, weights * positive)
    negatives = empty.index_add(1, rank, weights * ~positive)
    below = negatives.cumsum(1) - negatives / 2
    return (positives * below).sum(1) / (positives.sum(1) * negatives.sum(1))


def _regression(predictions: Tensor, targets: Tensor, weights: Tensor) -> dict[str, Tensor]:
    """Return the metrics (B,) for each row of weights (B, n)."""
    total = weights.sum(1)
    mean = weights @ targets / total
    variance = weights @ targets.square() / total - mean.square()
    error = predictions - targets
    return {"r2": 1 - weights @ error.square() / total / variance, "mae": weights @ error.abs() / total}
