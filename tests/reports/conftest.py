"""A table with hostile class names, and runs trained on it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars
import pytest

import imix
from imix.run import Run

from .helpers import HOSTILE, QUICK


@pytest.fixture(scope="session")
def table(tmp_path_factory) -> Path:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 90)
    columns = {
        "height": labels + 0.3 * rng.standard_normal(90),
        "color": np.array(["red", "green", HOSTILE])[labels],
        "breed": np.array(["cat", "dog", HOSTILE])[labels],
    }
    path = tmp_path_factory.mktemp("table") / "animals.csv"
    polars.DataFrame(columns).write_csv(path)
    return path


@pytest.fixture(scope="session")
def runs(table, tmp_path_factory) -> list[Path]:
    """Evaluated runs: N-pair with seeds 0 and 1, then N-pair + i-Mix with seeds 0 and 1."""
    folder = tmp_path_factory.mktemp("runs")
    paths = []
    for name, settings in {"plain": replace(QUICK, mix="none"), "mixed": QUICK}.items():
        for seed in range(2):
            data_settings = imix.DataSettings(label="breed")
            path = folder / f"{name}-{seed}"
            run = imix.pretrain(table, replace(settings, seed=seed), data_settings, out=path, progress=False)
            imix.evaluate(run)
            imix.evaluate(run, protocol="knn")
            paths.append(path)
    return paths


@pytest.fixture(scope="session")
def run(runs) -> Run:
    """The first of the runs, loaded."""
    return imix.load_run(runs[0])


@pytest.fixture(scope="session")
def unlabeled_run(table) -> Run:
    """A run trained without the two columns that could be labels."""
    data_settings = imix.DataSettings(columns={"breed": "drop", "color": "drop"})
    return imix.pretrain(table, replace(QUICK, epochs=1), data_settings, progress=False)


@pytest.fixture(scope="session")
def report_path(runs, tmp_path_factory) -> Path:
    return imix.report(runs, tmp_path_factory.mktemp("report") / "report.html", samples=60)
