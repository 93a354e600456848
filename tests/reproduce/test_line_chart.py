"""Figures as SVG line charts."""

from imix.reproduce.ambiguities import Ambiguities
from imix.reproduce.line_chart import draw_line_chart
from imix.reproduce.requests import EXPERIMENTS, select_cells
from tests.reproduce.helpers import result_row


def test_line_chart_has_a_line_per_column():
    figure = EXPERIMENTS["figure2"]
    cells = select_cells(figure, "paper", rows=["CIFAR-10, ResNet-18, 200", "CIFAR-10, ResNet-18, 2000"])
    assert {cell.x for cell in cells} == {200, 2000}
    results = [result_row(cell, 0, 90.0 + i) for i, cell in enumerate(cells)]
    svg = draw_line_chart(figure, cells, results, 1, Ambiguities())
    assert svg.count("<polyline") == 2 and svg.count("<circle") == 6 and svg.count("stroke-dasharray") == 2
    assert ">epochs<" in svg and ">2000<" in svg
    assert "no results yet" in draw_line_chart(figure, cells, [], 1, Ambiguities())
