"""The row of the summary for the fine-tuned encoder."""

import pytest
import torch

import imix
from imix import InputError
from imix.data import Data
from imix.evaluation.samples import encode
from imix.evaluation.summary import draw_labels
from imix.probes.metrics import classification_metrics
from tests.probes.helpers import CPU, QUICK, blobs

pytestmark = pytest.mark.slow

OPTIONS = {"labels_per_class": (5,), "draws": 2, "trees": False, "device": "cpu"}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return imix.pretrain(blobs(300), QUICK, out=tmp_path_factory.mktemp("runs") / "blobs", progress=False)


@pytest.fixture(scope="module")
def data():
    return Data("blobs", blobs(90, noise=3), blobs(250, seed=1, noise=3))


@pytest.fixture(scope="module")
def summary(run, data):
    return imix.evaluate(run, data, finetune=True, **OPTIONS)


def metrics_of_finetune(run, labeled, test):
    """The metrics of `imix.finetune` on these samples."""
    predictions = imix.predict(imix.finetune(run, labeled, device="cpu"), test, device="cpu")
    return classification_metrics(torch.from_numpy(predictions.probabilities), test.labels)


def test_with_all_labels_the_row_is_that_of_finetune(run, data, summary):
    row, expected = summary.find("features", "finetune"), metrics_of_finetune(run, data.train, data.test)
    assert expected.values.items() <= row.metrics.items() and row.intervals == expected.intervals
    assert row.hyperparameters["include_inputs"] and row.hyperparameters["epochs"] == 60


def test_few_labels_are_the_same_draws_as_those_of_the_other_rows(run, data, summary):
    row = summary.find("features", "finetune", 5)
    drawn = draw_labels(encode(run.encoder, data, CPU), 5, draws=2, seed=0)
    values = [metrics_of_finetune(run, data.train.take(rows), data.test).values["log_loss"] for rows in drawn]
    assert row.metrics["log_loss"] == pytest.approx(sum(values) / 2, rel=1e-12)
    assert row.std["log_loss"] > 0 and not row.intervals


def test_the_row_has_the_metrics_of_the_others_and_is_printed_in_both_tables(summary):
    for n in (5, None):
        tuned, linear = summary.find("features", "finetune", n), summary.find("features", "linear", n)
        assert list(tuned.metrics) == list(linear.metrics) and tuned.draws == linear.draws
    assert str(summary).count("\nfine-tuned encoder ") == 2


def test_the_other_rows_do_not_change(run, data, summary):
    without = imix.evaluate(run, data, **OPTIONS)
    assert without.results == summary.results[: len(without.results)]
    assert {result.protocol for result in summary.results[len(without.results) :]} == {"finetune"}


def test_only_the_results_are_written_to_the_run(data, tmp_path):
    imix.pretrain(blobs(100), QUICK, out=tmp_path, progress=False)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    summary = imix.evaluate(tmp_path, data, finetune=True, **OPTIONS)
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert after.pop("evaluations.jsonl") and after == before
    stored = [result for result in imix.load_run(tmp_path).evaluations if result.protocol == "finetune"]
    assert stored == [summary.find("features", "finetune", 5), summary.find("features", "finetune")]


def test_the_inputs_are_restandardized_before_fine_tuning(run, data):
    moved = Data("blobs", *(imix.data.TensorSource(1e3 * part.inputs, part.labels) for part in (data.train, data.test)))
    options = OPTIONS | {"labels_per_class": (), "finetune": True, "restandardize": True}
    rows = [imix.evaluate(run, source, **options).find("features", "finetune") for source in (data, moved)]
    assert rows[0].metrics["log_loss"] == pytest.approx(rows[1].metrics["log_loss"], rel=0.05)


def test_progress_is_shown(run, data, capsys, monkeypatch):
    monkeypatch.setattr("imix.progress.INTERVAL_SECONDS", 0.0)
    imix.evaluate(run, data, finetune=True, **OPTIONS)
    shown = capsys.readouterr().err
    assert "fine-tuning: 0 of 120 samples, 5 labels per class\n" in shown
    assert "fine-tuning: 15 of 120 samples, 5 labels per class, " in shown
    assert "fine-tuning: 30 of 120 samples, all labels, " in shown


def test_a_protocol_and_missing_labels_are_rejected(run, data):
    with pytest.raises(InputError, match="`finetune` adds a row to the summary, so it cannot be used with `protocol='"):
        imix.evaluate(run, data, "linear", finetune=True)
    with pytest.raises(InputError, match="have no labels; pass `labels`"):
        imix.evaluate(run, blobs(100).inputs, finetune=True)
