"""`imix.select`: the chosen samples cover the groups of the data, first those without labels."""

import numpy as np
import polars
import pytest

import imix
from imix import InputError
from tests.explore.helpers import customers


def test_each_group_gets_a_sample_and_large_groups_come_first(points):
    answer = imix.select(None, points, n=3)
    rows = answer.frame["row"].to_list()
    assert [np.digitize(row, [30, 50]) for row in rows] == [0, 1, 2]
    assert answer.frame.columns == ["row", "rank", "represents", "group_labels"]
    assert answer.frame.select("rank", "represents", "group_labels").rows() == [(1, 30, 0), (2, 20, 0), (3, 10, 0)]


def test_the_most_typical_sample_of_a_group_is_chosen(points):
    (row,) = imix.select(None, points[:30], n=1).frame["row"]
    units = points[:30] / np.linalg.norm(points[:30], axis=1, keepdims=True)
    assert row == np.argmax(units @ units.sum(0))


def test_groups_with_labels_come_last():
    frame = customers(90).with_columns(
        churned=polars.when(polars.int_range(90) % 3 < 2).then(polars.col("churned")).otherwise(None)
    )
    settings = imix.DataSettings(columns={"id": "drop", "churned": "drop"})
    quick = imix.Settings(epochs=3, batch_size=60, encoder="mlp:16-32", device="cpu")
    run = imix.pretrain(frame, quick, settings, progress=False)
    answer = imix.select(run, frame, n=5, label="churned", columns={"id": "drop"}, keep="id")
    assert all(row % 3 == 2 for row in answer.frame["row"])
    assert answer.frame["label"].null_count() == 5
    assert "; 60 already have a label" in str(answer)
    without = imix.select(run, frame, n=3, columns={"id": "drop"}).frame
    assert {row % 3 for row in without["row"]} == {0, 1, 2}


def test_a_second_sample_of_a_group_waits_for_the_other_groups(points):
    import torch

    from imix.explore.select import _choose

    group = np.array([0] * 30 + [1] * 20 + [2] * 10)
    features = torch.nn.functional.normalize(torch.from_numpy(points), dim=1)
    has_label = np.zeros(60, bool)
    has_label[:2] = True
    chosen, sizes, labels = _choose(features, group, has_label, 8)
    assert group[chosen].tolist() == [1, 2, 1, 2, 0, 1, 2, 0]
    assert len(set(chosen)) == 8
    assert (sizes[0], labels[0], labels[4]) == (20, 0, 2)


def test_all_samples_can_be_chosen_and_no_test_samples(run):
    assert sorted(imix.select(run, n=180).frame["row"]) == [*range(180)]
    import torch

    assert set(imix.select(torch.nn.Flatten(), "digits", n=30).frame["split"]) == {"train"}


def test_n_must_not_exceed_the_unlabeled_samples(points, run):
    with pytest.raises(InputError, match="`n` must be between 1 and 60, the number of samples without a label; got 61"):
        imix.select(None, points, n=61)
    with pytest.raises(InputError, match="`n` must be between 1 and 0"):
        imix.select(run, n=1, label="churned")


def test_the_choice_is_deterministic_and_written(points, tmp_path, read):
    first, second = (imix.select(None, points, tmp_path / "chosen.csv", n=7).frame for _ in range(2))
    assert first.equals(second)
    assert read(tmp_path / "chosen.csv").equals(first)
