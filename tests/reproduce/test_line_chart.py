"""Figures as line charts."""

import re
import sys

import pytest

from imix.errors import InputError
from imix.reproduce.ambiguities import Ambiguities
from imix.reproduce.line_chart import draw_line_chart
from imix.reproduce.requests import EXPERIMENTS, select_cells
from imix.reproduce.runner import reproduce
from tests.reproduce.helpers import result_row


def draw(folder, figure, cells, results):
    draw_line_chart(folder / "figure.svg", figure, cells, results, 1, Ambiguities())
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


def test_missing_matplotlib_is_reported_before_training(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"pip install 'imix-ssl\[figures\]'"):
        reproduce(["figure2"], budget="smoke", out=tmp_path)
    assert not (tmp_path / "runs").exists()
