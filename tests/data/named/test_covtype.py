"""Forest CoverType: columns, split, scaling and invalid files."""

import gzip

import numpy as np
import pytest
import torch

import imix
from imix import DataSettings, InputError
from imix.data import load
from imix.data.named import covtype
from tests.data.tables.helpers import QUICK


@pytest.fixture
def covtype_rows(tmp_path, monkeypatch):
    """The 40 rows of a file in UCI's format. The first 12 are training rows."""
    monkeypatch.setattr(covtype, "N_TRAIN", 12)
    rng = np.random.default_rng(0)
    rows = np.zeros((40, 55), int)
    rows[:, :10] = rng.integers(0, 3000, (40, 10))
    rows[np.arange(40), 10 + rng.integers(0, 4, 40)] = 1
    rows[np.arange(40), 14 + rng.integers(0, 40, 40)] = 1
    rows[:, 54] = np.arange(40) % 7 + 1
    text = "".join(",".join(map(str, row)) + "\n" for row in rows)
    (tmp_path / "covtype.data.gz").write_bytes(gzip.compress(text.encode()))
    return rows


def test_covtype_has_the_columns_split_and_groups_of_the_paper(covtype_rows, tmp_path):
    data = load("covtype", DataSettings(data_dir=str(tmp_path), standardize="none"))
    assert (len(data.train), len(data.test), data.train.n_classes) == (12, 28, 7)
    assert data.table.groups == (10, 4, 40)
    rows = torch.cat([data.train.inputs, data.test.inputs])
    assert torch.equal(rows, torch.from_numpy(covtype_rows[:, :54]).float())
    assert torch.equal(torch.cat([data.train.labels, data.test.labels]), torch.from_numpy(covtype_rows[:, 54] - 1))


@pytest.mark.parametrize(("standardize", "rows"), [("train", slice(12)), ("all", slice(None))])
def test_covtype_is_standardized_by_training_rows_or_all_rows(covtype_rows, tmp_path, standardize, rows):
    data = load("covtype", DataSettings(data_dir=str(tmp_path), standardize=standardize))
    x = covtype_rows[:, :10].astype(float)
    expected = (x - x[rows].mean(0)) / x[rows].std(0)
    np.testing.assert_allclose(data.train.inputs[:, :10], expected[:12], rtol=1e-5, atol=1e-6)
    assert torch.equal(data.train.inputs[:, 10:], torch.from_numpy(covtype_rows[:12, 10:54]).float())


def test_a_run_on_covtype_remembers_data_dir(covtype_rows, tmp_path):
    data_settings = DataSettings(data_dir=str(tmp_path))
    imix.pretrain("covtype", QUICK, data_settings, out=tmp_path / "run", progress=False)
    assert imix.evaluate(tmp_path / "run", protocol="knn").split.test == 28
    assert imix.embed(tmp_path / "run", "covtype", data_dir=str(tmp_path)).shape == (40, 2)


def test_columns_of_covtype_can_be_dropped(covtype_rows, tmp_path):
    data_settings = DataSettings(data_dir=str(tmp_path), columns={"Soil_Type": "drop"})
    assert load("covtype", data_settings).table.groups == (10, 4)


def test_a_file_that_is_not_from_uci_is_an_error(tmp_path):
    np.savetxt(tmp_path / "covtype.data", np.ones((3, 4)), delimiter=",")
    with pytest.raises(InputError, match=r"not the file from UCI: it has 3 rows and 4 columns; expected .* 55 columns"):
        load("covtype", DataSettings(data_dir=str(tmp_path)))


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(InputError, match=r"contains none of covtype\.data\.gz"):
        load("covtype", DataSettings(data_dir=str(tmp_path)))
