"""The linear probe against scikit-learn's solution of the same problem."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, Ridge

from imix import InputError
from imix.evaluation import Linear
from imix.probes import linear
from imix.probes.linear import draw_folds, fit_linear
from tests.probes.helpers import blobs


def standardized_blobs(n, classes=3, width=5, seed=0, noise=3.0):
    source = blobs(n, seed=seed, classes=classes, width=width, noise=noise)
    x = source.inputs
    return (x - x.mean(0)) / x.std(0, correction=0), source.labels


@pytest.mark.parametrize("strength", [1e-3, 0.1, 10.0])
@pytest.mark.parametrize(("n", "width"), [(120, 5), (30, 80)])  # more samples than features, and fewer
def test_the_classifier_is_scikit_learns_logistic_regression(strength, n, width):
    x, y = standardized_blobs(n, width=width)
    model = fit_linear(x[None].double(), y[None], 3, Linear(strengths=(strength,)))
    expected = LogisticRegression(C=strength, tol=1e-10, max_iter=10_000).fit(x.double(), y)
    probabilities = model(x.double())[0].softmax(1)
    assert probabilities.numpy() == pytest.approx(expected.predict_proba(x.double()), abs=2e-4)


def test_the_regressor_is_ridge_regression():
    x, _ = standardized_blobs(100)
    y = x @ torch.arange(5.0) + torch.randn(100, generator=torch.Generator().manual_seed(0))
    model = fit_linear(x[None].double(), y[None].double(), 1, Linear(strengths=(0.1,)))
    expected = Ridge(alpha=10.0).fit(x.double(), y.double())  # alpha is 1 / C
    assert model(x.double())[0, :, 0].numpy() == pytest.approx(expected.predict(x.double()), abs=1e-4)


def test_training_sets_that_are_fitted_together_are_fitted_like_each_alone():
    sets = [standardized_blobs(60, seed=seed) for seed in range(3)]
    x, y = torch.stack([x for x, _ in sets]).double(), torch.stack([y for _, y in sets])
    together = fit_linear(x, y, 3)
    for i in range(3):
        alone = fit_linear(x[i : i + 1], y[i : i + 1], 3)
        assert alone.strengths == together.strengths[i : i + 1]
        assert alone(x[0])[0].softmax(1).numpy() == pytest.approx(together(x[0])[i].softmax(1).numpy(), abs=2e-3)


def test_the_strength_is_the_best_in_cross_validation():
    x, y = standardized_blobs(90, width=40, noise=6)
    strengths = (1e-4, 1e-2, 1.0, 100.0)
    folds = draw_folds(y, 5, 0, 1000)
    losses = []
    for strength in strengths:
        total = 0.0
        for fold in range(5):
            kept, held_out = (folds != fold).numpy(), (folds == fold).numpy()
            model = LogisticRegression(C=strength, tol=1e-8, max_iter=10_000).fit(x[kept].double(), y[kept])
            probabilities = model.predict_proba(x[held_out].double())
            total -= np.log(probabilities[np.arange(held_out.sum()), y[held_out]]).sum()
        losses.append(total)
    model = fit_linear(x[None], y[None], 3, Linear(strengths=strengths))
    assert model.strengths == [strengths[int(np.argmin(losses))]]


@pytest.mark.parametrize(("informative", "scale"), [("inputs", 16.0), ("features", 1.0)])
def test_cross_validation_chooses_the_penalty_of_inputs_beside_features(informative, scale):
    good, y = standardized_blobs(60, width=5, noise=2)
    noise = torch.randn(60, 300 if informative == "inputs" else 5, generator=torch.Generator().manual_seed(1))
    blocks = [good, noise] if informative == "inputs" else [noise, good]
    x = torch.cat(blocks, 1).double()
    model = fit_linear(x[None], y[None], 3, n_inputs=5)
    scaled = torch.cat([scale * x[:, :5], x[:, 5:]], 1)
    expected = LogisticRegression(C=model.strengths[0], tol=1e-10, max_iter=10_000).fit(scaled, y)
    assert model(x)[0].softmax(1).numpy() == pytest.approx(expected.predict_proba(scaled), abs=2e-4)


def test_the_fit_is_deterministic():
    x, y = standardized_blobs(100)
    first, second = (fit_linear(x[None], y[None], 3) for _ in range(2))
    assert torch.equal(first.weight, second.weight) and torch.equal(first.bias, second.bias)


def test_folds_are_spread_over_the_classes_and_limited_to_some_rows():
    labels = torch.tensor([0] * 40 + [1] * 10)
    folds = draw_folds(labels, 5, seed=0, max_rows=1000)
    assert [folds[labels == c].bincount().tolist() for c in (0, 1)] == [[8] * 5, [2] * 5]
    limited = draw_folds(labels, 5, seed=0, max_rows=20)
    assert (limited >= 0).sum() == 20 and limited[limited >= 0].bincount().tolist() == [4] * 5


def test_cross_validation_on_some_of_the_rows_still_fits_all_of_them(monkeypatch):
    x, y = standardized_blobs(700)
    monkeypatch.setattr(linear, "MAX_CV_ROWS", 100)
    model = fit_linear(x[None].double(), y[None], 3)
    expected = LogisticRegression(C=model.strengths[0], tol=1e-10, max_iter=1000).fit(x.double(), y)
    assert model(x.double())[0].softmax(1).numpy() == pytest.approx(expected.predict_proba(x.double()), abs=2e-4)


@pytest.mark.parametrize("n_classes", [1, 3])
def test_a_single_sample_is_predicted_for_all(n_classes):
    x, y = standardized_blobs(30)
    targets = y.double() if n_classes == 1 else y
    outputs = fit_linear(x[None, :1].double(), targets[None, :1], n_classes)(x.double())[0]
    predicted = outputs[:, 0] if n_classes == 1 else outputs.argmax(1)
    assert torch.allclose(predicted.double(), y[0].double().expand(30), atol=1e-3)


def test_a_class_with_a_single_sample_and_constant_features_are_no_problem():
    x, y = standardized_blobs(30)
    y[0] = 3
    x[:, 1] = 0
    assert fit_linear(x[None], y[None], 4)(x).isfinite().all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"strengths": ()}, "strengths must be one or more numbers above 0"),
        ({"strengths": (1.0, 0.0)}, "strengths must be one or more numbers above 0"),
        ({"folds": 1}, "folds must be an int above 1; got 1"),
    ],
)
def test_invalid_hyperparameters_are_rejected_by_name(arguments, message):
    with pytest.raises(InputError, match=message):
        Linear(**arguments)
