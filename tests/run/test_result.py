"""How results are printed."""

import pytest

from imix.run.result import Result


def test_a_result_prints_its_details_and_hyperparameters():
    details = {"lr": 30, "train_accuracy": 1.0, "paper_accuracy": 0.97, "confusion": [[1]], "majority_accuracy": 0.102}
    assert str(Result("linear", "digits", 0.962, {"epochs": 100, "train": 1297}, details)) == (
        "linear on digits: 96.20 % (lr 30; training accuracy: 100.00 %; with lr chosen on the test set, as in the "
        "paper: 97.00 %; most frequent class: 10.20 %)\n  epochs 100, train 1297"
    )


def test_a_distance_has_a_value_but_no_accuracy():
    result = Result("fed", "digits", 0.0012, {})
    assert str(result) == "fed on digits: 12.00e-4"
    with pytest.raises(AttributeError, match="distance"):
        result.accuracy  # noqa: B018
