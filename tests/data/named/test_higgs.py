"""Higgs: the drawn training rows, the test rows and missing files."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from imix import DataSettings, InputError
from imix.data import load
from imix.data.named import DATASETS, higgs


def test_higgs_draws_its_training_rows_and_tests_on_the_last_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(higgs, "N_TEST", 50)
    for name, n_train in (("higgs100k", 30), ("higgs1m", 60)):
        record = DATASETS[name]
        assert record.load.keywords == {"n_train": record.n_train}
        monkeypatch.setitem(DATASETS, name, replace(record, load=partial(record.load, n_train=n_train)))
    rows = np.random.default_rng(0).normal(size=(200, 29))
    rows[:, 0] = np.arange(200) % 2
    np.savetxt(tmp_path / "HIGGS.csv", rows, delimiter=",")
    small = load("higgs100k", DataSettings(data_dir=str(tmp_path), standardize="none"))
    large = load("higgs1m", DataSettings(data_dir=str(tmp_path)))
    assert (len(small.train), len(small.test), len(large.train), small.train.shape) == (30, 50, 60, (28,))
    np.testing.assert_allclose(small.test.inputs, rows[150:, 1:], rtol=1e-6)
    assert small.test.labels.tolist() == rows[150:, 0].tolist()
    drawn = {tuple(row) for row in small.train.inputs.tolist()}
    assert len(drawn) == 30 and drawn <= {tuple(row) for row in rows[:150, 1:].astype(np.float32).tolist()}


@pytest.mark.parametrize(
    ("name", "data_dir", "message"),
    [
        ("higgs100k", None, "UCI's data set 280.*`data_dir`"),
        ("higgs1m", ".", r"contains none of HIGGS\.csv\.gz"),
    ],
)
def test_missing_files_are_an_error(name, data_dir, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        load(name, DataSettings(data_dir=data_dir))
