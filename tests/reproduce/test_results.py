"""Result files and means over seeds."""

import csv

import pytest

from imix import InputError
from imix.reproduce.experiment import Ambiguities
from imix.reproduce.jobs import list_jobs
from imix.reproduce.requests import select_requests
from imix.reproduce.results import add_result, read_results, summarize
from tests.reproduce.helpers import find_cell, result_row
from tests.reproduce.migrate_results import PAPER_RESULTS, migrate


def test_new_results_replace_lines_with_the_same_key(tmp_path):
    path = tmp_path / "subfolder/table1.csv"
    byol, npair = find_cell("table1", "CIFAR-10", "BYOL"), find_cell("table1", "CIFAR-10", "N-pair")
    for cell, seed, value in ((byol, 0, 93.0), (npair, 0, 92.0), (byol, 0, 94.0), (byol, 1, 95.0)):
        add_result(path, result_row(cell, seed, value))
    assert [(row.column, row.seed, row.value) for row in read_results(path)] == [
        ("BYOL", 0, 94.0),
        ("N-pair", 0, 92.0),
        ("BYOL", 1, 95.0),
    ]
    with open(path, newline="") as file:
        assert next(csv.DictReader(file))["run"] == byol.training.name(0)


def test_a_file_that_is_not_a_result_file_is_an_error(tmp_path):
    (tmp_path / "table1.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="not a result file"):
        read_results(tmp_path / "table1.csv")
    assert read_results(tmp_path / "table2.csv") == []


def test_results_of_other_budgets_and_ambiguities_do_not_count():
    short = find_cell("table1", "CIFAR-10", "BYOL + i-Mix", "short")
    row = result_row(short, 0, 90.0)
    assert summarize(short, [row], Ambiguities()).mean == 90.0
    assert summarize(find_cell("table1", "CIFAR-10", "BYOL + i-Mix"), [row], Ambiguities()) is None
    unfolded = find_cell("table1", "CIFAR-10", "BYOL + i-Mix", "short", Ambiguities(fold=False))
    assert summarize(unfolded, [row], Ambiguities()) is None


def test_published_results_belong_to_current_runs():
    """If a setting was renamed, run migrate_results.py; if a value changed, train again."""
    paths = list(PAPER_RESULTS.glob("*.csv"))
    assert paths
    for path in paths:
        requests = [r for budget in ("short", "paper") for r in select_requests([path.stem], budget, seeds=5)]
        assert {row.run for row in read_results(path)} <= {job.name for job in list_jobs(requests)}


def test_migration_updates_run_names_columns_and_maps(tmp_path):
    cell = find_cell("figureC1", "CIFAR-10 → CIFAR-10", "N-pair")
    name = cell.training.name(0)
    digest = name.split("-")[-2]
    add_result(tmp_path / "figureC1.csv", result_row(cell, 0, None))
    path = tmp_path / "figureC1.csv"
    path.write_text(path.read_text().replace("best_on_test", "paper_way").replace(digest, "00000000"))
    (tmp_path / "maps").mkdir()
    (tmp_path / "maps" / f"{name.replace(digest, '00000000')}-cifar10.svg").touch()
    migrate(tmp_path)
    assert read_results(path) == [result_row(cell, 0, None)]
    assert [file.name for file in (tmp_path / "maps").iterdir()] == [f"{name}-cifar10.svg"]
    path.write_text(path.read_text().replace("resnet50", "resnet18"))
    with pytest.raises(ValueError, match="is not the training of"):
        migrate(tmp_path)
