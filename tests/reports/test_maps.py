"""Projections, nearest neighbors, and map files."""

import re
import sys
from dataclasses import replace
from itertools import combinations

import numpy as np
import polars
import pytest
from PIL import Image

import imix
from imix.errors import InputError
from imix.reports import maps
from imix.reports.maps import draw_map, nearest_neighbors, project_2d, save_map

from .helpers import HOSTILE, QUICK

pytestmark = pytest.mark.slow


def test_nearest_neighbors_have_the_highest_cosine_similarity():
    features = np.random.default_rng(0).normal(size=(1500, 6)).astype(np.float32)
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    neighbors = nearest_neighbors(features, 3)
    for row in (0, 7, 1200, 1499):
        order = [other for other in np.argsort(-unit @ unit[row]) if other != row]
        assert neighbors[row].tolist() == order[:3]


@pytest.mark.parametrize("n", [1, 2, 3, 40])
def test_projections_are_in_the_unit_square_and_deterministic(n):
    features = np.random.default_rng(0).normal(size=(n, 5)).astype(np.float32)
    points = project_2d(features)
    assert points.shape == (n, 2) and points.min() >= 0 and points.max() <= 1
    assert (points == project_2d(features)).all()
    assert nearest_neighbors(features).shape == (n, min(8, n - 1))


def test_collapsed_features_are_projected_to_one_point():
    assert (project_2d(np.ones((60, 5))) == 0.5).all()
    with pytest.raises(InputError, match="not finite"):
        project_2d(np.full((60, 5), np.nan))


@pytest.mark.parametrize(("colors", "background"), [(maps.COLORS, "#ffffff"), (maps.DARK_COLORS, "#12151c")])
def test_colors_differ_from_each_other_and_from_the_background(colors, background):
    def linear(color: str) -> np.ndarray:
        values = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)

    def contrast(first: str, second: str) -> float:  # as defined by WCAG
        low, high = sorted(0.05 + linear(color) @ [0.2126, 0.7152, 0.0722] for color in (first, second))
        return high / low

    def oklab(color: str) -> np.ndarray:
        cones = [[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]]
        axes = [[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]]
        return np.array(axes) @ np.cbrt(np.array(cones) @ linear(color))

    assert len(set(colors)) == 12
    assert min(contrast(color, background) for color in colors) >= 3
    assert min(np.linalg.norm(oklab(a) - oklab(b)) for a, b in combinations(colors, 2)) > 0.1


def test_a_map_is_written_as_svg_and_png(runs, tmp_path):
    svg = draw_map(runs[0], tmp_path / "m.svg", samples=30).read_text()
    n_classes = len(re.findall("<text", svg)) - 1  # the title
    assert svg.count("<use ") == 30 + n_classes and "<img" not in svg and "cat" in svg
    assert "t-SNE of the features of 30 training samples of animals.csv" in svg
    image = Image.open(draw_map(runs[0], tmp_path / "m.png", samples=30))
    assert len(np.unique(np.asarray(image.convert("RGB")).reshape(-1, 3), axis=0)) > 20
    two_classes = draw_map(runs[0], tmp_path / "two.svg", classes=["cat", "dog"]).read_text()
    assert "cat" in two_classes and "dog" in two_classes
    assert "&lt;img" not in two_classes and "&lt;img" in svg
    with pytest.raises(InputError, match="unknown class 'cow'"):
        draw_map(runs[0], tmp_path / "m.svg", classes=["cow"])


def test_a_map_accepts_loaded_data(tmp_path):
    data = imix.data.load("digits", imix.DataSettings(fraction=0.3))
    run = imix.pretrain(data, replace(QUICK, epochs=1), progress=False)
    assert imix.draw_map(run, tmp_path / "map.svg", data, samples=20).exists()


