"""Folders of images: formats, modes, sizes, classes, broken files, and streaming."""

import os
import shutil
import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import polars
import pytest
import torch
from PIL import Image

import imix
from imix import DataSettings, InputError
from imix.data import load
from imix.data.media import images
from imix.data.media.folder import decoded, find_files
from imix.data.media.images import ImageFiles, ImageFormat, decode
from imix.data.media.references import IMAGE_SUFFIXES
from tests.data.media.helpers import QUICK, write_image


@pytest.fixture
def animals(tmp_path):
    """A folder of twelve images in two classes, red and blue."""
    for i in range(6):
        write_image(tmp_path / "animals" / "cat" / f"{i}.png", color=(220, 60, 60))
        write_image(tmp_path / "animals" / "dog" / "more" / f"{i}.jpg", color=(60, 60, 220))
    return tmp_path / "animals"


def test_subfolders_are_classes_and_samples_are_named_by_file(animals):
    data = load(animals)
    assert (len(data.train), data.train.shape, list(data.class_names)) == (12, (3, 40, 40), ["cat", "dog"])
    assert data.train.labels.tolist() == [0] * 6 + [1] * 6
    assert data.train.inputs.dtype == torch.uint8
    assert data.sample_names[0].endswith("cat/0.png") and data.sample_names[-1].endswith("dog/more/5.jpg")


def test_images_outside_of_subfolders_disable_labels(tmp_path):
    for i in range(3):
        write_image(tmp_path / f"{i}.png")
    write_image(tmp_path / "more" / "3.png")
    assert load(tmp_path).train.labels is None


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("a.jpg", "RGB"),
        ("a.JPEG", "L"),
        ("a.png", "RGB"),
        ("a.png", "P"),
        ("a.png", "1"),
        ("a.webp", "RGB"),
        ("a.jpg", "CMYK"),
    ],
)
def test_all_formats_and_modes_are_decoded_to_rgb(tmp_path, name, mode):
    image = decode(write_image(tmp_path / name, mode=mode), ImageFormat(32))
    assert (image.shape, image.dtype) == ((3, 32, 32), np.uint8)
    expected = {"L": [125] * 3, "1": None}.get(mode, [200, 100, 50])
    if expected is not None:
        assert np.abs(image.mean((1, 2)) - expected).max() < 12


def test_transparent_pixels_become_white(tmp_path):
    clear = Image.new("RGBA", (16, 16), (255, 0, 0, 0))
    clear.save(tmp_path / "clear.png")
    assert decode(tmp_path / "clear.png", ImageFormat(16)).min() == 255


def test_16_bit_images_among_color_images_are_scaled_to_8_bits(tmp_path):
    Image.fromarray(np.full((8, 8), 32768, np.uint16)).save(tmp_path / "deep.png")
    write_image(tmp_path / "color.png", size=(8, 8))
    data = load(tmp_path)
    assert (data.train.shape, data.train.inputs.dtype) == ((3, 8, 8), torch.uint8)
    assert (data.train.inputs[1].int() - 127).abs().max() <= 1


@pytest.mark.parametrize("name", ["a.png", "a.tif"])
def test_16_bit_images_keep_their_range(tmp_path, name):
    pixels = np.random.default_rng(0).integers(0, 4096, (3, 8, 8)).astype(np.uint16)  # 12 of 16 bits
    for i, image in enumerate(pixels):
        Image.fromarray(image).save(tmp_path / f"{i} {name}")
    data = load(tmp_path)
    assert (data.train.inputs.dtype, data.settings.channels) == (torch.float32, 1)
    assert np.allclose(data.train.inputs[:, 0] * 65535, pixels, rtol=1e-6, atol=1e-3)
    run = imix.pretrain(data, replace(QUICK, batch_size=3), progress=False)
    assert np.isclose(run.encoder[0].std.item(), (pixels / 65535).std(), rtol=1e-3)
    assert imix.embed(run, tmp_path).shape == (3, 128)
    (gray,) = load([write_image(tmp_path / "8 bits.png", (8, 8), mode="L")], DataSettings(channels=1)).train.inputs
    mixed = load(tmp_path, DataSettings(channels=1)).train.inputs[-1]
    assert torch.allclose(mixed, gray / 255)


