"""CIFAR-10 and CIFAR-100: binary files, class names and missing files."""

import numpy as np
import pytest
import torch

from imix import DataSettings, InputError
from imix.data import load
from imix.data.named import DATASETS, cifar


def images(n):
    return np.random.default_rng(0).integers(0, 256, (n, 3, 32, 32), dtype=np.uint8)


@pytest.mark.parametrize(("name", "files"), [("cifar10", cifar.FILES_10), ("cifar100", cifar.FILES_100)])
def test_binary_files_are_read(tmp_path, name, files):
    x, y = images(20), np.arange(20, dtype=np.uint8) % 10
    labels = np.stack([y] if name == "cifar10" else [y + 50, y], 1)
    records = np.concatenate([labels, x.reshape(20, -1)], 1)
    folder = tmp_path / files.folder
    folder.mkdir()
    for part, file in zip(np.split(records, len(files.train)), files.train, strict=True):
        part.tofile(folder / file)
    records[:10].tofile(folder / files.test)
    data = load(name, DataSettings(data_dir=str(tmp_path)))
    assert torch.equal(data.train.inputs, torch.from_numpy(x))
    assert (data.train.labels.tolist(), len(data.test), data.augment) == (y.tolist(), 10, "cifar")
    assert data.class_names[6] == ("frog" if name == "cifar10" else "6")  # only 10 of the 100 classes occur


def test_npz_files_are_read(tmp_path):
    np.savez(tmp_path / "cifar10.npz", x=images(10), y=np.arange(10))
    data = load("cifar10", DataSettings(data_dir=str(tmp_path)))
    assert (len(data.train), data.class_names, data.augment) == (10, cifar.CLASS_NAMES_10.split(), "cifar")


@pytest.mark.parametrize(("n", "names"), [(10, cifar.CLASS_NAMES_10), (100, cifar.CLASS_NAMES_100)])
def test_class_names_are_sorted_and_complete(n, names):
    assert len(names.split()) == DATASETS[f"cifar{n}"].n_classes == n and names.split() == sorted(names.split())


def test_missing_and_incomplete_files_are_an_error(tmp_path):
    with pytest.raises(InputError, match=r"contains no files of cifar10; expected cifar10\.npz, cifar-10-batches-bin"):
        load("cifar10", DataSettings(data_dir=str(tmp_path)))
    (tmp_path / "test.bin").write_bytes(b"short")
    with pytest.raises(InputError, match=r"train\.bin' does not exist"):
        load("cifar100", DataSettings(data_dir=str(tmp_path)))
    (tmp_path / "train.bin").write_bytes(b"short")
    with pytest.raises(InputError, match=r"train\.bin' is incomplete: its size must be a multiple of 3074 bytes"):
        load("cifar100", DataSettings(data_dir=str(tmp_path)))
    np.full((1, 3074), 100, np.uint8).tofile(tmp_path / "train.bin")
    with pytest.raises(InputError, match="has class 100; classes must be 0 to 99"):
        load("cifar100", DataSettings(data_dir=str(tmp_path)))