def test_class_names_are_shown_literally_and_maps_are_deterministic(tmp_path):
    names = ["_hidden", "$x^2$", "a & b"]
    maps = [save_map(tmp_path / f"{i}.svg", np.eye(3, 2), np.arange(3), names).read_text() for i in range(2)]
    assert re.findall(r"<text[^>]*>([^<]*)</text>", maps[0]) == ["_hidden", "$x^2$", "a &amp; b"]
    assert maps[0] == maps[1]


def test_a_map_without_matplotlib_is_rejected_before_features_are_computed(runs, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(maps, "encode_source", lambda *_, **__: pytest.fail("features were computed"))
    with pytest.raises(InputError, match=r"pip install 'imix-ssl\[figures\]'"):
        draw_map(runs[0], tmp_path / "m.svg")


def test_a_map_is_colored_by_the_given_label(unlabeled_run, tmp_path):
    for label, classes in {"breed": ["cat", "dog"], "color": ["green", "red"]}.items():
        svg = draw_map(unlabeled_run, tmp_path / "m.svg", classes=classes, label=label).read_text()
        assert re.findall(r"<text[^>]*>([^<]*)</text>", svg)[1:] == classes


def test_a_map_can_be_colored_by_an_input_column(table, tmp_path):
    run = imix.pretrain(table, replace(QUICK, epochs=1), out=tmp_path / "run", progress=False)
    svg = draw_map(run, tmp_path / "map.svg", label="breed", classes=["cat", "dog"]).read_text()
    assert ">cat<" in svg and ">dog<" in svg and HOSTILE not in svg
    frame = polars.read_csv(table)
    assert ">green<" in draw_map(run, tmp_path / "map.svg", frame, label="color").read_text()
    with pytest.raises(InputError, match=r"column 'height' has 90 distinct values; .* at most 50"):
        draw_map(run, tmp_path / "map.svg", label="height")
    with pytest.raises(InputError, match="no column 'bread'"):
        draw_map(run, tmp_path / "map.svg", label="bread")


def test_invalid_arguments_are_rejected_before_features_are_computed(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(maps, "encode_source", lambda *_, **__: pytest.fail("features were computed"))
    three_rows = polars.DataFrame({"height": [1.0, 2, 3], "color": ["red"] * 3})
    with pytest.raises(InputError, match="ends in"):
        draw_map(runs[0], tmp_path / "m.gif")
    with pytest.raises(InputError, match="does not exist"):
        draw_map(runs[0], tmp_path / "nowhere" / "m.svg")
    with pytest.raises(InputError, match="`samples` must be at least 4; got 1"):
        draw_map(runs[0], tmp_path / "m.svg", samples=1)
    with pytest.raises(InputError, match="a map needs at least 4 samples; in-memory data has 3"):
        draw_map(runs[0], tmp_path / "m.svg", three_rows)
    with pytest.raises(InputError, match="have no classes"):
        draw_map(runs[0], tmp_path / "m.svg", three_rows, classes=["cat"])
    with pytest.raises(TypeError, match="data_dri"):
        draw_map(runs[0], tmp_path / "m.svg", data_dri="x")


def test_a_map_accepts_a_string_path_and_a_device(runs, tmp_path):
    assert draw_map(runs[0], str(tmp_path / "m.svg"), samples=4, device="cpu").is_file()
    with pytest.raises(InputError, match="device"):
        draw_map(runs[0], str(tmp_path / "m.svg"), samples=4, device="abacus")


@pytest.mark.parametrize(("name", "kind"), [("map.svg", "image/svg+xml"), ("map.png", "image/png")])
def test_a_notebook_shows_the_map(run, tmp_path, name, kind):
    from IPython.core.formatters import DisplayFormatter

    path = imix.draw_map(run, tmp_path / name, samples=10)
    shown, _ = DisplayFormatter().format(path)
    assert shown[kind] in (path.read_bytes(), path.read_bytes().decode(errors="replace"))
    assert {"image/svg+xml", "image/png"} & shown.keys() == {kind}
    assert path == tmp_path / name and path.with_suffix(".txt").parent == tmp_path
