"""Data that is loaded for an existing run."""

import numpy as np
import pytest

import imix
from imix import InputError
from tests.probes.helpers import QUICK, blobs


def test_a_run_on_a_fraction_is_evaluated_on_all_its_data(tmp_path):
    source = blobs(120)
    np.savez(tmp_path / "d.npz", x=source.inputs, y=source.labels)
    run = imix.pretrain(tmp_path / "d.npz", QUICK, imix.DataSettings(fraction=0.5), progress=False)
    assert run.config.data.samples == 60
    assert imix.evaluate(run, protocol="knn").split.train == 96
    assert len(imix.embed(run, tmp_path / "d.npz")) == 120


def test_a_run_recognizes_its_data_by_relative_and_absolute_paths(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    rows = "".join(f"{i * 0.5},{'ab'[i % 2]}\n" for i in range(40))
    (tmp_path / "train.csv").write_text("x,y\n" + rows)
    (tmp_path / "test.csv").write_text("x,y\n" + rows[: len(rows) // 2].rsplit("\n", 1)[0] + "\n")
    data_settings = imix.DataSettings(label="y", test="../here/../test.csv")
    run = imix.pretrain("../train.csv", QUICK, data_settings, progress=False)
    (tmp_path / "link.csv").symlink_to(tmp_path / "train.csv")
    for data in (None, "../train.csv", tmp_path / "here" / ".." / "train.csv", tmp_path / "train.csv", "../link.csv"):
        assert imix.evaluate(run, data, "knn").split.train == 40


def test_in_memory_data_must_be_passed_again():
    run = imix.pretrain(np.random.default_rng(0).normal(size=(40, 5)), QUICK, progress=False)
    with pytest.raises(InputError, match=r"trained on in-memory data, which is not stored; pass data=\.\.\. again"):
        imix.evaluate(run)


def test_data_of_another_shape_is_rejected():
    run = imix.pretrain(np.random.default_rng(0).normal(size=(40, 5)), QUICK, progress=False)
    with pytest.raises(InputError, match=r"trained on samples of shape \(5,\); digits has \(1, 8, 8\)"):
        imix.evaluate(run, "digits")
