"""Folders and patterns of table files or tar shards."""

import numpy as np
import pandas
import pytest

from imix import DataSettings, InputError
from imix.data import load
from tests.data.media.shards import write_shards


def write(folder, *names):
    """Write tables of five rows."""
    for i, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        frame = pandas.DataFrame({"x": np.arange(5) + 0.5 + i})
        frame.to_csv(folder / name, index=False) if name.endswith(".csv") else frame.to_parquet(folder / name)
    return folder


@pytest.mark.parametrize(
    ("names", "train", "test"),
    [
        (("train-00000-of-00001.parquet", "test-00000-of-00001.parquet"), "train*.parquet", "test*.parquet"),
        (("data/train-0.parquet", "data/validation-0.parquet"), "data/train*.parquet", "data/validation*.parquet"),
        (("Train.csv", "val.csv", "test.csv"), "Train*.csv", "test*.csv"),
        (("train/0.csv", "train/1.csv", "dev/0.csv"), "train/*.csv", "dev/*.csv"),
    ],
)
def test_splits_are_not_read_as_one_table(tmp_path, names, train, test):
    folder = write(tmp_path / "t", *names)
    with pytest.raises(InputError, match=r"the files of .* are splits \(.*\): pass ") as error:
        load(folder)
    assert f"pass '{folder}/{train}', and optionally `test='{folder}/{test}'`" in str(error.value)
    data = load(f"{folder}/{train}", DataSettings(test=f"{folder}/{test}"))
    assert len(data.train) == 5 * sum("train" in name.lower() for name in names) and len(data.test) == 5


def test_tar_shards_of_several_splits_are_refused(tmp_path):
    write_shards(tmp_path, n_shards=2, n=2)
    for i, split in enumerate(("train", "test")):
        (tmp_path / f"{i:03}.tar").rename(tmp_path / f"{split}-{i}.tar")
    with pytest.raises(InputError, match=r"are splits \(test, train\): pass .*train\*\.tar"):
        load(tmp_path)


@pytest.mark.parametrize(
    "names", [("trains.csv", "tests.csv"), ("test_1.csv", "test_2.csv"), ("train.csv", "more.csv")]
)
def test_other_names_are_parts_of_one_table(tmp_path, names):
    assert len(load(write(tmp_path / "t", *names)).train) == 10


def test_braces_name_files_of_several_splits_on_purpose(tmp_path):
    folder = write(tmp_path / "t", "train-0.parquet", "test-0.parquet")
    assert len(load(f"{folder}/{{train,test}}*.parquet").train) == 10


def test_a_single_file_cannot_have_several_test_files(tmp_path):
    folder = write(tmp_path, "train.csv", "test/0.csv", "test/1.csv")
    for test in (folder / "test", folder / "test" / "*.csv"):
        with pytest.raises(InputError, match=r"^`test='.*'` must be one table, as '.*train\.csv' is, and not several"):
            load(folder / "train.csv", DataSettings(test=str(test)))
