"""Markdown pages and line charts."""

import re

import pytest

from imix.files import locked
from imix.reproduce import page
from imix.reproduce.experiment import Ambiguities
from imix.reproduce.page import build_table, draw_line_chart, write_pages
from imix.reproduce.requests import EXPERIMENTS, select_cells, select_requests
from imix.reproduce.results import add_result, summarize
from tests.reproduce.helpers import find_cell, result_row


def numbers_of(cells, results):
    numbers = {(cell.label, cell.column): summarize(cell, results, Ambiguities()) for cell in cells}
    return {position: number for position, number in numbers.items() if number}


def test_pages_keep_results_of_earlier_commands(tmp_path):
    byol = find_cell("table1", "CIFAR-10", "BYOL")
    for seed in range(7):
        add_result(tmp_path / "table1.csv", result_row(byol, seed, 93.0))
    add_result(tmp_path / "table3.csv", result_row(find_cell("table3", "CIFAR-100", "MoCo v2"), 0, 71.0))
    requests = select_requests(["table1"], "paper", rows=["covtype"])
    (path,) = write_pages(tmp_path, requests, "paper", Ambiguities())
    markdown = path.read_text()
    assert path == tmp_path / "table1.md"
    assert "| CIFAR-10 |" in markdown and "| CovType |" in markdown and "| CIFAR-100 |" not in markdown
    assert "7 runs" in markdown and "over up to 7 seeds" in markdown
    assert not (tmp_path / "table3.md").exists()


def test_a_page_shows_the_results_of_one_budget(tmp_path):
    add_result(tmp_path / "table1.csv", result_row(find_cell("table1", "CIFAR-10", "BYOL"), 0, 93.0))
    (short,) = write_pages(tmp_path, select_requests(["table1"], "short"), "short", Ambiguities())
    assert "Budget: short" in short.read_text() and "93.0" not in short.read_text()
    (paper,) = write_pages(tmp_path, select_requests(["table1"], "paper"), "paper", Ambiguities())
    assert "the paper's full length" in paper.read_text() and "93.0" in paper.read_text()


def test_pages_are_written_under_the_folder_lock(tmp_path, monkeypatch):
    held = []

    def check_lock(path, text):
        try:
            with locked(tmp_path, wait=False):
                held.append(False)
        except BlockingIOError:
            held.append(True)

    monkeypatch.setattr(page, "write_text", check_lock)
    write_pages(tmp_path, select_requests(["table1", "table2"], "short"), "short", Ambiguities())
    assert held == [True, True]


def test_pages_compare_results_with_the_paper(tmp_path):
    cells = select_cells(EXPERIMENTS["table1"], "paper", rows=["CIFAR-10"], columns=["BYOL", "BYOL + i-Mix"])
    plain, mixed = cells
    results = [result_row(plain, 0, 93.0, 93.2), result_row(plain, 1, 94.0, 94.2), result_row(mixed, 0, 96.0, 96.5)]
    summary = summarize(plain, results, Ambiguities())
    assert summary.mean == pytest.approx(93.7) and summary.other_mean == pytest.approx(93.5)
    assert summary.std == pytest.approx(0.5**0.5)
    assert str(summary) == "93.7 ± 0.7 (93.5)"
    assert summarize(plain, results, Ambiguities(choose_on="held-out")).mean == pytest.approx(93.5)
    columns, rows = build_table(cells, numbers_of(cells, results))
    assert columns == ["BYOL", "BYOL + i-Mix"]
    assert rows["CIFAR-10"] == [
        "**93.7 ± 0.7 (93.5)**<br>paper 94.2 ± 0.2, -0.5",
        "**96.5 (96.0)**<br>paper 96.3 ± 0.2, +0.2<br>effect of mixing +2.8, paper +2.1",
    ]
    for result in results:
        add_result(tmp_path / "table1.csv", result)
    requests = select_requests(["table1"], "paper", rows=["CIFAR-10"])
    (path,) = write_pages(tmp_path, requests, "paper", Ambiguities())
    markdown = path.read_text()
    assert all(f" {text} |" in markdown for text in rows["CIFAR-10"])
    assert "**not run**<br>paper 93.3 ± 0.1" in markdown
    assert "3 runs, 180 s in total on GPU, 2020-01-01" in markdown


def draw(folder, figure, cells, results):
    draw_line_chart(folder / "figure.svg", figure, cells, numbers_of(cells, results))
    return (folder / "figure.svg").read_text()


def texts(svg):
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def test_line_chart_has_a_line_per_column(tmp_path):
    figure = EXPERIMENTS["figure2"]
    cells = select_cells(figure, "paper", rows=["CIFAR-10, ResNet-18, 200", "CIFAR-10, ResNet-18, 2000"])
    assert {cell.x for cell in cells} == {200, 2000}
    results = [result_row(cell, 0, 90.0 + i) for i, cell in enumerate(cells)]
    svg = draw(tmp_path, figure, cells, results)
    lines = re.findall(r'<path d="M[^"]*" clip-path="[^"]*" style="([^"]*stroke-width: 1.5[^"]*)"', svg)
    assert len(lines) == 2 and sum("stroke-dasharray" in line for line in lines) == 1
    assert texts(svg).count("MoCo v2") == 0 and {"ResNet-18, MoCo v2", "ResNet-18, MoCo v2 + i-Mix"} <= set(texts(svg))
    assert {"CIFAR-10", "epochs", "200", "2000"} <= set(texts(svg))
    assert svg == draw(tmp_path, figure, cells, results)
    assert "CIFAR-10: no results yet" in texts(draw(tmp_path, figure, cells, []))
