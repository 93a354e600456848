"""Labels of tables, and test files."""

import numpy as np
import pandas
import pyarrow as pa
import pytest
import torch

from imix import DataSettings, InputError
from imix.data import load
from tests.data.tables.helpers import people


def test_labels_of_a_test_file_are_interpreted_like_those_of_the_training_file(tmp_path):
    (tmp_path / "train.csv").write_text("v,y\n" + "0.5,01\n1.5,02\n2.5,x\n3.5,1\n" * 5)
    (tmp_path / "test.csv").write_text("v,y\n0.5,02\n0.5,01\n")
    data = load(tmp_path / "train.csv", DataSettings(label="y", test=str(tmp_path / "test.csv")))
    assert list(data.class_names) == ["01", "1", "02", "x"]
    assert data.test.labels.tolist() == [2, 0]


def test_large_integer_labels_stay_distinct(tmp_path):
    ids = [2**60, 2**60 + 1, 2**60 + 2]
    frame = pandas.DataFrame({"v": [0.5, 1.5, 2.5], "y": ids})
    frame.to_csv(tmp_path / "t.csv", index=False)
    for source in (frame, tmp_path / "t.csv"):
        assert list(load(source, DataSettings(label="y")).class_names) == [str(i) for i in ids]


def test_a_test_file_for_data_that_is_not_a_table_file_is_an_error(tmp_path):
    with pytest.raises(InputError, match=r"only applies to \.csv, \.parquet and \.tar files and to folders"):
        load("digits", DataSettings(test="t.csv"))
    with pytest.raises(InputError, match=r"only applies to \.csv, \.parquet and \.tar files and to folders"):
        load(pandas.DataFrame(people()), data_settings=DataSettings(test="t.csv"))


@pytest.mark.parametrize(
    ("values", "names", "numbers"),
    [
        (["b", "a", None, "b"], ["a", "b"], [1, 0, -1, 1]),
        ([10, 9, 10, 2], ["2", "9", "10"], [2, 1, 2, 0]),
        ([1.0, None, 0.0, 1.0], ["0", "1"], [1, -1, 0, 1]),
        ([True, False, None, True], ["false", "true"], [1, 0, -1, 1]),
    ],
)
def test_labels_become_class_numbers(values, names, numbers):
    data = load(pa.table({"x": [0.5, 1.5, 2.5, 4.5], "y": pa.array(values)}), data_settings=DataSettings(label="y"))
    assert (list(data.class_names), data.train.labels.tolist()) == (names, numbers)


def test_labels_that_are_missing_or_not_classes_are_an_error(people_csv, tmp_path):
    with pytest.raises(InputError, match=r"no column 'targte' \(did you mean 'target'\?\); its columns are .*'target'"):
        load(people_csv, DataSettings(label="targte"))
    infinite = pandas.DataFrame(people(4)).assign(target=[1.0, 2.0, np.inf, 3.0])
    with pytest.raises(InputError, match=r"the label column 'target' of .* has infinite values"):
        load(infinite, DataSettings(label="target"))
    with pytest.raises(InputError, match="no values"):
        load(people_csv, DataSettings(label="empty"))
    unseen = pandas.DataFrame(people(4)).assign(target=["lo", "hi", "top", "mid"])
    unseen.to_csv(tmp_path / "test.csv", index=False)
    with pytest.raises(InputError, match=r"labels that are not in the training samples: \['top'\]"):
        load(people_csv, DataSettings(label="target", test=str(tmp_path / "test.csv")))
    with pytest.raises(InputError, match="pass either labels or a label column"):
        load(pandas.DataFrame(people(4)), DataSettings(label="target"), labels=[0, 1, 0, 1])


def test_none_is_a_class_in_the_label_column_and_missing_elsewhere(tmp_path):
    path = tmp_path / "risk.csv"
    rows = [("none", 1.5, "x"), ("mild", "None", "none"), ("NA", 2.5, "x"), ("", 3.5, "y"), ("severe", 4.5, "y")] * 8
    path.write_text("risk,dose,arm\n" + "".join(f"{risk},{dose},{arm}\n" for risk, dose, arm in rows))
    data = load(path, DataSettings(label="risk"))
    assert data.class_names == ["mild", "none", "severe"]
    assert (data.train.labels < 0).sum() == 16  # "NA" and ""
    assert data.table.kinds == {"dose": "numeric", "arm": "categorical"}
    without = load(path, DataSettings(columns={"risk": "drop"}))
    assert torch.equal(data.train.inputs, without.train.inputs)


def test_empty_labels_are_unlabeled_and_infinite_labels_are_an_error():
    x = np.random.default_rng(0).normal(size=(4, 2))
    assert load(x, labels=["a", "", "b", "a"]).train.labels.tolist() == [0, -1, 1, 0]
    assert load(x, labels=np.array(["a", "", None, "b"], dtype=object)).train.labels.tolist() == [0, -1, -1, 1]
    frame = pandas.DataFrame({"a": x[:, 0], "y": [1.0, np.inf, 2.0, 1.0]})
    with pytest.raises(InputError, match=r"'y' .* infinite"):
        load(frame, DataSettings(label="y"))
    assert torch.equal(load(x.astype(object)).train.inputs, load(x).train.inputs)
