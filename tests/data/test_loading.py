"""`imix.data.load`: valid and invalid kinds of data."""

import numpy as np
import pytest
import torch
from scipy import sparse

import imix.data
from imix import DataSettings, InputError
from imix.data import TensorSource, load


@pytest.mark.parametrize(
    ("data", "labels", "message"),
    [
        ("nowhere.npy", None, "no data set or file 'nowhere.npy'.*data sets: cifar10"),
        ("imagenet22k", None, "no data set or file 'imagenet22k'.*digits"),
        ("voc", None, "voc is a detection data set .*`protocol='detection'`"),
        ("", None, "data set name is empty"),
        (np.ones((4, 2)), [0, 1], r"labels of the 4 samples of the data must have shape \(4,\); got \(2,\)"),
        (np.ones((4, 2)), np.ones((4, 1)), r"must have shape \(4,\); got \(4, 1\)"),
        (
            np.array([[[0, 1]], [[np.nan, 2]], [[np.inf, 0]]]),
            None,
            r"2 values that are NaN, .*; the first is nan at index \[1, 0, 0\]",
        ),
        (np.array([[0, 1], [np.nan, 2], [np.inf, 0]]), None, "column '0' .* has 1 infinite values, the first in row 2"),
        (np.full((2, 2), 1e300), None, "too large"),
        (np.ones((4, 0)), None, r"got \(4, 0\)"),
        (np.ones((4, 2)), [0, 1, np.inf, 1], "the labels of the data have infinite values"),
        (None, None, "data is None"),
        (torch.eye(4).to_sparse(), None, r"pass x\.to_dense"),
        (sparse.eye(4).tocsr(), None, r"pass x\.toarray"),
        (object(), None, "must be numbers; got object"),
        (np.ones((2, 2)), [np.nan, np.nan], "none of the samples of the data has a label"),
        (np.ones((3, 2)), np.array(["a", None, 1], dtype=object), "cannot be sorted"),
        ([torch.ones(3), torch.ones(3)], None, "ambiguous"),
        (torch.ones(3, 2, dtype=torch.complex64), None, "complex"),
        (np.ones(5), None, r"must have shape \(N, \.\.\.\) with samples along the first axis; got \(5,\)"),
        (np.array([["a", "b"]]), None, "must be numbers"),
        (np.array([[1, "b"]], dtype=object), None, "must be numbers; got an array of object; .* text as a data frame"),
        (np.ones((0, 3)), None, "no samples"),
        ((np.ones((4, 2)), np.ones((3, 2))), None, r"same number of samples; got \[4, 3\]"),
        ("digits", [1, 2], "labels can only be passed with arrays and data frames; the data is 'digits'"),
        (TensorSource(torch.ones(2, 3)), [0, 1], "labels can only be passed .*; the data is a TensorSource"),
        (load(np.ones((2, 3))), [0, 1], "labels can only be passed .*; the data is a Data"),
    ],
)
def test_invalid_data_is_an_error(data, labels, message):
    with pytest.raises(InputError, match=message):
        load(data, labels=labels)


def test_loaded_data_is_returned_unchanged_and_cannot_get_other_settings():
    data_settings = DataSettings(fraction=0.5)
    data = load(np.ones((8, 2)), data_settings=data_settings)
    assert load(data) is load(data, data_settings) is data
    with pytest.raises(InputError, match=r"already loaded \(in-memory data\); load it again"):
        load(data, DataSettings(fraction=0.1))


def test_labels_as_a_positional_argument_are_an_error():
    with pytest.raises(InputError, match=r"data_settings must be imix\.DataSettings.*; got list \(pass labels as"):
        load(np.ones((2, 3)), [0, 1])


def test_missing_data_is_reported_before_options_that_do_not_apply(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no data set or file"):
        load(tmp_path / "nowhere", DataSettings(label="y"))
    with pytest.raises(InputError, match=r"no images .* and no audio files"):
        load(tmp_path / "empty", DataSettings(seconds=1.0))


def test_unknown_attributes_of_the_package_are_an_error():
    assert all(hasattr(imix.data, name) for name in imix.data.__all__)
    with pytest.raises(AttributeError, match=r"No imix\.data attribute nothing"):
        _ = imix.data.nothing
