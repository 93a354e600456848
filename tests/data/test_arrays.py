"""Samples and labels from arrays, tensors, .npy and .npz files."""

import warnings

import numpy as np
import pytest
import torch

from imix import InputError
from imix.data import load


def test_npy_and_npz_files_are_read(tmp_path):
    x, y = np.arange(24.0).reshape(6, 4), np.array(list("bacbac"))
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "d.npz", x=x, y=y, x_test=x[:2], y_test=np.array(["c", "a"]))
    assert torch.equal(load(tmp_path / "x.npy").train.inputs, torch.from_numpy(x).float())
    data = load(str(tmp_path / "d.npz"))
    assert data.train.labels.tolist() == [1, 0, 2, 1, 0, 2]
    assert data.test.labels.tolist() == [2, 0]


@pytest.mark.parametrize("name", ["x.NPY", "x.Npz"])
def test_suffixes_may_be_upper_case(tmp_path, name):
    x = np.arange(24.0).reshape(6, 4)
    with open(tmp_path / name, "wb") as file:
        np.save(file, x) if name == "x.NPY" else np.savez(file, x=x)
    assert torch.equal(load(tmp_path / name).train.inputs, torch.from_numpy(x).float())


def test_uint8_is_scaled_to_0_to_1_and_other_types_become_float32():
    assert load(np.full((2, 3), 255, np.uint8)).train.inputs.unique().item() == 1.0
    for dtype in (np.int64, np.float16, np.float64, bool):
        assert load(np.ones((2, 3), dtype)).train.inputs.dtype == torch.float32


def test_unusual_but_valid_arrays_are_accepted():
    x = np.arange(12.0).reshape(4, 3)
    expected = torch.from_numpy(x).float()
    read_only = x.copy()
    read_only.flags.writeable = False
    for array in (x.astype(">f4"), x.astype(np.longdouble), np.asfortranarray(x), read_only, x.tolist()):
        assert torch.equal(load(array).train.inputs, expected)
    assert not load(expected.clone().requires_grad_()).train.inputs.requires_grad
    read_only_uint8 = np.full((2, 3), 255, np.uint8)
    read_only_uint8.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load(read_only_uint8).train.inputs.eq(1).all()


def test_some_samples_may_have_no_label():
    for labels in ([2.0, np.nan, 0.0, 2.0], np.array([2, None, 0, 2], dtype=object)):
        data = load(np.ones((4, 2)), labels=labels)
        assert data.train.labels.tolist() == [1, -1, 0, 1]
        assert list(data.class_names) == ["0", "2"]


def test_labels_of_bytes_are_decoded():
    data = load(np.ones((4, 2)), labels=np.array([b"dog", b"", "kätzchen".encode(), b"dog"]))
    assert data.train.labels.tolist() == [0, -1, 1, 0]
    assert list(data.class_names) == ["dog", "kätzchen"]
    assert list(load(np.ones((2, 2)), labels=np.array([b"a", b"\xff"])).class_names) == ["\\xff", "a"]


def test_files_that_cannot_be_read_are_named_in_the_error(tmp_path):
    (tmp_path / "broken.npy").write_bytes(b"\x93NUMPY broken")
    (tmp_path / "empty.npz").write_bytes(b"")
    (tmp_path / "table.xlsx").write_text("no")
    np.save(tmp_path / "objects.npy", np.array([{}, []], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "other.npz", images=np.ones((2, 2)))
    np.savez(tmp_path / "unseen.npz", x=np.ones((2, 2)), y=[0, 1], x_test=np.ones((1, 2)), y_test=[7])
    for name in ("broken.npy", "empty.npz", "table.xlsx", "objects.npy"):
        with pytest.raises(InputError, match=f"cannot read .*{name}"):
            load(tmp_path / name)
    with pytest.raises(InputError, match=r"needs an array 'x'.*it contains \['images'\]"):
        load(tmp_path / "other.npz")
    with pytest.raises(InputError, match=r"has labels that are not in the training samples: \[7\]"):
        load(tmp_path / "unseen.npz")


def test_files_with_another_format_or_shape_are_an_error(tmp_path):
    x = np.ones((4, 3))
    with open(tmp_path / "npy.npz", "wb") as file:
        np.save(file, x)
    np.savez(tmp_path / "shapes.npz", x=x, x_test=np.ones((2, 5)))
    np.savez(tmp_path / "only_y_test.npz", x=x, y_test=[0, 1])
    for name, message in [
        ("npy", "a different format"),
        ("shapes", r"\(5,\), training samples \(3,\)"),
        ("only_y_test", "no 'x_test'"),
    ]:
        with pytest.raises(InputError, match=message):
            load(tmp_path / f"{name}.npz")


def test_nan_is_an_error_that_names_the_file_and_the_index(tmp_path):
    x = np.ones((5, 1, 4, 4), np.float32)
    x[3, 0, 2, 1] = np.nan
    np.save(tmp_path / "x.npy", x)
    with pytest.raises(InputError, match=r"x\.npy has 1 values that are NaN.* at index \[3, 0, 2, 1\]"):
        load(tmp_path / "x.npy")
