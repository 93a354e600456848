"""Folders of files: splits, links, unsupported files."""

import shutil

import pytest

from imix import DataSettings, InputError
from imix.data import load
from tests.data.media.helpers import write_image


@pytest.fixture
def folder(tmp_path):
    """A folder of two classes with eight images each."""
    for i in range(16):
        write_image(tmp_path / "images" / ("cats" if i % 2 else "dogs") / f"{i}.png", size=(12, 12))
    return tmp_path / "images"


def test_subfolders_that_are_splits_are_an_error(folder, tmp_path):
    for part in ("Train", "val"):
        shutil.copytree(folder, tmp_path / "with classes" / part)
        shutil.copytree(folder / "cats", tmp_path / "without classes" / part)
    for name in ("with classes", "without classes"):
        with pytest.raises(InputError, match=r"are splits, not classes \(Train, val\): pass '.*Train', and .*`test="):
            load(tmp_path / name)
    data = load(tmp_path / "with classes" / "Train", DataSettings(test=str(tmp_path / "with classes" / "val")))
    assert data.class_names == ["cats", "dogs"] and len(data.test) == 16


def test_a_link_to_a_class_does_not_replace_the_class(folder):
    (folder / "a link").symlink_to(folder / "cats")
    assert load(folder).class_names == ["cats", "dogs"]


def test_unsupported_files_are_reported(folder, capsys):
    for i in range(3):
        (folder / "cats" / f"{i}.HEIC").write_bytes(b"x")
    assert len(load(folder).train) == 16
    assert "ignored files of unsupported types: 3 .heic" in capsys.readouterr().err


def test_a_single_image_is_an_error(folder):
    with pytest.raises(InputError, match="single file; pass the folder"):
        load(folder / "cats" / "1.png")
