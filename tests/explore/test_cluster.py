"""`imix.cluster`: groups that are there are found, their number is chosen, and tables explain them."""

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score

import imix
from imix import InputError
from tests.explore.helpers import customers


def test_the_number_of_groups_is_chosen(points):
    answer = imix.cluster(None, points)
    assert answer.frame["group"].to_list() == [0] * 30 + [1] * 20 + [2] * 10
    assert answer.groups.select("group", "size").rows() == [(0, 30), (1, 20), (2, 10)]
    assert answer.choice.filter("chosen")["k"].to_list() == [3]
    assert answer.choice.filter("chosen")["stability"][0] == 1
    assert "tried 2 to 20 groups; chose 3: highest silhouette" in str(answer)


def test_k_sets_the_number_or_the_numbers_to_choose_from(points):
    assert len(imix.cluster(None, points, k=5).groups) == 5
    assert len(imix.cluster(None, points, k=[2, 3]).groups) == 3
    assert "tried" not in str(imix.cluster(None, points, k=5))


def test_a_group_has_typical_samples_near_its_center_and_boundary_samples_at_the_next_group(points):
    halfway = (points[:1] + points[30:31]) / 2 + 0.01 * points[:1]
    answer = imix.cluster(None, np.concatenate([points, halfway]), k=3)
    center_similarity = answer.frame["center_similarity"].to_numpy()
    for group, typical in answer.groups.select("group", "typical").iter_rows():
        members = np.flatnonzero(answer.frame["group"].to_numpy() == group)
        assert typical == members[np.argsort(-center_similarity[members])[:5]].tolist()
    assert answer.groups["boundary"][int(answer.frame["group"][60])][0] == 60
    assert answer.frame["margin"].arg_min() == 60


def test_the_groups_of_a_table_are_explained(run, table, tmp_path, read):
    answer = imix.cluster(run, table, tmp_path / "groups.parquet", keep="id")
    assert adjusted_rand_score(answer.frame["group"], np.arange(180) % 3) == 1
    assert answer.frame.columns == ["id", "row", "label", "group", "center_similarity", "margin"]
    assert read(tmp_path / "groups.parquet").equals(answer.frame)
    rome = int(answer.frame["group"][0])
    found = answer.differences.filter(group=rome, column="city").row(0, named=True)
    assert (found["category"], found["inside"], found["outside"]) == ("Rome", 1.0, 0.0)
    age = answer.differences.filter(group=rome, column="age").row(0, named=True)
    assert age["inside"] == pytest.approx(30, abs=1) and 50 < age["outside"] < 70
    assert "city = Rome 100% (others 0%)" in str(answer)


def test_the_same_seed_gives_the_same_groups(run):
    assert imix.cluster(run).frame.equals(imix.cluster(run).frame)


def test_hdbscan_leaves_samples_between_groups_out(points):
    far = np.float32([[-1, -1, -1, 1]])
    answer = imix.cluster(None, np.concatenate([points, far]), method="hdbscan", min_size=8)
    assert answer.frame["group"].to_list() == [0] * 30 + [1] * 20 + [2] * 10 + [-1]
    assert answer.frame["margin"].is_nan().to_list() == [False] * 60 + [True]
    assert "1 samples are in no group" in str(answer)


def test_hdbscan_may_find_no_group(tmp_path, read):
    x = np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32)
    answer = imix.cluster(None, x, tmp_path / "groups.csv", method="hdbscan", min_size=20)
    assert set(read(tmp_path / "groups.csv")["group"]) == {-1}
    assert len(answer.groups) == 0 and "40 samples are in no group (-1)" in str(answer)


def test_three_samples_make_two_groups(points):
    assert len(imix.cluster(None, points[[0, 1, 40]]).groups) == 2


def test_hdbscan_of_many_samples_uses_some_of_them(points, monkeypatch):
    monkeypatch.setattr("imix.explore.cluster.MAX_HDBSCAN", 40)
    answer = imix.cluster(None, points, method="hdbscan", min_size=8)
    assert adjusted_rand_score(answer.frame["group"], np.repeat([0, 1, 2], [30, 20, 10])) > 0.9


def test_images_show_typical_and_boundary_samples():
    answer = imix.cluster(torch.nn.Flatten(), "digits", k=10)
    assert len(answer.differences) == 0
    assert "typical" in str(answer) and "test row" in str(answer)
    assert "<table" in answer._repr_html_() and "<pre>10 groups of 1,797" in answer._repr_html_()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 61}, "`k` must be between 1 and 60, the number of samples; got 61"),
        ({"k": 0}, "`k` must be between 1 and 60"),
        ({"k": []}, "`k` must be between 1 and 60"),
        ({"method": "ward"}, "`method` must be kmeans or hdbscan; got 'ward'"),
        ({"method": "hdbscan", "k": 3}, "`k` is for method kmeans"),
        ({"method": "hdbscan", "min_size": 61}, "`min_size` must be between 2 and 60"),
        ({"out": "groups.txt"}, r"ends in \.parquet or \.csv"),
        ({"keep": "id"}, "column names .* need a .csv or .parquet file"),
    ],
)
def test_invalid_options_are_one_line_errors(points, options, message):
    with pytest.raises(InputError, match=message):
        imix.cluster(None, points, **options)


def test_a_failed_question_writes_nothing(run, tmp_path):
    with pytest.raises(InputError, match="does not have the columns of the run"):
        imix.cluster(run, customers(9).drop("city"), tmp_path / "groups.csv")
    with pytest.raises(InputError, match="need at least 3 samples"):
        imix.cluster(run, customers(2), tmp_path / "groups.csv")
    assert list(tmp_path.iterdir()) == []
