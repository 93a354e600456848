"""Hugging Face data sets: `datasets.Dataset`, folders written by `save_to_disk`, and Parquet files."""

import json

import numpy as np
import pyarrow
import pytest
import torch
from pyarrow import parquet

import imix
from imix import DataSettings, InputError
from imix.data import load
from tests.data.media.helpers import QUICK, SHORT_CLIPS, tone, write_audio, write_image

REASON = "needs the package datasets"
FEATURES = {"size": {"dtype": "float64", "_type": "Value"}, "kind": {"names": ["dog", "cat"], "_type": "ClassLabel"}}
TABLE = pyarrow.table({"size": np.arange(20) * 0.5, "kind": [0, 1, 0, -1] * 5}).replace_schema_metadata(
    {"huggingface": json.dumps({"info": {"features": FEATURES}})}
)


def save(table, folder):
    """Write a table as `Dataset.save_to_disk` does."""
    folder.mkdir()
    for i in range(2):
        with pyarrow.ipc.new_stream(folder / f"{i}.arrow", table.schema) as writer:
            writer.write_table(table.slice(10 * i, 10))
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": f"{i}.arrow"} for i in range(2)]}))
    (folder / "dataset_info.json").write_text("{}")
    return folder


def write_parts(table, folder):
    """Write a table as two Parquet files."""
    folder.mkdir()
    for i in range(2):
        parquet.write_table(table.slice(10 * i, 10), folder / f"{i}.parquet")
    return folder


@pytest.fixture(params=["in memory", "parquet", "folder", "streamed"])
def labeled(request, tmp_path):
    """The table in every form."""
    if request.param == "in memory":
        return pytest.importorskip("datasets", reason=REASON).Dataset(TABLE)
    if request.param == "folder":
        return save(TABLE, tmp_path / "t")
    if request.param == "streamed":
        return write_parts(TABLE, tmp_path / "t")
    parquet.write_table(TABLE, tmp_path / "t.parquet")
    return tmp_path / "t.parquet"


def test_the_only_column_of_class_labels_is_the_label_and_has_names(labeled):
    data = load(labeled)
    assert (data.class_names, data.settings.label) == (["cat", "dog"], "kind")
    assert data.train.labels.tolist() == [1, 0, 1, -1] * 5 and data.train.shape == (1,)


def test_class_labels_can_be_an_input(labeled):
    data = load(labeled, DataSettings(columns={"kind": "categorical"}))
    assert (data.train.labels, data.train.shape) == (None, (4,))  # the size, two names, and missing
    assert load(labeled, DataSettings(columns={"kind": "drop"})).train.shape == (1,)


def test_class_labels_that_were_an_input_of_a_run_stay_an_input(labeled):
    table = load(labeled, DataSettings(columns={"kind": "categorical"})).table
    data = load(labeled, table=table, strict=False)
    assert (data.train.labels, data.train.shape) == (None, (4,))


def test_other_tables_have_no_declared_label():
    for metadata in (
        {},
        {"huggingface": "{"},
        {"huggingface": "[]"},
        {"huggingface": '{"info": {"features": {"a": 1}}}'},
    ):
        assert load(TABLE.replace_schema_metadata(metadata)).train.labels is None


def test_a_run_on_a_saved_data_set_is_evaluated_and_embedded(tmp_path):
    folder = save(TABLE, tmp_path / "t")
    run = imix.pretrain(folder, QUICK, out=tmp_path / "run", progress=False)
    assert imix.evaluate(tmp_path / "run", protocol="knn").split.unlabeled == 5
    imix.embed(run, folder, tmp_path / "z.parquet", keep=["size"])
    assert parquet.read_table(tmp_path / "z.parquet")["size"].to_pylist() == TABLE["size"].to_pylist()


def test_several_splits_are_an_error_that_says_to_choose(tmp_path):
    with pytest.raises(InputError, match=r"a dict of tables \(train, test\); pass one of them"):
        load({"train": TABLE, "test": TABLE})
    (tmp_path / "dataset_dict.json").write_text("{}")
    with pytest.raises(InputError, match=r"several splits; pass the folder of one of them, such as .*/train"):
        load(tmp_path)


def test_a_damaged_folder_is_an_error(tmp_path):
    folder = save(TABLE, tmp_path / "t")
    (folder / "1.arrow").write_bytes(b"x")
    with pytest.raises(InputError, match=r"cannot read .*/t as a saved data set"):
        load(folder)


@pytest.mark.slow
def test_data_sets_of_the_package_give_the_same_samples(tmp_path, cache):
    datasets = pytest.importorskip("datasets", reason=REASON)
    paths = [str(write_image(tmp_path / f"{i}.png", size=(12, 12))) for i in range(6)]
    features = datasets.Features({"image": datasets.Image(), "y": datasets.ClassLabel(names=["cat", "dog"])})
    hub = datasets.Dataset.from_dict({"image": paths, "y": [0, 1] * 3}, features=features)
    expected = load(paths).train.inputs
    hub.save_to_disk(tmp_path / "saved")
    hub.to_parquet(tmp_path / "t.parquet")
    for data in (hub, tmp_path / "saved", tmp_path / "t.parquet"):
        loaded = load(data)
        assert torch.equal(loaded.train.inputs, expected) and loaded.class_names == ["cat", "dog"]
    assert torch.equal(load(hub.select([4, 1])).train.inputs, expected[[4, 1]])
    assert torch.equal(load(hub.to_iterable_dataset()).train.inputs, expected)
    assert torch.equal(load(hub.with_format("torch")).train.inputs, expected)
    clips = [str(write_audio(tmp_path / f"{i}.wav", tone(300 + i))) for i in range(3)]
    audio = datasets.Dataset.from_dict({"audio": clips}).cast_column("audio", datasets.Audio())
    assert torch.equal(load(audio, SHORT_CLIPS).train.inputs, load(clips, SHORT_CLIPS).train.inputs)
    with pytest.raises(InputError, match=r"a dict of tables \(train, test\)"):
        load(hub.train_test_split(0.5))
    run = imix.pretrain(hub, QUICK, progress=False)
    assert imix.embed(run, hub).shape == (6, 128)
