"""The content of a run folder, and how a run is loaded, printed and updated."""

import json
import os
import shutil
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

import pytest

import imix
from imix import Settings
from imix.errors import StorageError
from tests.helpers import cells

QUICK = Settings(epochs=1, batch_size=64, encoder="mlp:16-32", device="cpu")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return imix.pretrain("digits", QUICK, out=tmp_path_factory.mktemp("runs") / "digits", progress=False)


def test_a_run_folder_is_self_contained(run):
    names = {path.name for path in run.path.iterdir()}
    assert {"config.json", "metrics.jsonl", "checkpoint.pt", "encoder.safetensors"} <= names
    config = json.loads((run.path / "config.json").read_text())
    assert config["settings"]["method"] == "npair"
    data_settings = asdict(imix.DataSettings())
    expected = {"name": "digits", "samples": 1297, "shape": [1, 8, 8], "settings": data_settings, "table": None}
    assert len(config["data"].pop("fingerprint")) == 16
    assert config["data"] == expected


def test_a_run_folder_without_read_permission_is_named(run):
    with tempfile.TemporaryDirectory() as parent:  # not tmp_path, which is in a private folder
        Path(parent).chmod(0o755)
        folder = Path(parent) / "run"
        shutil.copytree(run.path, folder)
        folder.chmod(0)
        is_root = os.geteuid() == 0
        os.seteuid(65534 if is_root else os.geteuid())  # root may read every folder
        try:
            for read in (imix.load_run, imix.load_encoder, imix.evaluate):
                with pytest.raises(
                    imix.InputError, match=rf"^cannot read config\.json in '{folder}': Permission denied$"
                ):
                    read(folder)
            for options in ({}, {"resume": True}, {"overwrite": True}):
                with pytest.raises(PermissionError, match=rf"Permission denied: '{folder}'"):
                    imix.pretrain("digits", QUICK, out=folder, progress=False, **options)
        finally:
            os.seteuid(0 if is_root else os.geteuid())
            folder.chmod(0o755)
        assert {path.name for path in folder.iterdir()} == {path.name for path in run.path.iterdir()}


def test_the_repr_of_a_run_is_one_short_line(run):
    assert repr(run).startswith("<Run in ") and "npair + mixup on digits" in repr(run) and len(repr(run)) < 200


def test_a_notebook_shows_a_short_table_of_a_run(run):
    shown = dict(zip(cells(run)[::2], cells(run)[1::2], strict=True))
    assert shown["method"] == "npair + mixup" and shown["data"] == "digits: 1,297 samples, shape (1, 8, 8)"
    assert (shown["encoder"], shown["training"], shown["folder"]) == ("mlp:16-32", "1 epochs", str(run.path))
    assert shown["loss"] == f"{run.metrics[-1]['loss']:.4f}"
    stopped = replace(run, path=Path("<b>"), progress="epoch 1 of 9, step 2 of 180", metrics=[])
    assert "&lt;b&gt;" in stopped._repr_html_() and "epoch 1 of 9, step 2 of 180" in cells(stopped)


def test_a_result_that_cannot_be_saved_is_in_the_error_message(run, tmp_path):
    moved = imix.load_run(shutil.copytree(run.path, tmp_path / "moved"))
    (tmp_path / "moved" / "evaluations.jsonl").unlink(missing_ok=True)
    (tmp_path / "moved" / "evaluations.jsonl").mkdir()
    with pytest.raises(StorageError, match=r"cannot write .*; unsaved result: knn on digits: \d+\.\d\d%"):
        imix.evaluate(moved, protocol="knn")
