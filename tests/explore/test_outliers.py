"""`imix.outliers`: samples far from all others have the highest scores, with a reason for tables."""

import numpy as np
import polars
import pytest

import imix
from imix import InputError
from tests.explore.helpers import customers


def test_the_score_is_the_geometric_mean_of_relative_distances_to_the_neighbors(points):
    answer = imix.outliers(None, points, k=4)
    units, inputs = points / np.linalg.norm(points, axis=1, keepdims=True), points / points.std(0)
    by_features, by_inputs = [], []
    for i in range(60):
        others = sorted((j for j in range(60) if j != i), key=lambda j: -(units[i] @ units[j]))[:4]
        by_features.append(np.mean([1 - units[i] @ units[j] for j in others]))
        by_inputs.append(np.mean([np.linalg.norm(inputs[i] - inputs[j]) for j in others]))
    expected = np.sqrt(by_features / np.median(by_features) * by_inputs / np.median(by_inputs))
    np.testing.assert_allclose(answer.frame["score"], expected, rtol=2e-3)
    assert answer.frame["score"].to_numpy()[answer.frame["rank"].arg_sort()].tolist() == sorted(
        answer.frame["score"], reverse=True
    )
    assert answer.frame["rank"].sort().to_list() == [*range(1, 61)]
    assert answer.frame.filter(rank=1)["percentile"][0] == pytest.approx(100 * 59 / 60)
    assert answer.frame.filter(rank=60)["percentile"][0] == 0


def test_a_strange_row_is_an_outlier_and_the_reason_names_its_columns(run, tmp_path, read):
    frame = customers(180)
    strange = polars.DataFrame({"id": ["x"], "age": [30.0], "income": [60_000.0], "city": ["Oslo"], "churned": ["no"]})
    answer = imix.outliers(run, polars.concat([frame, strange]), tmp_path / "outliers.parquet", keep="id")
    columns = ["id", "row", "label", "score", "percentile", "rank", "nearest_row", "reason"]
    assert answer.frame.columns == columns
    assert answer.frame["id"].to_list() == [*frame["id"], "x"]
    worst = answer.frame.filter(id="x").row(0, named=True)
    assert worst["rank"] == 1
    assert worst["reason"].startswith("income = 60000 (z +")
    assert read(tmp_path / "outliers.parquet").equals(answer.frame)


def test_only_the_highest_scores_have_a_reason(points, monkeypatch):
    monkeypatch.setattr("imix.explore.outliers.EXPLAINED", 5)
    frame = imix.outliers(None, points).frame
    assert set(frame.filter(polars.col("reason").is_not_null())["rank"]) == {1, 2, 3, 4, 5}


def test_images_have_the_nearest_sample_instead_of_a_reason():
    import torch

    answer = imix.outliers(torch.nn.Flatten(), "digits")
    assert answer.frame["reason"].null_count() == 1797
    assert {"nearest_row", "nearest_split"} <= set(answer.frame.columns)
    assert "nearest sample" in str(answer)


def test_k_must_be_less_than_the_number_of_samples(points):
    with pytest.raises(InputError, match="`k` must be between 1 and 59"):
        imix.outliers(None, points, k=60)