@pytest.mark.parametrize(("channels", "augmentation"), [(1, "crop"), (3, "color jitter"), (4, "crop")])
@pytest.mark.parametrize("max_bytes", [0, 1 << 30])
def test_images_have_the_number_of_channels_that_is_set(
    animals, monkeypatch, capsys, channels, augmentation, max_bytes
):
    monkeypatch.setattr(images, "MAX_BYTES_IN_MEMORY", max_bytes)
    run = imix.pretrain(animals, QUICK, DataSettings(channels=channels))
    assert run.config.data.shape == (channels, 40, 40)
    message = capsys.readouterr().err
    assert augmentation in message and ("color jitter" in message) == (channels == 3)
    assert imix.embed(run, animals).shape == (12, 128)


def test_opacity_is_the_fourth_channel(tmp_path):
    Image.new("RGBA", (4, 4), (10, 20, 30, 40)).save(tmp_path / "a.png")
    assert load(tmp_path, DataSettings(channels=4)).train.inputs[0, :, 0, 0].tolist() == [10, 20, 30, 40]
    with pytest.raises(InputError, match="`channels` must be 1, 3 or 4; got 2"):
        DataSettings(channels=2)


def test_exif_orientation_is_applied(tmp_path):
    half = np.zeros((20, 20, 3), np.uint8)
    half[:10] = 255  # the upper half is white
    image = Image.fromarray(half).rotate(90)  # as stored by a camera that was turned on its side
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(tmp_path / "turned.jpg", exif=exif, quality=95)
    decoded_image = decode(tmp_path / "turned.jpg", ImageFormat(20))
    assert decoded_image[:, :8].mean() > 240 and decoded_image[:, 12:].mean() < 15


@pytest.mark.parametrize(
    ("sizes", "expected_size"),
    [([(28, 28)] * 3, 28), ([(40, 50), (60, 40)], 32), ([(300, 400)] * 3, 224), ([(20, 10)], 32), ([(500, 500)], 224)],
)
def test_images_are_resized_to_one_size(tmp_path, sizes, expected_size):
    for i, size in enumerate(sizes):
        write_image(tmp_path / f"{i}.png", size=size)
    assert load(tmp_path).train.shape == (3, expected_size, expected_size)
    assert load(tmp_path, DataSettings(image_size=16)).train.shape == (3, 16, 16)


def test_wide_images_are_center_cropped_without_distortion(tmp_path):
    wide = np.zeros((20, 60, 3), np.uint8)
    wide[:, 20:40] = 255
    Image.fromarray(wide).save(tmp_path / "wide.png")
    assert decode(tmp_path / "wide.png", ImageFormat(20)).min() == 255


