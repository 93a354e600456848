"""Samples: features, ids and kept columns in the order of the data, and errors about data that cannot be compared."""

import numpy as np
import polars
import pytest
import torch

import imix
from imix import InputError
from imix.explore.samples import read_samples
from tests.data.media.helpers import write_image
from tests.explore.helpers import customers


def test_features_have_length_one_and_the_order_of_the_data(run, table):
    samples = read_samples(run, table, keep=["id"])
    vectors = imix.embed(run, table)
    expected = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(samples.features.numpy(), expected, rtol=1e-5, atol=1e-6)
    assert samples.columns.columns == ["id", "row", "label"]
    assert samples.columns["id"].to_list() == customers(180)["id"].to_list()
    assert samples.columns["row"].to_list() == [*range(180)]
    assert samples.columns["label"].to_list() == customers(180)["churned"].to_list()


def test_without_data_the_samples_are_those_of_the_run(run):
    assert len(read_samples(run, None)) == 180
    with pytest.raises(InputError, match="`data` is required without a run"):
        read_samples(None, None)


def test_test_samples_follow_and_kept_columns_are_those_of_both_files(run, table, tmp_path):
    new = customers(9, seed=1).with_columns(churned=polars.Series([None, *["yes"] * 8]))
    new.write_csv(tmp_path / "new.csv")
    samples = read_samples(run, table, keep="id", test=str(tmp_path / "new.csv"))
    assert len(samples) == 189
    assert samples.columns["split"].to_list() == ["train"] * 180 + ["test"] * 9
    assert samples.columns["id"].to_list()[178:182] == ["c0-0178", "c0-0179", "c1-0000", "c1-0001"]
    assert samples.columns["row"].to_list()[178:182] == [178, 179, 0, 1]
    assert samples.columns["label"].to_list()[179:181] == ["maybe", None]
    assert samples.names([5, 180]) == ["row 5", "test row 0"]


def test_without_a_run_the_features_are_the_inputs(points, tmp_path):
    samples = read_samples(None, points)
    np.testing.assert_allclose(samples.features, points / np.linalg.norm(points, axis=1, keepdims=True), rtol=1e-5)
    for i in range(4):
        write_image(tmp_path / "images" / f"{i}.png", size=(20, 20))
    images = read_samples(None, tmp_path / "images")
    assert images.features.shape == (4, 3 * 16 * 16)
    assert images.names([2]) == [str(tmp_path / "images" / "2.png")]


def test_data_of_another_kind_is_an_error(run, points):
    with pytest.raises(InputError, match=r"missing: .*'age'"):
        read_samples(run, customers(9).drop("age"))
    with pytest.raises(InputError, match="the run was trained on samples of shape"):
        read_samples(imix.pretrain(torch.randn(64, 5), epochs=1, device="cpu", progress=False), points)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_features_that_are_not_finite_are_an_error(points, value):
    points = points.copy()
    points[3, 1] = value
    with pytest.raises(InputError, match=r"finite|infinite"):
        read_samples(None, points)
    with pytest.raises(InputError):
        read_samples(torch.nn.Identity(), points)


def test_constant_features_and_no_samples_are_errors(run):
    with pytest.raises(InputError, match=r"all 7 samples of in-memory data have the same features"):
        read_samples(None, np.ones((7, 3), np.float32))
    with pytest.raises(InputError, match="no rows"):
        read_samples(run, customers(9).head(0))
    with pytest.raises(InputError, match="no samples"):
        read_samples(None, np.ones((0, 3), np.float32))


def test_invalid_output_files_and_columns_are_rejected_before_the_work(run, table, tmp_path):
    with pytest.raises(InputError, match=r"ends in \.parquet or \.csv"):
        read_samples("no run", None, tmp_path / "a.txt")
    with pytest.raises(InputError, match="`keep='rank'` is the name of an output column"):
        read_samples(
            run, customers(9).rename({"id": "rank"}), None, "rank|score", keep="rank", columns={"rank": "drop"}
        )
    with pytest.raises(InputError, match="has no column 'nothing'"):
        read_samples(run, table, keep="nothing")
