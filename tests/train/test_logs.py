"""metrics.jsonl, TensorBoard, Weights & Biases."""

import importlib.util
from dataclasses import replace

import pytest

import imix
from imix import InputError, files
from imix.train.logs import Log
from tests.train.helpers import SMALL


def test_metrics_have_loss_lr_and_speed_for_every_epoch(table, tmp_path):
    run = imix.pretrain(table[0], SMALL, out=tmp_path / "run", progress=False)
    records = files.read_jsonl(tmp_path / "run" / "metrics.jsonl")
    assert records == run.metrics
    assert [record["epoch"] for record in records] == [1, 2, 3]
    assert all(record.keys() >= {"step", "epoch", "loss", "lr", "views_per_second"} for record in records)


def test_tensorboard_receives_the_records(table, tmp_path):
    imix.pretrain(table[0], replace(SMALL, tensorboard=True), out=tmp_path / "run", progress=False)
    assert list((tmp_path / "run" / "tensorboard").glob("events*"))


def test_missing_wandb_is_reported_before_the_folder_is_touched(table, tmp_path, monkeypatch):
    run = imix.pretrain(table[0], SMALL, out=tmp_path / "run", progress=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"imix-ssl\[wandb\]"):
        imix.pretrain(table[0], replace(SMALL, wandb=True), out=tmp_path / "run", overwrite=True, progress=False)
    assert imix.load_run(tmp_path / "run").metrics == run.metrics, "a refused command must not clear the folder"


def test_a_log_without_a_file_keeps_its_records():
    log = Log()
    log.write({"step": 1})
    assert log.records == [{"step": 1}]