def test_broken_files_are_reported_and_skipped(animals, capsys):
    (animals / "cat" / "empty.png").write_bytes(b"")
    content = (animals / "dog" / "more" / "0.jpg").read_bytes()
    (animals / "dog" / "more" / "cut.jpg").write_bytes(content[: len(content) // 2])
    data = load(animals)
    message = capsys.readouterr().err
    assert "empty.png" in message and "cut.jpg" in message and "skipped 2 of 14 images" in message
    assert (len(data.train), len(data.sample_names), data.train.labels.tolist()) == (12, 12, [0] * 6 + [1] * 6)


def test_too_many_broken_files_are_an_error(animals):
    for i in range(6):
        (animals / "cat" / f"broken {i}.png").write_bytes(b"not an image")
    with pytest.raises(InputError, match=r"6 images cannot be decoded; the last is .*broken 5.png"):
        load(animals)


def test_folders_without_images_are_an_error(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(InputError, match=r"contains no images \(\.jpg, .*\)"):
        load(tmp_path)
    (tmp_path / "a.png").write_bytes(b"")
    with pytest.raises(InputError, match="none of the 1 images can be decoded"):
        load(tmp_path)


def test_cyclic_links_are_ignored(animals):
    (animals / "cat" / "loop").symlink_to(animals)
    assert len(find_files(animals, IMAGE_SUFFIXES)) == 12


def test_streamed_images_equal_images_in_memory(animals, monkeypatch):
    in_memory = load(animals)
    monkeypatch.setattr(images, "MAX_BYTES_IN_MEMORY", 0)
    streamed = load(animals)
    assert isinstance(streamed.train, ImageFiles) and streamed.train.nbytes() == 0
    rows = [torch.tensor([3, 0]), torch.tensor([11, 5]), torch.tensor([7, 7])] * 3
    for (x, y), (z, w) in zip(in_memory.train.batches(rows), streamed.train.batches(rows), strict=True):
        assert torch.equal(x, z) and torch.equal(y, w)
    assert torch.equal(streamed.train.take(torch.tensor([4, 9])).labels, torch.tensor([0, 1]))


def test_a_broken_streamed_image_is_an_error_or_black_in_training(animals, monkeypatch, capsys):
    monkeypatch.setattr(images, "MAX_BYTES_IN_MEMORY", 0)
    streamed = load(animals).train
    streamed.paths[1].write_bytes(b"")
    with pytest.raises(InputError, match=r"cat/1\.png cannot be decoded"):
        list(streamed.batches([torch.tensor([0, 1])]))
    streamed = streamed.for_training()
    (batch, labels), *_ = streamed.batches([torch.tensor([0, 1, 1])] * 3)
    assert batch[0].any() and not batch[1:].any() and labels.tolist() == [0, 0, 0]
    assert capsys.readouterr().err.count("cannot be decoded") == 1
    for path in streamed.paths[:6]:
        path.write_bytes(b"")
    with pytest.raises(InputError, match="6 images cannot be decoded"):
        list(streamed.batches([torch.arange(12)]))


def test_training_on_a_stream_with_a_broken_image_works(animals, monkeypatch):
    monkeypatch.setattr(images, "MAX_BYTES_IN_MEMORY", 0)
    (animals / "cat" / "0.png").write_bytes(b"")
    assert imix.pretrain(animals, QUICK, DataSettings(image_size=40), progress=False).metrics


@pytest.mark.parametrize("max_bytes", [0, 1 << 30])
def test_pretrain_evaluate_and_embed_work_on_a_folder(animals, tmp_path, monkeypatch, max_bytes, capsys):
    monkeypatch.setattr(images, "MAX_BYTES_IN_MEMORY", max_bytes)
    shutil.copytree(animals, tmp_path / "others")
    run = imix.pretrain(animals, QUICK, DataSettings(test=str(tmp_path / "others")), out=tmp_path / "run")
    assert "crop 0.2 to 1, flip 0.5, color jitter 0.8, grayscale 0.2" in capsys.readouterr().err
    assert run.config.architecture.standardize
    assert imix.evaluate(tmp_path / "run", protocol="knn").split.test == 12
    imix.embed(tmp_path / "run", animals, tmp_path / "z.parquet")
    table = polars.read_parquet(tmp_path / "z.parquet")
    assert table["file"][0].endswith("cat/0.png") and table["label"].to_list()[:12] == ["cat"] * 6 + ["dog"] * 6


def test_new_images_get_the_size_of_the_run_and_fraction_is_not_applied(animals, tmp_path):
    run = imix.pretrain(animals, QUICK, DataSettings(fraction=0.5), progress=False)
    assert run.data_settings.image_size == 40
    for i in range(5):
        write_image(tmp_path / "new" / f"{i}.png", size=(100, 70))
    assert imix.embed(run, tmp_path / "new").shape == (5, 128)
    assert imix.embed(run, animals).shape == (12, 128)


def test_a_test_folder_that_overlaps_the_training_folder_is_an_error(animals):
    for test in (animals, animals / "cat", animals.parent):
        with pytest.raises(InputError, match="must not overlap"):
            load(animals, DataSettings(test=str(test)))


def test_hidden_files_and_pipes_are_ignored_and_links_are_followed(animals, tmp_path, capsys):
    write_image(animals / ".thumbs" / "a.png")
    write_image(animals / "cat" / ".hidden.png")
    (animals / "cat" / "folder.png").mkdir()
    os.mkfifo(animals / "cat" / "pipe.png")
    write_image(tmp_path / "elsewhere" / "0.png")
    (animals / "fox").symlink_to(tmp_path / "elsewhere")
    assert list(load(animals).class_names) == ["cat", "dog", "fox"]
    write_image(animals / "stray.png")
    assert load(animals).train.labels is None
    assert "no labels, because 'stray.png'" in capsys.readouterr().err


def test_file_names_that_are_not_utf8_are_escaped_in_output(animals, tmp_path):
    os.rename(animals / "cat" / "0.png", os.fsencode(animals / "cat") + b"/\xff0.png")
    run = imix.pretrain(animals, QUICK, progress=False)
    imix.embed(run, animals, tmp_path / "z.parquet")
    assert any("\\xff0.png" in name for name in polars.read_parquet(tmp_path / "z.parquet")["file"])


def test_closing_the_iterator_stops_the_decoding_threads(animals):
    before = threading.enumerate()
    decoded_images = decoded(find_files(animals, IMAGE_SUFFIXES) * 50, lambda path: decode(path, ImageFormat(16)))
    next(decoded_images)
    assert set(threading.enumerate()) - set(before)
    decoded_images.close()
    assert not set(threading.enumerate()) - set(before)


def test_the_default_augmentation_depends_on_the_image_size(tmp_path):
    for i in range(4):
        write_image(tmp_path / f"{i}.png", size=(80, 80))
    assert (load(tmp_path).augment, load(tmp_path, DataSettings(image_size=32)).augment) == ("imagenet", "cifar")


# --- limits ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def budget(monkeypatch):
    """A function that sets IMIX_MAX_PIXELS."""

    def set_budget(value):
        monkeypatch.setenv("IMIX_MAX_PIXELS", str(value))
        images.pixel_budget.cache_clear()
        return images.pixel_budget()

    limit = Image.MAX_IMAGE_PIXELS
    yield set_budget
    images.pixel_budget.cache_clear()
    Image.MAX_IMAGE_PIXELS = limit


def test_the_pixels_that_are_decoded_at_the_same_time_are_limited(tmp_path, budget, monkeypatch):
    for i in range(24):
        write_image(tmp_path / f"{i}.png", (40, 25 * (1 + i % 4)))
    total = budget(5000)
    in_use, original = [], images._fit

    def fit(image, size):
        in_use.append(total.used)
        return original(image, size)

    monkeypatch.setattr(images, "_fit", fit)
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    assert len(load(tmp_path).train) == 24
    assert max(in_use) <= 5000 and total.used == 0
    assert max(in_use) > 1000, "several images are decoded at the same time"


def test_an_image_above_the_limit_is_reported_and_the_limit_can_be_raised(animals, budget, capsys):
    write_image(animals / "cats" / "large.png", (300, 300))
    budget(80_000)
    load(animals)
    assert "large.png': too large: 300 x 300 pixels; IMIX_MAX_PIXELS is 80,000" in capsys.readouterr().err
    budget(90_000)
    load(animals)
    assert "large.png" not in capsys.readouterr().err


@pytest.mark.slow
def test_a_limit_above_that_of_pillow_also_raises_that(tmp_path, budget):
    Image.new("L", (20_000, 10_000)).save(tmp_path / "a.png", compress_level=1)
    with pytest.raises(Exception, match="exceeds limit"):
        decode(tmp_path / "a.png", ImageFormat(32))
    budget(200_000_000)
    assert decode(tmp_path / "a.png", ImageFormat(32)).shape == (3, 32, 32)


@pytest.mark.parametrize("value", ["many", "-1", "0", "1e6"])
def test_an_invalid_limit_is_an_error(budget, value):
    with pytest.raises(InputError, match=f"IMIX_MAX_PIXELS must be a number of pixels; got '{value}'"):
        budget(value)


def test_an_invalid_limit_is_one_error_for_a_folder(animals, budget, monkeypatch, capsys):
    budget(80_000)
    monkeypatch.setenv("IMIX_MAX_PIXELS", "many")
    images.pixel_budget.cache_clear()
    with pytest.raises(InputError, match=r"^the environment variable IMIX_MAX_PIXELS must be a number of pixels"):
        load(animals)
    assert "skipped" not in capsys.readouterr().err


@pytest.mark.slow
def test_large_images_take_four_bytes_per_pixel_in_all_threads_together(tmp_path):
    """They used to be copied for every step of decoding, and each thread kept the memory of its last image."""
    Image.new("RGB", (6000, 5000)).save(tmp_path / "a.png", compress_level=1)
    script = f"""
import resource
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from imix.data.media.images import ImageFormat, decode
from PIL import Image
Image.preinit()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with ThreadPoolExecutor(4) as pool:
    list(pool.map(decode, [Path({str(tmp_path / "a.png")!r})] * 8, [ImageFormat(32)] * 8))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    environment = os.environ | {"IMIX_MAX_PIXELS": "30000000"}
    result = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert int(result.stdout) * 1024 < 1.5 * 4 * 30_000_000
