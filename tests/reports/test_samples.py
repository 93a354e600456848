"""What the embedding map shows of a sample."""

from dataclasses import replace

import numpy as np
import polars
import pytest
import soundfile
import torch
from PIL import Image

import imix
from imix.data import Data, TensorSource
from imix.reports import samples
from imix.reports.samples import sample_content, select_samples

from .helpers import QUICK, content_of, quick_run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def differently_loaded(table, tmp_path_factory) -> dict:
    """Content of a report of three runs on one file: all rows, half of them, and another label column."""
    folder = tmp_path_factory.mktemp("differently")
    options = [("breed",), ("breed", 0.5), ("color",)]
    runs = [quick_run(table, folder / str(i), *option) for i, option in enumerate(options)]
    return content_of(imix.report(runs, folder / "report.html", samples=20))


def test_rows_show_the_values_of_the_file(table, report_path):
    content = next(iter(content_of(report_path)["samples"].values()))
    frame = polars.read_csv(table)
    assert content["columns"] == ["height", "color", "breed"] and len(content["rows"]) == 60
    for index, row in zip(content["indices"], content["rows"], strict=True):
        assert row[1] == frame["color"][index] and row[0] == pytest.approx(frame["height"][index], rel=1e-3)


def test_dropped_columns_are_not_in_the_report(table, tmp_path):
    data_settings = imix.DataSettings(label="breed", columns={"color": "drop"})
    imix.pretrain(table, replace(QUICK, epochs=1), data_settings, out=tmp_path / "run", progress=False)
    content = next(iter(content_of(imix.report(tmp_path / "run"))["samples"].values()))
    assert content["columns"] == ["height", "breed"]


def test_every_point_shows_its_own_row(table, differently_loaded):
    frame = polars.read_csv(table)
    assert len(differently_loaded["maps"]) == 3
    for map_, label in zip(differently_loaded["maps"], ("breed", "breed", "color"), strict=True):
        content = differently_loaded["samples"][map_["samples"]]
        column = content["columns"].index(label)
        values = [row[column] for row in content["rows"]]
        assert values == [content["classes"][number] for number in content["labels"]]
        assert values == frame[label].gather(content["indices"]).to_list()


def test_maps_of_the_same_samples_share_them(report_path, differently_loaded):
    assert len(content_of(report_path)["samples"]) == 1 and len(content_of(report_path)["maps"]) == 2
    first, half, other_label = (map_["samples"] for map_ in differently_loaded["maps"])
    assert first == half != other_label


def test_images_and_audio_are_shown(tmp_path, monkeypatch):
    monkeypatch.setenv("IMIX_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    for i in range(24):
        image_folder, audio_folder = (tmp_path / kind / "ab"[i % 2] for kind in ("images", "audio"))
        image_folder.mkdir(parents=True, exist_ok=True)
        audio_folder.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 255, (16, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(image_folder / f"{i}.png")
        soundfile.write(audio_folder / f"{i}.wav", rng.normal(size=4000) * 0.1, 16000)
    for kind in ("images", "audio"):
        imix.pretrain(tmp_path / kind, replace(QUICK, epochs=1), out=tmp_path / f"{kind}-run", progress=False)
        report = content_of(imix.report([tmp_path / f"{kind}-run"], tmp_path / f"{kind}.html", samples=20))
        content = next(iter(report["samples"].values()))
        assert content["sprite"]["uri"].startswith("data:image/webp") and content["sprite"]["count"] == 20
        assert len(content["names"]) == 20
        assert ("audio" in content) == (kind == "audio")
    assert all(clip.startswith("data:audio/ogg") for clip in content["audio"])


def test_thumbnails_are_made_in_chunks(monkeypatch):
    class CheckedSource(TensorSource):
        def batches(self, rows):
            for batch in super().batches(rows):
                assert len(batch[0]) <= samples.CHUNK_SIZE
                yield batch

        def take(self, rows):
            return CheckedSource(self.inputs[rows])

    images = torch.rand(20, 4, 64, 80, generator=torch.Generator().manual_seed(0)) * 3 - 1
    data = Data("x", TensorSource(images))
    at_once = sample_content(None, data, select_samples(data))["sprite"]
    monkeypatch.setattr(samples, "CHUNK_SIZE", 6)
    data = Data("x", CheckedSource(images))
    assert sample_content(None, data, select_samples(data))["sprite"] == at_once
    assert at_once["count"] == 20 and at_once["width"] == samples.THUMBNAIL_SIZE
