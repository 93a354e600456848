"""`imix.embed`: features in every file format, with labels and columns of the original table."""

import numpy as np
import polars
import pytest
import torch

import imix
from imix import InputError
from tests.probes.helpers import QUICK


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return imix.pretrain("digits", QUICK, out=tmp_path_factory.mktemp("runs") / "digits", progress=False)


def test_every_format_holds_the_encoders_features(run, tmp_path):
    digits = imix.data.load("digits")
    expected = run.encoder(torch.cat([digits.train.inputs, digits.test.inputs])).detach().numpy()
    for name in ("z.npy", "z.parquet", "z.csv"):
        features = imix.embed(run.path, "digits", tmp_path / name)
        np.testing.assert_allclose(features, expected, rtol=1e-4, atol=1e-5)
    assert np.array_equal(np.load(tmp_path / "z.npy"), features)
    for frame in (polars.read_parquet(tmp_path / "z.parquet"), polars.read_csv(tmp_path / "z.csv")):
        np.testing.assert_allclose(frame.select(polars.col("^f\\d+$")).to_numpy(), features, rtol=1e-4, atol=1e-5)
        assert frame["split"].to_list() == ["train"] * 1297 + ["test"] * 500
        assert frame["label"].cast(int).to_list() == torch.cat([digits.train.labels, digits.test.labels]).tolist()


def test_columns_of_the_table_can_be_kept_next_to_the_features(tmp_path):
    ids = [f"{i:04}" for i in range(60)]
    frame = polars.DataFrame({"id": ids, "v": np.arange(60) * 0.5, "kind": ["cat", "dog", "fox"] * 20})
    frame.write_csv(tmp_path / "t.csv")
    run = imix.pretrain(tmp_path / "t.csv", QUICK, imix.DataSettings(label="kind"), progress=False)
    for data in (str(tmp_path / "t.csv"), frame):
        imix.embed(run, data, tmp_path / "z.parquet", keep=["id"])
        written = polars.read_parquet(tmp_path / "z.parquet")
        assert (written.columns[0], written["id"].to_list(), "split" in written.columns) == ("id", ids, False)
    with pytest.raises(InputError, match="has no column 'ids'"):
        imix.embed(run, frame, tmp_path / "z.csv", keep=["ids"])
    with pytest.raises(InputError, match=r"`keep=\['id'\]` needs `out=FILE` with a \.parquet or \.csv file"):
        imix.embed(run, frame, keep="id")
    with pytest.raises(InputError, match="`keep='split'` is the name of an output column"):
        imix.embed(run, frame, tmp_path / "z.csv", keep="split")


def test_embed_gives_one_vector_per_row_of_the_runs_own_training_file(tmp_path):
    frame = polars.DataFrame({"id": np.arange(60), "v": np.arange(60) * 0.5, "tags": [[1, 2]] * 60})
    frame.write_parquet(tmp_path / "t.parquet")
    frame.head(7).write_parquet(tmp_path / "more.parquet")
    data_settings = imix.DataSettings(columns={"id": "drop", "tags": "drop"}, test=str(tmp_path / "more.parquet"))
    run = imix.pretrain(tmp_path / "t.parquet", QUICK, data_settings, out=tmp_path / "run", progress=False)
    assert imix.embed(run, tmp_path / "t.parquet", tmp_path / "z.parquet", keep=["id", "tags"]).shape == (60, 8)
    written = polars.read_parquet(tmp_path / "z.parquet")
    assert written["id"].to_list() == [*range(60)] and "split" not in written.columns
    assert len(imix.embed(run, tmp_path / "more.parquet")) == 7
    with pytest.raises(InputError, match=r"column .tags. holds lists"):
        imix.embed(run, tmp_path / "t.parquet", tmp_path / "z.csv", keep=["tags"])


def test_unlabeled_arrays_can_be_embedded(run):
    assert imix.embed(run, np.zeros((3, 1, 8, 8))).shape == (3, 8)


def test_an_invalid_output_path_is_rejected(run, tmp_path):
    with pytest.raises(InputError, match=r"\.parquet.*\.npy.*\.csv"):
        imix.embed(run, "digits", tmp_path / "z.txt")
    with pytest.raises(InputError, match=r"folder .* does not exist"):
        imix.embed(run, "digits", tmp_path / "no" / "z.npy")
