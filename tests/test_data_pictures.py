"""Folders of images: formats, modes and sizes; classes; broken files; in memory and streamed alike."""

import os
import shutil
import threading

import numpy as np
import polars
import pytest
import torch
from PIL import Image

import imix
from imix import InputError, Reading, Settings
from imix.data import load, pictures
from imix.data.folder import decoded
from imix.data.pictures import Pictures, decode, find_pictures

QUICK = Settings(epochs=2, batch_size=4, device="cpu", encoder="small")


def picture(path, size=(40, 40), colour=(200, 100, 50), mode="RGB", **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(sum(map(ord, path.name))).integers(0, 40, (size[1], size[0], 3))
    image = Image.fromarray(np.uint8(np.clip(np.array(colour) + noise - 20, 0, 255)))
    image.convert(mode).save(path, **options)
    return path


@pytest.fixture
def animals(tmp_path):
    """Twelve pictures in two classes, which are told apart by their colour."""
    for i in range(6):
        picture(tmp_path / "animals" / "cat" / f"{i}.png", colour=(220, 60, 60))
        picture(tmp_path / "animals" / "dog" / "more" / f"{i}.jpg", colour=(60, 60, 220))
    return tmp_path / "animals"


def test_subfolders_are_classes_and_files_have_names(animals):
    data = load(animals)
    assert (len(data.train), data.train.shape, list(data.class_names)) == (12, (3, 40, 40), ["cat", "dog"])
    assert data.train.labels.tolist() == [0] * 6 + [1] * 6
    assert data.train.inputs.dtype == torch.uint8
    assert data.names[0].endswith("cat/0.png") and data.names[-1].endswith("dog/more/5.jpg")


def test_a_folder_without_subfolders_has_no_labels(tmp_path):
    for i in range(3):
        picture(tmp_path / f"{i}.png")
    picture(tmp_path / "more" / "3.png")
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
def test_formats_and_modes_become_colour_images(tmp_path, name, mode):
    found = decode(picture(tmp_path / name, mode=mode), 32)
    assert (found.shape, found.dtype) == ((3, 32, 32), np.uint8)
    expected = {"L": [125] * 3, "1": None}.get(mode, [200, 100, 50])
    if expected is not None:
        assert np.abs(found.mean((1, 2)) - expected).max() < 12


def test_what_is_transparent_is_white(tmp_path):
    clear = Image.new("RGBA", (16, 16), (255, 0, 0, 0))
    clear.save(tmp_path / "clear.png")
    assert decode(tmp_path / "clear.png", 16).min() == 255


def test_sixteen_bits_are_brought_to_eight(tmp_path):
    Image.fromarray(np.full((8, 8), 32768, np.uint16)).save(tmp_path / "deep.png")
    assert np.abs(decode(tmp_path / "deep.png", 8).astype(int) - 127).max() <= 1


def test_cameras_that_were_turned_are_turned_back(tmp_path):
    half = np.zeros((20, 20, 3), np.uint8)
    half[:10] = 255  # the upper half is white
    image = Image.fromarray(half).rotate(90)  # as a camera on its side stores it
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(tmp_path / "turned.jpg", exif=exif, quality=95)
    found = decode(tmp_path / "turned.jpg", 20)
    assert found[:, :8].mean() > 240 and found[:, 12:].mean() < 15


@pytest.mark.parametrize(
    ("sizes", "side"),
    [([(28, 28)] * 3, 28), ([(40, 50), (60, 40)], 32), ([(300, 400)] * 3, 224), ([(20, 10)], 32), ([(500, 500)], 224)],
)
def test_images_are_brought_to_one_side(tmp_path, sizes, side):
    for i, size in enumerate(sizes):
        picture(tmp_path / f"{i}.png", size=size)
    assert load(tmp_path).train.shape == (3, side, side)
    assert load(tmp_path, Reading(image_size=16)).train.shape == (3, 16, 16)


def test_the_middle_is_taken_and_nothing_is_squeezed(tmp_path):
    wide = np.zeros((20, 60, 3), np.uint8)
    wide[:, 20:40] = 255
    Image.fromarray(wide).save(tmp_path / "wide.png")
    assert decode(tmp_path / "wide.png", 20).min() == 255


def test_broken_files_are_named_counted_and_left_out(animals, capsys):
    (animals / "cat" / "empty.png").write_bytes(b"")
    whole = (animals / "dog" / "more" / "0.jpg").read_bytes()
    (animals / "dog" / "more" / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    data = load(animals)
    said = capsys.readouterr().err
    assert "empty.png" in said and "cut.jpg" in said and "2 of 14 images were left out" in said
    assert (len(data.train), len(data.names), data.train.labels.tolist()) == (12, 12, [0] * 6 + [1] * 6)


def test_more_than_a_few_broken_files_stop_the_run(animals):
    for i in range(6):
        (animals / "cat" / f"broken {i}.png").write_bytes(b"no image")
    with pytest.raises(InputError, match=r"6 images cannot be decoded; the last is .*broken 5.png"):
        load(animals)


def test_folders_without_images_are_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(InputError, match=r"no images \(\.jpg, .*\) in"):
        load(tmp_path)
    (tmp_path / "a.png").write_bytes(b"")
    with pytest.raises(InputError, match="none of the 1 images can be decoded"):
        load(tmp_path)


def test_links_that_go_in_circles_are_not_followed(animals):
    (animals / "cat" / "loop").symlink_to(animals)
    assert len(find_pictures(animals)) == 12


def test_streamed_images_are_those_in_memory(animals, monkeypatch):
    held = load(animals)
    monkeypatch.setattr(pictures, "IN_MEMORY", 0)
    streamed = load(animals)
    assert isinstance(streamed.train, Pictures) and streamed.train.nbytes() == 0
    rows = [torch.tensor([3, 0]), torch.tensor([11, 5]), torch.tensor([7, 7])] * 3
    for (x, y), (z, w) in zip(held.train.batches(rows), streamed.train.batches(rows), strict=True):
        assert torch.equal(x, z) and torch.equal(y, w)
    assert torch.equal(streamed.train.take(torch.tensor([4, 9])).labels, torch.tensor([0, 1]))


def test_a_broken_image_in_a_stream_is_refused_or_in_training_replaced_up_to_a_few(animals, monkeypatch, capsys):
    monkeypatch.setattr(pictures, "IN_MEMORY", 0)
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


def test_a_streamed_folder_with_a_broken_image_trains(animals, monkeypatch):
    monkeypatch.setattr(pictures, "IN_MEMORY", 0)
    (animals / "cat" / "0.png").write_bytes(b"")
    assert imix.pretrain(animals, QUICK, Reading(image_size=40), progress=False).metrics


@pytest.mark.parametrize("in_memory", [0, 1 << 30])
def test_from_a_folder_to_vectors(animals, tmp_path, monkeypatch, in_memory, capsys):
    monkeypatch.setattr(pictures, "IN_MEMORY", in_memory)
    shutil.copytree(animals, tmp_path / "others")
    run = imix.pretrain(animals, QUICK, Reading(test=str(tmp_path / "others")), out=tmp_path / "run")
    assert "crop 0.2 to 1, flip 0.5, colour jitter 0.8, greyscale 0.2" in capsys.readouterr().err
    assert run.config["architecture"]["standardise"]
    assert imix.evaluate(tmp_path / "run", protocol="knn").constants["test"] == 12
    imix.embed(tmp_path / "run", animals, tmp_path / "z.parquet")
    table = polars.read_parquet(tmp_path / "z.parquet")
    assert table["file"][0].endswith("cat/0.png") and table["label"].to_list()[:12] == ["cat"] * 6 + ["dog"] * 6


def test_later_images_are_brought_to_the_runs_size_and_none_is_left_out(animals, tmp_path):
    run = imix.pretrain(animals, QUICK, Reading(fraction=0.5), progress=False)
    assert run.reading.image_size == 40
    for i in range(5):
        picture(tmp_path / "new" / f"{i}.png", size=(100, 70))
    assert imix.embed(run, tmp_path / "new").shape == (5, 128)
    assert imix.embed(run, animals).shape == (12, 128)


def test_test_images_within_the_training_folder_are_refused(animals):
    for test in (animals, animals / "cat", animals.parent):
        with pytest.raises(InputError, match="must lie apart"):
            load(animals, Reading(test=str(test)))


def test_what_is_hidden_or_no_file_does_not_count_and_links_do(animals, tmp_path, capsys):
    picture(animals / ".thumbs" / "a.png")
    picture(animals / "cat" / ".hidden.png")
    (animals / "cat" / "folder.png").mkdir()
    os.mkfifo(animals / "cat" / "pipe.png")
    picture(tmp_path / "elsewhere" / "0.png")
    (animals / "fox").symlink_to(tmp_path / "elsewhere")
    assert list(load(animals).class_names) == ["cat", "dog", "fox"]
    picture(animals / "stray.png")
    assert load(animals).train.labels is None
    assert "no labels, since 'stray.png'" in capsys.readouterr().err


def test_a_file_name_that_is_no_text_is_written_as_far_as_it_goes(animals, tmp_path):
    os.rename(animals / "cat" / "0.png", os.fsencode(animals / "cat") + b"/\xff0.png")
    run = imix.pretrain(animals, QUICK, progress=False)
    imix.embed(run, animals, tmp_path / "z.parquet")
    assert any("\\xff0.png" in name for name in polars.read_parquet(tmp_path / "z.parquet")["file"])


def test_decoding_can_be_left_at_any_time(animals):
    before = threading.enumerate()
    images = decoded(find_pictures(animals) * 50, lambda path: decode(path, 16))
    next(images)
    assert set(threading.enumerate()) - set(before)
    images.close()
    assert not set(threading.enumerate()) - set(before)


def test_large_images_get_the_views_of_large_images(tmp_path):
    for i in range(4):
        picture(tmp_path / f"{i}.png", size=(80, 80))
    assert (load(tmp_path).augment, load(tmp_path, Reading(image_size=32)).augment) == ("imagenet", "cifar")


# --- parts of data sets ----------------------------------------------------------------------------------------------


def test_a_fraction_keeps_every_class_in_its_share(animals):
    data = load(animals, Reading(fraction=0.5))
    assert data.train.labels.bincount().tolist() == [3, 3]
    assert len(data.names) == 6 and all("cat" in name for name in data.names[:3])
    x, y = np.arange(200.0).reshape(100, 2), [0] * 90 + [1] * 10
    some = load(x, Reading(fraction=0.1), labels=y).train
    assert (some.labels.bincount().tolist(), len(load(x, Reading(fraction=0.1)).train)) == ([9, 1], 10)
    assert torch.equal(some.inputs, load(x, Reading(fraction=0.1), labels=y).train.inputs)
    with pytest.raises(InputError, match="fraction must be above 0 and at most 1; got 0"):
        Reading(fraction=0)


def test_imagenet_is_two_folders_and_a_hundred_of_its_classes_are_drawn_once(tmp_path, monkeypatch, capsys):
    for part, count in (("train", 2), ("val", 1)):
        for number in range(8):
            for i in range(count):
                picture(tmp_path / part / f"n{number:04d}" / f"{i}.png", size=(30, 40))
    reading = Reading(data_dir=str(tmp_path), image_size=16)
    whole = load("imagenet", reading)
    assert (len(whole.train), len(whole.test), whole.train.classes, whole.name) == (16, 8, 8, "imagenet")
    with pytest.raises(InputError, match=r"needs at least 100 classes; .* has 8"):
        load("imagenet100", reading)
    monkeypatch.setattr("imix.data.imagenet.HUNDRED", 3)
    some = load("imagenet100", reading)
    assert (len(some.train), len(some.test), len(some.class_names)) == (6, 3, 3)
    assert f"imagenet100: {' '.join(some.class_names)}" in capsys.readouterr().err
    assert list(load("imagenet100", reading).class_names) == list(some.class_names)
    with pytest.raises(InputError, match="needs --data-dir FOLDER"):
        load("imagenet")
    assert load("imagenet", Reading(data_dir=str(tmp_path))).train.shape == (3, 224, 224)
