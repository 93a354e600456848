"""A table with three groups of customers, and a run that was trained on it."""

import numpy as np
import polars
import pytest

import imix
from tests.explore.helpers import QUICK, customers


@pytest.fixture(scope="session")
def table(tmp_path_factory):
    """A CSV file with 180 rows: id, age, income, city and churned."""
    path = tmp_path_factory.mktemp("tables") / "customers.csv"
    customers(180).write_csv(path)
    return path


@pytest.fixture(scope="session")
def run(table, tmp_path_factory):
    settings = imix.DataSettings(label="churned", columns={"id": "drop"})
    return imix.pretrain(table, QUICK, settings, out=tmp_path_factory.mktemp("runs") / "customers", progress=False)


@pytest.fixture(scope="session")
def points():
    """Three tight clusters of features (60, 4), of 30, 20 and 10 points in this order."""
    rng = np.random.default_rng(0)
    centers = np.eye(4)[:3].repeat([30, 20, 10], 0)
    return (centers + 0.05 * rng.normal(size=(60, 4))).astype(np.float32)


@pytest.fixture
def read():
    """Reads a written answer."""
    return lambda path: polars.read_parquet(path) if path.suffix == ".parquet" else polars.read_csv(path)
