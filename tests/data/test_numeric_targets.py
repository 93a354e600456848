"""Labels that are numbers instead of classes: read, evaluated, fine-tuned."""

import numpy as np
import polars
import pytest
import torch

import imix
from imix import InputError
from tests.probes.helpers import QUICK


@pytest.fixture(scope="module")
def house_csv(tmp_path_factory):
    rng = np.random.default_rng(0)
    size, city = rng.normal(size=300), rng.choice(["a", "b"], 300)
    price = 100 + 10 * size + 5 * (city == "a") + rng.normal(size=300)
    price[:3] = np.nan
    path = tmp_path_factory.mktemp("data") / "houses.csv"
    polars.DataFrame({"size": size, "city": city, "rooms": rng.integers(1, 9, 300), "price": price}).write_csv(path)
    return path


@pytest.fixture(scope="module")
def run(house_csv):
    return imix.pretrain(house_csv, QUICK, imix.DataSettings(label="price"), progress=False)


def test_a_label_column_with_fractions_is_a_numeric_target(house_csv):
    data = imix.data.load(house_csv, imix.DataSettings(label="price"))
    assert data.train.is_numeric and data.n_classes == 0 and not data.class_names
    assert data.train.labels.isnan().tolist() == [True] * 3 + [False] * 297
    assert data.train.has_label.sum() == 297
    assert data.train.shape == (11,)  # the size, eight numbers of rooms and two cities


def test_a_label_column_of_integers_has_classes_unless_it_is_declared_numeric(house_csv):
    classes = imix.data.load(house_csv, imix.DataSettings(label="rooms"))
    assert classes.n_classes == 8
    numbers = imix.data.load(house_csv, imix.DataSettings(label="rooms", columns={"rooms": "numeric"}))
    assert numbers.train.is_numeric and numbers.train.labels.max() == 8


def test_labels_of_arrays_with_fractions_are_numeric_targets():
    data = imix.data.load(torch.randn(5, 2), labels=[0.5, 1, np.nan, 2, 3])
    assert data.train.is_numeric and data.train.has_label.tolist() == [True, True, False, True, True]
    with pytest.raises(InputError, match="infinite"):
        imix.data.load(torch.randn(2, 2), labels=[0.5, np.inf])


@pytest.mark.slow
def test_numeric_targets_are_evaluated_by_regression(run):
    summary = imix.evaluate(run, labels_per_class=(20,), draws=2)
    linear = summary.find("inputs", "linear")
    assert list(linear.metrics) == ["r2", "mae"] and linear.metric == "r2"
    assert linear.value > 0.95 and linear.split.unlabeled == 3
    assert summary.find("inputs + features", "trees").value > 0.5
    assert summary.find("none", "majority").value == pytest.approx(0, abs=0.1)
    assert "20 labels" in str(summary) and "MAE" in str(summary)
    assert imix.evaluate(run, protocol="knn").metric == "r2"


@pytest.mark.slow
def test_the_summary_measures_a_fine_tuned_regressor_in_the_units_of_the_target(run):
    summary = imix.evaluate(run, labels_per_class=(20,), draws=2, trees=False, finetune=True)
    tuned, linear = summary.find("features", "finetune"), summary.find("inputs + features", "linear")
    assert list(tuned.metrics) == list(tuned.intervals) == ["r2", "mae"]
    assert tuned.value > 0.95 and tuned.metrics["mae"] < 1.5 * linear.metrics["mae"]
    assert summary.find("features", "finetune", 20).draws == 2


def test_a_regressor_is_fine_tuned_and_predicts_in_the_units_of_the_target(run, house_csv, tmp_path):
    tuned = imix.finetune(run, epochs=20, device="cpu", out=tmp_path / "tuned")
    predictions = imix.predict(tmp_path / "tuned", house_csv, tmp_path / "p.csv")
    price = polars.read_csv(house_csv)["price"].to_numpy()
    assert np.abs(predictions.labels - price)[3:].mean() < 2
    assert predictions.classes == () == tuned.config.classes and predictions.probabilities.shape == (300, 0)
    assert polars.read_csv(tmp_path / "p.csv")["prediction"].to_numpy() == pytest.approx(predictions.labels, rel=1e-5)
    assert imix.finetune(run, mix="mixup", epochs=2, device="cpu").config.fine_tuning.mix == "mixup"


def test_what_needs_classes_says_so(run, house_csv):
    settings = imix.DataSettings(label="price")
    for call, message in [
        (lambda: imix.evaluate(run, protocol="linear-paper"), "protocol 'linear-paper' needs classes"),
        (lambda: imix.evaluate(run, protocol="pinv"), "protocol 'pinv' needs classes"),
        (lambda: imix.pretrain(house_csv, QUICK, settings, knn_every=1, progress=False), "`knn_every` needs classes"),
        (lambda: imix.pretrain(house_csv, QUICK, settings, method="supclr", progress=False), "are classes"),
    ]:
        with pytest.raises(InputError, match=message):
            call()


def test_a_fraction_of_data_with_numeric_targets_can_be_used(house_csv):
    data = imix.data.load(house_csv, imix.DataSettings(label="price", fraction=0.1))
    assert len(data.train) == 30
