"""The summary: its rows and columns, the draws of few labels, and its warnings."""

import json
from dataclasses import replace

import pytest
import torch
from torch import nn

import imix
from imix import InputError
from imix.data import Data, TensorSource
from imix.evaluation.samples import Samples
from imix.evaluation.summary import draw_labels
from imix.files import read_jsonl
from tests.helpers import cells
from tests.probes.helpers import QUICK, blobs

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return imix.pretrain(blobs(300), QUICK, out=tmp_path_factory.mktemp("runs") / "blobs", progress=False)


@pytest.fixture(scope="module")
def data():
    return Data("blobs", blobs(300, noise=2), blobs(250, seed=1, noise=2))


@pytest.fixture(scope="module")
def summary(run, data):
    return imix.evaluate(run, data, labels_per_class=(5, 20), draws=3, trees=True)


def test_features_and_inputs_are_measured_by_the_same_classifiers(summary):
    rows = {(result.representation, result.protocol) for result in summary.results if not result.labels_per_class}
    both = "inputs + features"
    assert rows == {
        ("none", "majority"),
        *(("inputs", "linear"), ("inputs", "trees"), ("features", "linear"), ("features", "knn")),
        *((both, "linear"), (both, "trees")),
    }
    assert {result.labels_per_class for result in summary.results} == {None, 5, 20}


def test_results_of_the_summary_are_those_of_single_protocols(run, data, summary):
    for protocol, inputs in (("linear", False), ("linear", True), ("knn", False), ("trees", True)):
        single = imix.evaluate(run, data, protocol, inputs=inputs)
        row = summary.find("inputs" if inputs else "features", protocol)
        assert row.metrics.items() <= single.metrics.items()
        assert row.intervals == single.intervals


def test_few_labels_have_means_and_standard_deviations_over_the_draws(summary):
    result = summary.find("features", "linear", 5)
    assert result.draws == 3 and set(result.std) == set(result.metrics) - {"majority_accuracy"} and not result.intervals
    assert result.value <= summary.find("features", "linear").value + 0.05


def test_every_result_is_stored_and_read_again(run, summary):
    assert len(read_jsonl(run.path / "evaluations.jsonl")) >= len(summary.results)
    stored = imix.load_run(run.path).evaluations[: len(summary.results)]
    assert json.loads(json.dumps([result.to_json() for result in stored])) == json.loads(
        json.dumps([result.to_json() for result in summary.results])
    )


def test_the_printed_tables_show_all_metrics_and_the_curve(summary):
    text = str(summary)
    for part in ("balanced accuracy", "macro F1", "AUROC", "log loss", "(95% interval)", "5 per class", "20 per class"):
        assert part in text
    for row in ("class frequencies", "inputs, trees", "features, kNN", "inputs + features, linear"):
        assert row in text
    assert max(map(len, text.splitlines())) <= 110


def test_a_notebook_shows_the_numbers_of_the_printed_tables(summary):
    text, shown = str(summary), cells(summary)
    assert shown[:3] == ["all labels", "accuracy (95% interval)", "balanced accuracy"]
    assert shown.count("inputs + features, linear") == 2, "there must be a table with all labels and one with few"
    assert [cell for cell in shown if cell not in text] == []
    assert summary._repr_html_().count("<table>") == 2
    assert "mean and standard deviation of 3 random draws" in summary._repr_html_()
    renamed = imix.evaluation.Summary([replace(result, data="<i>") for result in summary.results], ["<u>"])
    assert "<b>&lt;i&gt;: train" in renamed._repr_html_() and "Note: &lt;u&gt;" in renamed._repr_html_()


def test_the_same_seed_gives_the_same_summary(run, data, summary):
    assert str(imix.evaluate(run, data, labels_per_class=(5, 20), draws=3, trees=True)) == str(summary)
    other = imix.evaluate(run, data, labels_per_class=(5, 20), draws=3, trees=True, seed=1)
    assert other.find("features", "linear", 5).metrics != summary.find("features", "linear", 5).metrics


def test_drawn_labels_have_the_same_number_of_each_class():
    labels = torch.arange(90) % 3
    labels[:3] = 3  # a class with three samples
    samples = Samples(torch.zeros(90, 1), torch.zeros(0, 1), labels, torch.zeros(0), 4)
    rows = draw_labels(samples, 10, draws=2, seed=0)
    assert [labels[drawn].bincount().tolist() for drawn in rows] == [[10, 10, 10, 3]] * 2
    assert all(len(drawn.unique()) == 33 for drawn in rows) and not torch.equal(*rows)
    assert draw_labels(samples, 30, draws=2, seed=0) is None  # every sample


def test_samples_without_labels_are_described_without_classifiers(run):
    summary = imix.evaluate(run, blobs(100).inputs)
    assert set(summary.results[0].metrics) == {"uniformity", "effective_rank"}
    assert "pass `label` or `labels`" in str(summary) and "pass `label` or `labels`" in summary._repr_html_()
    assert cells(summary)[::2] == ["uniformity", "effective rank"]


def test_a_small_test_set_rare_classes_and_missing_labels_give_warnings(run):
    source = blobs(100)
    source.labels[:4] = torch.tensor([3, 3, 3, -1])
    warnings = " ".join(imix.evaluate(run, source, labels_per_class=(10,), draws=2).warnings)
    assert "test samples, so differences" in warnings
    assert "1 samples without a label were ignored" in warnings
    assert "fewer than the k=20 neighbors" in warnings
    assert "some classes have fewer than 10 training samples" in warnings


def test_features_that_are_worse_than_the_inputs_give_a_warning(data):
    useless = nn.Sequential(nn.Linear(5, 1, bias=False), nn.Tanh())
    nn.init.constant_(useless[0].weight, 1e-3)
    warnings = imix.evaluate(useless, data, labels_per_class=(), draws=2).warnings
    assert any("are worse than the inputs" in warning and "more epochs" in warning for warning in warnings)
    assert not imix.evaluate(nn.Flatten(), data, labels_per_class=(), draws=2).warnings


def test_inputs_that_are_too_large_or_have_several_fields_are_left_out():
    large = TensorSource(torch.rand(40, 12_000), torch.arange(40) % 2)
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(12_000, 4))
    fields = TensorSource({"a": torch.rand(40, 2), "b": torch.rand(40, 3)}, torch.arange(40) % 2)

    class Fields(nn.Module):
        def forward(self, x):
            return torch.cat([x["a"], x["b"]], 1)

    for module, source in ((encoder, large), (Fields(), fields)):
        summary = imix.evaluate(module, source, labels_per_class=(), draws=2)
        assert {result.representation for result in summary.results} == {"none", "features"}
        assert "the inputs were not evaluated for comparison" in str(summary).replace("\n", " ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"labels_per_class": (0,)}, "`labels_per_class` must be ints above 0"),
        ({"draws": 1}, "`draws` must be an int above 1; got 1"),
        ({"inputs": True}, "`inputs` does not apply to the summary, which includes them"),
        ({"hyperparameters": imix.evaluation.KNN()}, "the summary takes no hyperparameters"),
    ],
)
def test_invalid_options_are_rejected_by_name(run, data, arguments, message):
    with pytest.raises(InputError, match=message):
        imix.evaluate(run, data, **arguments)


def test_a_result_that_was_not_measured_is_a_key_error(summary):
    with pytest.raises(KeyError, match="features, trees, None"):
        summary.find("features", "trees")
