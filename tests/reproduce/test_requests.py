"""Selection of tables, figures, rows and columns."""

import pytest

from imix import InputError
from imix.reproduce.experiment import Ambiguities
from imix.reproduce.requests import EXPERIMENTS, select_cells, select_requests
from tests.reproduce.helpers import find_cell


def test_tables_are_standardized_over_all_rows_by_default():
    def standardize(row, ambiguities=Ambiguities()):
        return find_cell("table1", row, "BYOL", ambiguities=ambiguities).training.data_settings.standardize

    assert standardize("CovType") == "all"
    assert standardize("CovType", Ambiguities(standardize="train")) == "train"
    assert standardize("CIFAR-10") == "train"


def test_ambiguities_change_only_runs_with_mixing():
    ambiguities = Ambiguities(per_sample=False, fold=False)
    mixed = find_cell("table1", "CIFAR-10", "MoCo v2 + i-Mix", ambiguities=ambiguities).training.settings
    assert (mixed.per_sample, mixed.fold) == (False, False)
    for column in ("MoCo v2", "MoCo v2 + i-Mix"):
        before, after = (
            find_cell("table1", "CIFAR-10", column, ambiguities=choice).training
            for choice in (Ambiguities(), ambiguities)
        )
        assert (before.name(0) == after.name(0)) == (column == "MoCo v2")


def test_rows_and_columns_can_be_selected():
    table1 = EXPERIMENTS["table1"]
    assert len(select_cells(table1, "paper", rows=["covtype"])) == 6
    assert {cell.label for cell in select_cells(table1, "paper", rows=["cifar10"])} == {"CIFAR-10"}
    rows = {cell.label for cell in select_cells(EXPERIMENTS["table3"], "paper", rows=["CIFAR-10"])}
    assert rows == {"CIFAR-10", "CIFAR-10, no augmentation"}
    cells = select_cells(table1, "paper", rows=["covtype"], columns=["BYOL"])
    assert [cell.column for cell in cells] == ["BYOL"]
    with pytest.raises(InputError, match=r"table1 has no row \['mnist'\]; its rows: \['CIFAR-10', "):
        select_requests(["table1"], "paper", rows="mnist")
    with pytest.raises(InputError, match="unknown budget 'smok'; choose from paper, short, smoke"):
        select_requests(["table1"], "smok")
    with pytest.raises(InputError, match=r"no table or figure has row \['mnist'\]"):
        select_requests(["all"], "paper", rows=["mnist"])
    with pytest.raises(InputError, match=r"unknown table or figure 'table9'.*; choose from table1"):
        select_requests(["table9"], "paper")
    with pytest.raises(InputError, match="no table or figure given; choose from table1"):
        select_requests([], "paper")
    with pytest.raises(InputError, match="`seeds` must be at least 1; got 0"):
        select_requests(["table1"], "paper", seeds=0)
