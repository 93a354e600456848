"""`imix.label_errors`: planted errors get the first ranks, with the true class as the suggestion."""

import numpy as np
import polars
import pytest
import torch
from sklearn.metrics import roc_auc_score

import imix
from imix import InputError
from imix.explore import label_errors as module
from tests.explore.helpers import customers


def labeled(points, labels):
    return imix.data.load(points, labels=labels)


def test_planted_errors_come_first_with_the_true_class_as_suggestion(run, tmp_path, read):
    wrong = [5, 40, 99]
    frame = customers(180).with_columns(
        churned=polars.when(polars.int_range(180).is_in(wrong)).then(polars.lit("yes")).otherwise(polars.col("churned"))
    )
    wrong = [row for row in wrong if row % 3 != 1]
    answer = imix.label_errors(run, frame, tmp_path / "errors.parquet", keep="id")
    assert answer.frame.columns == ["id", "row", "label", "suggested", "p_label", "p_suggested", "rank"]
    assert sorted(answer.frame.sort("rank")["row"][: len(wrong)]) == wrong
    for row in wrong:
        record = answer.frame.row(row, named=True)
        assert (record["label"], record["suggested"]) == ("yes", customers(180)["churned"][row])
        assert record["p_label"] < 0.2 < 0.5 < record["p_suggested"]
    assert read(tmp_path / "errors.parquet").equals(answer.frame)


def test_the_score_is_the_probability_of_the_given_label(points):
    probabilities = torch.tensor([[0.7, 0.3], [0.2, 0.8], [0.6, 0.4]])
    samples = imix.explore.samples.read_samples(None, labeled(points[:3], [0, 0, 1]))
    answer = module._describe(samples, torch.tensor([0, 0, 1]), torch.arange(3), probabilities, "model")
    assert answer.frame["p_label"].to_list() == pytest.approx([0.7, 0.2, 0.4])
    assert answer.frame["suggested"].to_list() == ["0", "1", "0"]
    assert answer.frame["rank"].to_list() == [3, 1, 2]
    assert "33.3% agree with the most probable class (model)" in str(answer)


def test_votes_do_not_count_the_sample_itself():
    features = torch.nn.functional.normalize(torch.tensor([[1.0, 0.01 * i] for i in range(6)]), dim=1)
    votes = module._votes(features, torch.tensor([1, 0, 0, 0, 0, 0]), "cpu")
    assert votes.sum(1).tolist() == pytest.approx([1] * 6)
    assert votes[0, 1] == votes[0].min() < 0.1


def test_probabilities_of_the_linear_classifier_are_of_other_samples(points):
    labels = torch.from_numpy(np.random.default_rng(0).integers(0, 2, 60))  # nothing to learn
    features = torch.from_numpy(np.random.default_rng(1).normal(size=(60, 40)).astype(np.float32))
    probabilities = module._linear(features, labels, 0)
    own = probabilities.gather(1, labels[:, None])
    assert 0.35 < float(own.mean()) < 0.65  # fitted to the same samples it would be near 1


@pytest.mark.slow
def test_planted_errors_in_digits_are_ranked_first():
    data = imix.data.load("digits")
    rng = np.random.default_rng(0)
    wrong = rng.choice(1297, 65, replace=False)
    data.train.labels[wrong] = (data.train.labels[wrong] + torch.from_numpy(rng.integers(1, 10, 65))) % 10
    frame = imix.label_errors(torch.nn.Flatten(), data).frame
    is_wrong = np.isin(np.arange(1797), wrong)
    assert roc_auc_score(is_wrong, -frame["p_label"].to_numpy()) > 0.98


def test_samples_without_a_label_have_no_score(points):
    labels = np.repeat([0, 1, 2], [30, 20, 10]).astype(object)
    labels[4] = None
    frame = imix.label_errors(None, labeled(points, labels)).frame
    assert frame["p_label"].is_null().to_list() == [i == 4 for i in range(60)]
    assert frame["row"].to_list() == [*range(60)]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([1] * 60, "all labels of in-memory data are the same"),
        (np.arange(60) / 7, "the labels of in-memory data are numbers, not classes"),
        (["a", "b"] + [None] * 58, "need at least 10 labeled samples; in-memory data has 2"),
    ],
)
def test_labels_that_cannot_be_ranked_are_one_line_errors(points, labels, message):
    with pytest.raises(InputError, match=message):
        imix.label_errors(None, labeled(points, labels))


def test_missing_labels_are_a_one_line_error(points, run, table):
    with pytest.raises(InputError, match="in-memory data has no labels; name the label column"):
        imix.label_errors(None, points)
    with pytest.raises(InputError, match="has no column 'nothing'"):
        imix.label_errors(run, table, label="nothing")
