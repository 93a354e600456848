"""Metrics against scikit-learn, and bootstrap intervals against a plain loop."""

import numpy as np
import pytest
import torch
from sklearn import metrics as sk

from imix.probes import metrics
from imix.probes.metrics import classification_metrics, regression_metrics


def predictions(n=300, classes=4, seed=0, ties=False):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (n,), generator=generator)
    scores = torch.randn(n, classes, generator=generator) + 1.5 * torch.nn.functional.one_hot(labels, classes)
    probabilities = scores.double().softmax(1)
    if ties:  # as a few trees or neighbors would give
        probabilities = (8 * probabilities).round() + 1
        probabilities /= probabilities.sum(1, keepdim=True)
    return probabilities, labels


def reference(probabilities, labels):
    p, y = probabilities.numpy(), labels.numpy()
    area = sk.roc_auc_score(y, p[:, 1]) if p.shape[1] == 2 else sk.roc_auc_score(y, p, multi_class="ovr")
    predicted = p.argmax(1)
    return {
        "accuracy": sk.accuracy_score(y, predicted),
        "balanced_accuracy": sk.balanced_accuracy_score(y, predicted),
        "macro_f1": sk.f1_score(y, predicted, average="macro"),
        "log_loss": sk.log_loss(y, p),
        "auroc": area,
    }


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("ties", [False, True])
def test_classification_metrics_equal_those_of_scikit_learn(classes, ties):
    probabilities, labels = predictions(classes=classes, ties=ties)
    values = classification_metrics(probabilities, labels).values
    assert values == pytest.approx(reference(probabilities, labels), abs=1e-12)


def test_regression_metrics_equal_those_of_scikit_learn():
    generator = torch.Generator().manual_seed(0)
    targets = 50 + 3 * torch.randn(200, generator=generator).double()
    predicted = targets + torch.randn(200, generator=generator).double()
    values = regression_metrics(predicted, targets).values
    assert values["r2"] == pytest.approx(sk.r2_score(targets, predicted), abs=1e-9)
    assert values["mae"] == pytest.approx(sk.mean_absolute_error(targets, predicted), abs=1e-12)


def test_intervals_are_the_quantiles_over_resampled_test_samples():
    probabilities, labels = predictions(n=60)
    intervals = classification_metrics(probabilities, labels).intervals
    rows = torch.randint(60, (metrics.RESAMPLES, 60), generator=torch.Generator().manual_seed(0))
    resampled = [reference(probabilities[i], labels[i]) for i in rows]
    for name, interval in intervals.items():
        expected = np.quantile([values[name] for values in resampled], [0.025, 0.975])
        assert interval == pytest.approx(expected, abs=1e-9), name


def test_intervals_do_not_depend_on_how_many_resamples_fit_in_memory(monkeypatch):
    probabilities, labels = predictions()
    expected = classification_metrics(probabilities, labels)
    monkeypatch.setattr(metrics, "CHUNK", 1000)
    chunked = classification_metrics(probabilities, labels)
    for name, interval in expected.intervals.items():
        assert chunked.intervals[name] == pytest.approx(interval)


def test_a_rare_class_that_is_never_predicted_lowers_balanced_accuracy_but_hardly_accuracy():
    labels = (torch.arange(100) < 2).long()
    probabilities = torch.tensor([0.9, 0.1]).expand(100, 2)
    values = classification_metrics(probabilities, labels).values
    assert values["accuracy"] == pytest.approx(0.98)
    assert values["balanced_accuracy"] == 0.5
    assert values["auroc"] == 0.5


def test_classes_without_test_samples_are_left_out_of_averages():
    probabilities, labels = predictions(classes=3)
    labels = labels.clamp(max=1)
    values = classification_metrics(probabilities, labels).values
    expected = sk.balanced_accuracy_score(labels, probabilities.argmax(1))
    assert values["balanced_accuracy"] == pytest.approx(expected)
    assert np.isfinite(list(values.values())).all()


def test_there_is_no_auroc_for_very_many_classes():
    n = metrics.MAX_AUROC_CLASSES + 1
    values = classification_metrics(torch.full((10, n), 1 / n), torch.arange(10)).values
    assert "auroc" not in values and values["log_loss"] == pytest.approx(np.log(n))
