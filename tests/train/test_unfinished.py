"""Runs that are still training, were stopped or failed are usable from their first checkpoint on."""

import errno
from dataclasses import replace

import pytest
import torch

import imix
from imix import InputError, files
from imix.run import checkpoint
from imix.run.config import Architecture
from imix.run.stored_encoder import assemble, save_encoder
from tests.train.helpers import SMALL, assert_same_weights, weights

DIGITS = replace(SMALL, batch_size=256, epochs=5)
PROGRESS = "epoch 2 of 5, step 7 of 25"


class Stop(Exception):
    pass


def stop_after_checkpoint(number, monkeypatch, error=Stop):
    """Raise an error as soon as this checkpoint is written, before the next file is."""
    original, steps = checkpoint.save, []

    def save(path, state):
        original(path, state)
        steps.append(state["step"])
        if len(steps) == number:
            raise error

    monkeypatch.setattr(checkpoint, "save", save)


@pytest.fixture
def unfinished(tmp_path, monkeypatch):
    """The folder of a run that was stopped after step 7; the checkpoint of step 8 was written, its encoder was not."""
    with monkeypatch.context() as patch:
        stop_after_checkpoint(8, patch)
        with pytest.raises(Stop):
            imix.pretrain("digits", DIGITS, out=tmp_path / "run", progress=False)
    return tmp_path / "run"


def test_every_checkpoint_comes_with_its_encoder(table, tmp_path, monkeypatch):
    stop_after_checkpoint(6, monkeypatch)
    with pytest.raises(Stop):
        imix.pretrain(table[0], SMALL, out=tmp_path / "run", progress=False)
    run = imix.load_run(tmp_path / "run")
    assert run.progress == "epoch 2 of 3, step 5 of 12"
    assert "epoch 2 of 3, step 5 of 12" in repr(run)
    assert not run.encoder.training


def test_the_encoder_of_a_finished_run_has_no_progress(table, tmp_path):
    run = imix.pretrain(table[0], SMALL, out=tmp_path / "run", progress=False)
    loaded = imix.load_run(tmp_path / "run")
    assert run.progress is loaded.progress is None
    assert_same_weights(weights(run), weights(loaded))


def test_every_command_works_and_says_at_which_epoch_the_run_is(unfinished, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    message = f"{unfinished}: using the encoder of {PROGRESS}"
    assert len(imix.embed(unfinished, "digits", device="cpu")) == 1797
    assert message in capsys.readouterr().err
    imix.draw_map(unfinished, tmp_path / "map.svg", samples=20, device="cpu")
    assert message in capsys.readouterr().err
    assert PROGRESS in str(imix.evaluate(unfinished, protocol="knn", device="cpu"))
    page = imix.report(unfinished, tmp_path / "r.html", samples=20).read_text()
    assert f"Training is not finished: {unfinished} is at {PROGRESS}." in page


def test_an_exported_encoder_says_at_which_epoch_the_run_is(tmp_path, capsys):
    architecture = Architecture("resnet18", (3, 8, 8), (), standardize=True, clip=None)
    path = tmp_path / "encoder.safetensors"
    save_encoder(path, assemble(architecture).state_dict(), architecture, PROGRESS)
    imix.export(path, "timm", tmp_path / "resnet18.safetensors")
    assert f"{path}: using the encoder of {PROGRESS}" in capsys.readouterr().err


def test_results_of_an_earlier_epoch_are_kept_but_do_not_count_for_the_finished_encoder(unfinished):
    early = imix.evaluate(unfinished, protocol="knn", device="cpu")
    assert imix.load_run(unfinished).evaluations == [early]
    run = imix.pretrain("digits", DIGITS, out=unfinished, resume=True, progress=False)
    assert run.evaluations == []
    late = imix.evaluate(run, protocol="knn", device="cpu")
    assert run.evaluations == [late]
    assert [line["progress"] for line in files.read_jsonl(unfinished / "evaluations.jsonl")] == [PROGRESS, None]


def test_a_disk_that_is_full_when_the_encoder_is_written_leaves_the_run_resumable(table, tmp_path, monkeypatch):
    expected = imix.pretrain(table[0], SMALL, out=tmp_path / "undisturbed", progress=False)
    with monkeypatch.context() as patch:
        stop_after_checkpoint(6, patch, OSError(errno.ENOSPC, "No space left on device"))
        with pytest.raises(OSError, match="No space left"):
            imix.pretrain(table[0], SMALL, out=tmp_path / "run", progress=False)
    resumed = imix.pretrain(table[0], SMALL, out=tmp_path / "run", resume=True, progress=False)
    assert_same_weights(weights(expected), weights(resumed))
    names = ("undisturbed", "run")
    first, second = ((tmp_path / name / "encoder.safetensors").read_bytes() for name in names)
    assert first == second


@pytest.mark.parametrize("progress", ["epoch\n1", "<b>", "epoch 1 of 2", "1" * 999])
def test_a_damaged_progress_is_rejected(tmp_path, progress):
    architecture = Architecture("mlp:4", (6,), (), standardize=False, clip=None)
    state = {"encoder.layers.0.weight": torch.zeros(4, 6)}
    save_encoder(tmp_path / "x.safetensors", state, architecture, progress)
    with pytest.raises(InputError, match="its progress is not of the form"):
        imix.load_encoder(tmp_path / "x.safetensors")
