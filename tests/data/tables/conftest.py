"""Fixtures for tests of tables."""

import pandas
import pytest

from tests.data.tables.helpers import people


@pytest.fixture
def people_csv(tmp_path):
    path = tmp_path / "people.csv"
    pandas.DataFrame(people()).to_csv(path, index=False)
    return path
