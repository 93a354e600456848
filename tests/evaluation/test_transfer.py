"""`imix.transfer`: every run evaluated on every data set."""

import numpy as np
import pytest

import imix

QUICK = imix.Settings(epochs=1, batch_size=16, device="cpu")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    labels = np.arange(60) % 3
    rows = [
        f"{label + noise:.4f},{['cat', 'dog', 'cow'][label]}"
        for label, noise in zip(labels, np.random.default_rng(0).normal(0, 0.3, 60), strict=True)
    ]
    path = tmp_path_factory.mktemp("table") / "animals.csv"
    path.write_text("\n".join(["height,breed", *rows]) + "\n")
    return path


@pytest.fixture(scope="module")
def runs(table):
    return [imix.pretrain(table, QUICK, imix.DataSettings(label="breed"), progress=False) for _ in range(2)]


def test_an_unknown_argument_is_rejected(runs, table):
    with pytest.raises(TypeError, match="standardize"):
        imix.transfer(runs[:1], [str(table)], standardize=True)


def test_transfer_returns_a_row_per_run_and_a_column_per_data_set(runs, table):
    results = imix.transfer(runs, [str(table), str(table)], "knn")
    assert [[result.protocol for result in row] for row in results] == [["knn", "knn"]] * 2
    assert results[0][0].value == results[0][1].value


def test_transfer_uses_the_given_label(table):
    run = imix.pretrain(table, QUICK, imix.DataSettings(columns={"breed": "drop"}), progress=False)
    ((result,),) = imix.transfer(run, str(table), "knn", label="breed")
    assert result.label == "breed"
