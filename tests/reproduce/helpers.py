"""Cells and result lines for tests."""

from imix.reproduce.experiment import Ambiguities
from imix.reproduce.requests import EXPERIMENTS, select_cells
from imix.reproduce.results import ResultRow

NAMES = (
    *("table1", "table2", "table3", "table4a", "table4b", "tableC1", "tableC2", "tableC3"),
    *("supervised", "figure2", "figure3", "figureC1"),
)


def find_cell(name, row, column, budget="paper", ambiguities=Ambiguities()):
    cells = select_cells(EXPERIMENTS[name], budget, ambiguities)
    matching = [cell for cell in cells if (cell.label, cell.column) == (row, column)]
    assert len(matching) == 1, (name, row, column)
    return matching[0]


def result_row(cell, seed, value, best_on_test=None):
    return ResultRow(
        row=cell.label,
        column=cell.column,
        seed=seed,
        budget="paper",
        value=value,
        best_on_test=value if best_on_test is None else best_on_test,
        knn=None,
        run=cell.training.name(seed),
        seconds=60.0,
        machine="GPU",
        version="1",
        date="2020-01-01",
    )
