"""The report in a real browser."""

import shutil
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import imix
from imix.reports import page
from imix.reports.groups import RunGroup

from .helpers import HOSTILE, QUICK, content_of

pytestmark = pytest.mark.subprocess  # Chromium

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield chromium
        chromium.close()


def open_page(browser, path: Path, color_scheme: str = "light"):
    """The opened page, scrolled to its map, and the list of its JavaScript errors."""
    view = browser.new_page(viewport={"width": 1240, "height": 1000}, color_scheme=color_scheme)
    errors: list[str] = []
    view.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    view.on("pageerror", lambda error: errors.append(str(error)))
    view.goto(path.as_uri())
    view.wait_for_selector("#map-0 .plot-container")
    view.evaluate("document.getElementById('map-0').scrollIntoView()")
    return view, errors


def point_on_screen(view, point: int) -> tuple[float, float]:
    """Screen coordinates of a sample in the first map."""
    return tuple(
        view.evaluate(
            """point => {
                const plot = document.getElementById('map-0'), {xaxis, yaxis} = plot._fullLayout;
                const trace = plot.data.find(trace => trace.customdata?.includes(point));
                const i = trace.customdata.indexOf(point), box = plot.getBoundingClientRect();
                return [box.left + xaxis._offset + xaxis.d2p(trace.x[i]),
                        box.top + yaxis._offset + yaxis.d2p(trace.y[i])];
            }""",
            point,
        )
    )


def most_isolated_point(map_: dict) -> int:
    """The point with the largest distance to its nearest neighbor on the map."""
    points = np.array([map_["x"], map_["y"]]).T
    distances = np.linalg.norm(points[:, None] - points, axis=2) + np.diag([np.inf] * len(points))
    return int(distances.min(1).argmax())


@pytest.mark.parametrize("color_scheme", ["light", "dark"])
def test_the_page_renders_without_errors(browser, report_path, color_scheme):
    view, errors = open_page(browser, report_path, color_scheme)
    assert view.locator("h1").inner_text() == "Comparison of 2 configurations on animals.csv"
    assert view.locator("#curves .plot-container").count() >= 4
    assert view.locator("#confusion-matrices .plot-container").count() == 2
    assert view.evaluate("window.hurt") is None and errors == []
    view.close()


def test_hovering_shows_a_sample_and_clicking_shows_its_neighbors(browser, report_path):
    content = content_of(report_path)
    view, errors = open_page(browser, report_path)
    point = most_isolated_point(content["maps"][0])
    x, y = point_on_screen(view, point)
    view.mouse.move(x - 40, y - 40)
    view.mouse.move(x, y)
    view.wait_for_function(f"document.getElementById('panel').dataset.point == '{point}'")
    samples = next(iter(content["samples"].values()))
    assert str(samples["rows"][point][0]) in view.locator("#panel").inner_text()
    view.mouse.click(x, y)
    view.wait_for_selector("#panel .neighbors button")
    neighbors = content["maps"][0]["neighbors"][point]
    assert view.locator("#panel .neighbors button").count() == len(neighbors)
    view.locator("#panel .neighbors button").first.click()
    assert view.locator("#panel").get_attribute("data-point") == str(neighbors[0])
    assert view.evaluate("window.hurt") is None and errors == []
    view.close()


def test_two_runs_have_their_maps_side_by_side(browser, report_path):
    view, errors = open_page(browser, report_path)
    boxes = [view.locator(f"#map-{pane}").bounding_box() for pane in range(2)]
    assert boxes[0]["y"] == boxes[1]["y"] and boxes[0]["x"] + boxes[0]["width"] < boxes[1]["x"]
    assert (
        view.locator("#caption-1").inner_text() == "t-SNE of the features of 60 of 90 training samples of animals.csv"
    )
    choices = view.get_by_label("Run shown in this map")
    assert [choices.nth(pane).input_value() for pane in range(2)] == ["0", "1"]
    marked = "pane => document.getElementById(`map-${pane}`).data.at(-1).x"
    view.evaluate("window.imixShowSample(3, true)")
    maps = content_of(report_path)["maps"]
    assert [view.evaluate(marked, pane)[0] for pane in range(2)] == [map_["x"][3] for map_ in maps]
    choices.nth(0).select_option("mixed-*")
    view.evaluate("window.imixShowSample(3, true)")
    assert view.evaluate(marked, 0) == view.evaluate(marked, 1)
    view.set_viewport_size({"width": 420, "height": 900})
    view.wait_for_function("document.documentElement.scrollWidth == 420")
    assert errors == []
    view.close()


def test_confusion_matrices_have_axis_titles(browser, report_path):
    view, _ = open_page(browser, report_path)
    titles = "axis => document.getElementById('confusion-0').layout[axis].title.text"
    assert [view.evaluate(titles, axis) for axis in ("xaxis", "yaxis")] == ["predicted class", "true class"]
    view.close()


@pytest.mark.slow
def test_a_sample_of_an_answer_opens_in_full(browser, runs, table, tmp_path):
    shutil.copytree(runs[0], tmp_path / "run")
    imix.outliers(tmp_path / "run")
    path = imix.report(tmp_path / "run", tmp_path / "r.html", samples=10)
    view, errors = open_page(browser, path)
    assert view.locator("#answers .card").count() == 12
    view.get_by_text("Show all 30").click()
    assert view.locator("#answers .card").count() == 30
    view.locator("#answers .card button").first.click()
    content = content_of(path)
    key, place, _ = content["answers"][0]["cards"][0]["samples"][0]
    assert str(content["samples"][key]["rows"][place][0]) in view.locator("dialog").inner_text()
    view.keyboard.press("Escape")
    assert not view.locator("dialog").is_visible()
    assert view.evaluate("window.hurt") is None and errors == []
    view.close()


@pytest.mark.slow
def test_fifty_thousand_points_are_drawn_quickly(browser, tmp_path, monkeypatch):
    n = 50_000
    rng = np.random.default_rng(0)
    samples = {
        "data": "x",
        "label": None,
        "split": "test",
        "total": n,
        "indices": list(range(n)),
        "names": [],
        "classes": ["a", "b"],
    }
    samples["labels"] = rng.integers(0, 2, n).tolist()
    x, y = rng.random((n, 2)).round(4).T.tolist()
    maps = [{"group": 0, "samples": "x", "x": x, "y": y, "neighbors": [[0]] * n}]
    monkeypatch.setattr(page, "_maps", lambda groups, max_samples: (maps, {"x": samples}))
    run = imix.pretrain(torch.randn(40, 5), replace(QUICK, epochs=1), progress=False)
    path = page.write_report(tmp_path / "r.html", "many", [RunGroup("N-pair", [run])], "", "")
    start = time.monotonic()
    view, errors = open_page(browser, path)
    assert time.monotonic() - start < 30
    assert view.evaluate("document.getElementById('map-0').data[0].type") == "scattergl"
    assert errors == []
    view.close()


def test_malicious_names_are_shown_as_text(browser, tmp_path):
    data = tmp_path / "images"
    rng = np.random.default_rng(0)
    for i in range(20):
        folder = data / ("a" if i % 2 else HOSTILE)
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(folder / f"{HOSTILE}{i}.png")
    imix.pretrain(data, replace(QUICK, epochs=1), out=tmp_path / HOSTILE, progress=False)
    path = imix.report([tmp_path / HOSTILE], tmp_path / "r.html", samples=20)
    view, errors = open_page(browser, path)
    view.evaluate("window.imixShowSample(3, true)")
    assert HOSTILE in view.locator("#panel").inner_text()
    assert view.evaluate("window.hurt") is None and errors == []
    view.close()
