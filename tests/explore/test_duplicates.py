"""`imix.duplicates`: planted copies are found, exact or changed a little, and nothing else is."""

import io

import numpy as np
import polars
import pytest
import soundfile
import torch
from PIL import Image

import imix
from imix import InputError
from tests.explore.helpers import customers


def pairs(answer):
    return set(answer.frame.select("row", "other_row").rows())


def random_image(rng):
    """A smooth image of 32 x 32 pixels."""
    small = Image.fromarray(rng.integers(0, 256, (6, 6, 3), dtype=np.uint8))
    return small.resize((32, 32), Image.Resampling.BICUBIC)


def test_exact_copies_are_paired_with_the_first(points):
    answer = imix.duplicates(None, np.concatenate([points, points[4:5], points[4:5], points[9:10]]))
    assert pairs(answer) == {(4, 60), (4, 61), (9, 62)}
    assert answer.frame["kind"].unique().to_list() == ["exact"]
    assert answer.frame["relative_distance"].to_list() == [0, 0, 0]
    assert answer.frame.sort("other_row")["group"].to_list() == [0, 0, 1]
    assert str(answer).splitlines()[0].endswith(": 3 exact, 0 near")
    assert "removing 3 samples would leave" in str(answer)


def test_rows_with_small_noise_are_near_duplicates(run, table, tmp_path, read):
    frame = customers(180)
    copies = frame[:10].with_columns(age=polars.col("age") + 1e-3, id="copy-" + polars.col("id"))
    answer = imix.duplicates(run, polars.concat([frame, copies]), tmp_path / "pairs.csv", keep="id")
    planted = {(i, 180 + i) for i in range(10)}
    assert planted <= pairs(answer) and len(pairs(answer)) <= 11
    assert set(answer.frame["kind"]) == {"near"}
    written = read(tmp_path / "pairs.csv")
    assert written.columns[:6] == ["id", "row", "label", "other_id", "other_row", "other_label"]
    assert written.columns[6:] == ["kind", "relative_distance", "feature_similarity", "group"]
    assert written.filter(row=3)["other_id"].to_list() == ["copy-c0-0003"]


def test_the_ids_of_a_dropped_column_do_not_make_rows_different(run):
    frame = customers(60)
    copies = frame[:5].with_columns(id="copy-" + polars.col("id"))
    answer = imix.duplicates(run, polars.concat([frame, copies]))
    assert {(i, 60 + i) for i in range(5)} <= set(answer.frame.filter(kind="exact").select("row", "other_row").rows())


def test_test_samples_that_are_training_samples_are_leakage(run, table, tmp_path):
    new = polars.concat([customers(20, seed=1), customers(180)[[7, 8]]])
    new.write_csv(tmp_path / "new.csv")
    answer = imix.duplicates(run, table, test=str(tmp_path / "new.csv"))
    exact = answer.frame.filter(kind="exact")
    assert exact.select("row", "split", "other_row", "other_split").sort("row").rows() == [
        (7, "train", 20, "test"),
        (8, "train", 21, "test"),
    ]
    crossing = (answer.frame["split"] != answer.frame["other_split"]).sum()
    assert f"{crossing} pairs consist of a training and a test sample (leakage)" in str(answer)


def test_copies_with_another_label_are_counted(run):
    frame = customers(60)
    answer = imix.duplicates(run, polars.concat([frame, frame[:3].with_columns(churned=polars.lit("maybe"))]))
    assert answer.frame.filter(kind="exact", other_label="maybe").height == 3
    assert "pairs have different labels" in str(answer)


def test_compressed_and_resized_images_are_near_duplicates(tmp_path):
    rng = np.random.default_rng(0)
    for i in range(60):
        image = random_image(rng)
        image.save(tmp_path / f"{i:03}.png")
        if i < 5:
            image.save(tmp_path / f"{i + 100}.jpg", quality=60)
        elif i < 10:
            image.resize((24, 24), Image.Resampling.BILINEAR).resize((32, 32)).save(tmp_path / f"{i + 100}.png")
    answer = imix.duplicates(torch.nn.Flatten(), tmp_path)
    assert pairs(answer) == {(i, 60 + i) for i in range(10)}
    assert answer.frame["other_file"].str.contains("/1").all()


@pytest.mark.slow
def test_shifted_and_compressed_recordings_are_near_duplicates(tmp_path):
    rng = np.random.default_rng(0)
    time = np.arange(16_000) / 16_000
    for i in range(40):
        pitches = rng.uniform(200, 3000, 3)[:, None] * time + rng.uniform(-500, 500, 3)[:, None] * time**2
        wave = np.sin(2 * np.pi * pitches).sum(0) * np.exp(-(((time - 0.5) / 0.15) ** 2)) / 4
        soundfile.write(tmp_path / f"{i:03}.wav", wave, 16_000)
        if i < 4:
            soundfile.write(tmp_path / f"{i + 100}.wav", np.roll(wave, 1024 + 90 * i), 16_000)
        elif i < 8:
            file = io.BytesIO()
            soundfile.write(file, 0.6 * wave, 16_000, format="OGG")
            (tmp_path / f"{i + 100}.ogg").write_bytes(file.getvalue())
    run = imix.pretrain(tmp_path, epochs=1, device="cpu", progress=False)
    assert pairs(imix.duplicates(run, tmp_path)) == {(i, 40 + i) for i in range(8)}


def test_the_threshold_can_be_set(points):
    assert len(imix.duplicates(None, points, threshold=0).frame) == 0
    none, all_pairs = (imix.duplicates(None, points, threshold=t).frame for t in (0.0, 1.0))
    assert len(none) == 0 < len(all_pairs)
    assert all_pairs["relative_distance"].max() <= 1
    assert all_pairs["relative_distance"].is_sorted()
    with pytest.raises(InputError, match="`threshold` must be between 0 and 1; got 2"):
        imix.duplicates(None, points, threshold=2)


def test_without_duplicates_the_frame_is_empty_and_can_be_written(points, tmp_path, read):
    answer = imix.duplicates(None, points, tmp_path / "none.parquet", threshold=0)
    assert read(tmp_path / "none.parquet").schema == answer.frame.schema
    assert str(answer).startswith("duplicate pairs among 60 samples of in-memory data: 0 exact, 0 near")


def test_one_and_two_samples_can_be_asked_about():
    assert len(imix.duplicates(None, np.float32([[1, 2]])).frame) == 0
    assert len(imix.duplicates(None, np.float32([[1, 2], [3, 1]])).frame) == 0
