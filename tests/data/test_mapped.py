"""Arrays that are mapped from files: the same samples as in memory, without a copy."""

import os

import numpy as np
import pytest
import torch

import imix
from imix import InputError, Settings
from imix.data import TensorSource, load, mapped
from imix.data.mapped import MappedArray

X = np.random.default_rng(0).normal(3, 2, (300, 7))
Y = np.arange(300) % 3
QUICK = Settings(epochs=2, batch_size=32, encoder="mlp:8-8", device="cpu")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(mapped, "MIN_BYTES", 1000)
    np.save(tmp_path / "x.npy", X)
    np.savez(tmp_path / "x.npz", x=X, y=Y, x_test=X[:50], y_test=Y[:50])
    return tmp_path


def all_samples(source):
    return torch.cat([x for x, _ in source.batches(torch.arange(len(source)).split(64))])


@pytest.mark.parametrize("name", ["x.npy", "x.npz"])
def test_large_files_are_mapped_and_have_the_samples_of_the_file(folder, name):
    train = load(folder / name).train
    assert isinstance(train, MappedArray)
    assert isinstance(train.array, np.memmap)
    assert all_samples(train).equal(torch.from_numpy(X).float())


def test_labels_and_test_samples_of_an_npz_file(folder):
    data = load(folder / "x.npz")
    assert data.train.labels.equal(torch.from_numpy(Y))
    assert isinstance(data.test, MappedArray)
    assert (len(data.test), data.n_classes) == (50, 3)


def test_small_files_and_compressed_ones_are_read(folder, capsys):
    np.save(folder / "small.npy", X[:10])
    assert isinstance(load(folder / "small.npy").train, TensorSource)
    np.savez_compressed(folder / "compressed.npz", x=X)
    assert isinstance(load(folder / "compressed.npz").train, TensorSource)
    assert "'x' is compressed, so all 0.0 GB are read" in capsys.readouterr().err


def test_arrays_that_the_user_maps_are_not_copied(folder):
    array = np.load(folder / "x.npy", mmap_mode="r")
    train = load(array).train
    assert train.array is array


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float16, ">f8"])
def test_batches_are_converted_like_arrays_in_memory(folder, dtype):
    images = (np.arange(2 * 3 * 20 * 20) % 200).reshape(2, 3, 20, 20).astype(dtype)
    np.save(folder / "images.npy", images)
    x = all_samples(load(folder / "images.npy").train)
    expected = load(images.astype(images.dtype.newbyteorder("="))).train.inputs
    assert x.dtype == expected.dtype and x.equal(expected)


def test_columns_in_fortran_order(folder):
    np.save(folder / "f.npy", np.asfortranarray(X))
    np.savez(folder / "f.npz", x=np.asfortranarray(X))
    for name in ("f.npy", "f.npz"):
        assert all_samples(load(folder / name).train).equal(torch.from_numpy(X).float())


def test_runs_on_mapped_arrays(folder):
    run = imix.pretrain(folder / "x.npz", QUICK, out=folder / "run", progress=False)
    assert imix.embed(run, folder / "x.npy").shape == (300, 2)
    assert imix.evaluate(run, protocol="knn").split.test == 50
    again = imix.pretrain(folder / "x.npz", QUICK, progress=False)
    assert [record["loss"] for record in run.metrics] == [record["loss"] for record in again.metrics]


def test_a_file_that_becomes_shorter_is_an_error_and_does_not_kill_the_process(folder):
    train = load(folder / "x.npy").train
    os.truncate(folder / "x.npy", 4096)
    with pytest.raises(InputError, match=r"x\.npy was truncated while it was in use"):
        all_samples(train)


@pytest.mark.parametrize("name", ["x.npy", "x.npz"])
def test_truncated_files_are_refused(folder, name):
    os.truncate(folder / name, os.path.getsize(folder / name) * 2 // 3)
    with pytest.raises(InputError, match=rf"cannot read .*{name} as"):
        load(folder / name)


def test_a_value_that_is_not_finite_is_named_when_it_is_read(folder):
    np.save(folder / "nan.npy", np.where(np.arange(300)[:, None] == 217, np.nan, X))
    train = load(folder / "nan.npy").train
    with pytest.raises(InputError, match=r"sample 217 of .*nan\.npy has 7 values that are NaN"):
        all_samples(train)


@pytest.mark.parametrize("array", [X[0], X.astype(str), X + 1j, np.zeros((0, 300))], ids=["1d", "text", "complex", "0"])
def test_arrays_that_are_no_samples_are_refused(folder, array, monkeypatch):
    monkeypatch.setattr(mapped, "MIN_BYTES", 0)
    np.save(folder / "bad.npy", array)
    with pytest.raises(InputError):
        load(folder / "bad.npy")
