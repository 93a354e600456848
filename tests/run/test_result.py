"""Results: printing, the round trip through JSON, and damaged lines of evaluations.jsonl."""

import json
from dataclasses import replace

import pytest
from torch import nn

from imix import InputError
from imix.files import append_jsonl
from imix.run import Run, as_run
from imix.run.result import Result, Split
from tests.helpers import cells

LINEAR = Result(
    "linear",
    "digits",
    {"accuracy": 0.962, "train_accuracy": 1.0, "paper_accuracy": 0.97, "majority_accuracy": 0.102},
    {"epochs": 100, "lrs": [1, 3]},
    Split(train=1297, test=500),
    confusion=[[300, 10], [9, 181]],
    classes=["cat", "dog"],
    details={"lr": 30, "by_lr": {"1": 0.9, "3": 0.95}},
)
ALL_OPTIONS = Result(
    "knn",
    "animals.csv",
    {"accuracy": 0.5},
    {"k": 20},
    Split(80, 20, held_out=True, seed=3, test_file="later.csv", unlabeled=7),
    label="breed",
    representation="inputs",
    labels_per_class=10,
    draws=5,
    std={"accuracy": 0.01},
    intervals={"accuracy": (0.4, 0.6)},
    random_crops="shift 4, flip 0.5",
    restandardized=True,
)
FED = Result("fed", "digits", {"distance": 0.0012}, {}, Split(train=8, test=2))
DETECTION = Result("detection", "voc", {"ap": 0.5, "ap50": 0.75, "ap75": 0.25}, {"iterations": 4}, Split(8, 4))


@pytest.fixture
def run(tmp_path) -> Run:
    """A run in memory, with a folder for its results."""
    run = as_run(nn.Flatten())
    run.path = tmp_path
    return run


def test_a_result_prints_its_metrics_and_hyperparameters():
    assert str(LINEAR) == (
        "linear on digits: 96.20% (training accuracy: 100.00%; with lr chosen on the test set, as in the paper: "
        "97.00%; most frequent class: 10.20%; lr 30)\n  epochs 100, lrs [1, 3], train 1297, test 500"
    )


def test_a_result_prints_its_options():
    assert str(ALL_OPTIONS) == (
        "knn on animals.csv: 50.00%\n  k 20, inputs, 10 labels per class, 5 draws, train 80, test 20 held out with "
        "seed 3, test file later.csv, 7 without label ignored, random crops (shift 4, flip 0.5), restandardized, "
        "label breed"
    )


def test_a_distance_has_a_value_but_no_accuracy():
    assert str(FED) == "fed on digits: 12.00e-4\n  train 8, test 2"
    assert FED.value == 0.0012 and FED.is_distance
    with pytest.raises(AttributeError, match="fed measures distance, not accuracy"):
        FED.accuracy  # noqa: B018


def test_the_main_metric_of_detection_is_average_precision():
    assert (DETECTION.metric, DETECTION.value, DETECTION.formatted) == ("ap", 0.5, "50.00%")
    with pytest.raises(AttributeError, match="detection measures ap, not accuracy"):
        DETECTION.accuracy  # noqa: B018


@pytest.mark.parametrize("result", [LINEAR, ALL_OPTIONS, FED, DETECTION], ids=["linear", "options", "fed", "detection"])
def test_a_result_is_the_same_after_a_round_trip_through_json(result, run):
    assert Result.from_json(json.loads(json.dumps(result.to_json()))) == result
    run.add_result(result)
    assert run.evaluations == [result]


def test_fields_with_a_default_may_be_missing():
    value = {"protocol": "fed", "data": "digits", "metrics": {"distance": 0.0012}, "hyperparameters": {}}
    assert Result.from_json(value | {"split": {"train": 8, "test": 2}}) == FED


def test_a_notebook_shows_a_table_with_the_main_metric_first_and_escaped_names():
    named = replace(LINEAR, data="<b>x\x1b")
    assert named._repr_html_().startswith(r"<div><b>linear on &lt;b&gt;x\x1b</b></div><table>")
    assert cells(named) == [
        *("", "features", "accuracy", "96.20%", "training accuracy", "100.00%"),
        *("with lr chosen on the test set, as in the paper", "97.00%", "most frequent class", "10.20%", "lr", "30"),
    ]
    assert cells(ALL_OPTIONS) == ["", "inputs", "95% interval", "accuracy", "50.00%", "40.00% to 60.00%"]
    assert "train 80, test 20 held out with seed 3" in ALL_OPTIONS._repr_html_()
    assert cells(FED) == ["", "features", "distance", "12.00e-4"]
    assert cells(replace(DETECTION, metrics={"ap50": 0.75, "ap": 0.5}))[2:] == ["ap", "50.00%", "ap50", "75.00%"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"protocol": None}, "protocol must be a string; got None"),
        ({"metrics": 0.5}, "metrics must be an object; got 0.5"),
        ({"metrics": {"loss": 0.5}}, "metrics.accuracy is missing"),
        ({"metrics": {"accuracy": "0.5"}}, "metrics['accuracy'] must be a number; got '0.5'"),
        ({"protocol": "fed"}, "metrics.distance is missing"),
        ({"split": {"train": 8}}, "split.test is missing"),
        ({"split": {"train": 8, "test": "2 held out of train"}}, "split.test must be an integer; got '2 held out"),
        ({"confusion": [[1, 2], 3]}, "confusion[1] must be a list; got 3"),
        ({"value": 0.5}, "unknown key 'value'"),
        ({"data": ""}, "data and split.test_file must not be empty"),
        ({"split": {"train": 8, "test": 2, "test_file": ""}}, "data and split.test_file must not be empty"),
        ({"intervals": {"accuracy": [0.5]}}, "intervals must have two ends"),
    ],
)
def test_a_malformed_line_is_skipped_with_a_message(run, capsys, change, message):
    for value in (LINEAR.to_json(), LINEAR.to_json() | change, ALL_OPTIONS.to_json()):
        append_jsonl(run.path / "evaluations.jsonl", value)
    assert run.evaluations == [LINEAR, ALL_OPTIONS]
    expected = f"{run.path}/evaluations.jsonl: skipped a line that is not a result: {message}"
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(expected)
    with pytest.raises(InputError):
        Result.from_json(LINEAR.to_json() | change)
