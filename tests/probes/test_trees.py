"""Tree ensembles on features, and the choice between two kinds of them."""

import pytest
import torch
from sklearn.ensemble import ExtraTreesClassifier

from imix import InputError
from imix.evaluation import Trees
from imix.probes.trees import predict_by_trees
from tests.probes.helpers import blobs

QUICK = Trees(n_estimators=20)


def test_few_samples_are_classified_by_extremely_randomized_trees():
    train, test = blobs(40), blobs(30, seed=1)
    probabilities, name = predict_by_trees(train.inputs[None], train.labels[None], test.inputs, 3, QUICK)
    expected = ExtraTreesClassifier(20, random_state=0).fit(train.inputs, train.labels)
    assert name == "ExtraTreesClassifier"
    assert probabilities[0].numpy() == pytest.approx(expected.predict_proba(test.inputs))


def test_gradient_boosting_is_chosen_where_it_is_better():
    x = torch.rand(600, 12, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0.37).long()  # one threshold among many irrelevant columns
    _, name = predict_by_trees(x[None], y[None], x[:5], 2, Trees(n_estimators=3))
    assert name == "HistGradientBoostingClassifier"


def test_classes_missing_from_a_training_set_get_probability_zero():
    train = blobs(40, classes=2)
    probabilities, _ = predict_by_trees(train.inputs[None], 2 * train.labels[None], train.inputs, 3, QUICK)
    assert probabilities.shape == (1, 40, 3)
    assert (probabilities[..., 1] == 0).all() and probabilities.sum(2).numpy() == pytest.approx(1)


def test_numeric_targets_are_predicted():
    x = torch.rand(200, 3, generator=torch.Generator().manual_seed(0))
    predictions, name = predict_by_trees(x[None], 10 * x[None, :, 0], x, 1, QUICK)
    assert name.endswith("Regressor")
    assert (predictions[0, :, 0] - 10 * x[:, 0]).abs().mean() < 0.5


def test_invalid_hyperparameters_are_rejected_by_name():
    with pytest.raises(InputError, match="n_estimators must be an int above 0; got 0"):
        Trees(n_estimators=0)
