"""`imix.pretrain`: run folders, refusals, messages, and agreement of all interfaces."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import imix
from imix import InputError, files
from imix.run import checkpoint
from imix.runtime.rng import BEFORE_TRAINING, epoch_order, seed_all
from imix.train.schedule import learning_rate
from tests.chaos.corpus import write_image
from tests.train.helpers import SMALL, assert_same_weights, cli, weights


class Executes:
    def __reduce__(self):
        return os.mkdir, ("executed",)


def test_pretraining_does_not_change_the_callers_random_state(table):
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    imix.pretrain(table[0], SMALL, progress=False)
    assert torch.equal(torch.rand(3), expected)


def test_resuming_a_finished_run_changes_nothing(table, tmp_path):
    first = imix.pretrain(table[0], SMALL, out=tmp_path / "run", progress=False)
    again = imix.pretrain(table[0], SMALL, out=tmp_path / "run", resume=True, progress=False)
    assert_same_weights(weights(first), weights(again))
    assert first.metrics == again.metrics


def test_resuming_with_other_settings_or_data_is_rejected(table, tmp_path):
    imix.pretrain(table[0], SMALL, out=tmp_path / "run", progress=False)
    with pytest.raises(InputError, match=r"temperature was 0\.2, now it is 0\.5"):
        imix.pretrain(table[0], replace(SMALL, temperature=0.5), out=tmp_path / "run", resume=True, progress=False)
    with pytest.raises(InputError, match="samples was 70, now it is 60"):
        imix.pretrain(table[0][:60], SMALL, out=tmp_path / "run", resume=True, progress=False)
    with pytest.raises(InputError, match="its data was different"):
        imix.pretrain(table[0].flip(0), SMALL, out=tmp_path / "run", resume=True, progress=False)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    config["data"]["fingerprint"] = None  # as for streamed data
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    imix.pretrain(table[0].flip(0), SMALL, out=tmp_path / "run", resume=True, progress=False)


def test_a_run_on_files_without_labels_can_be_resumed(tmp_path):
    for i in range(8):
        write_image(tmp_path / f"{i}.png", seed=i)
    lines = [f"{tmp_path}/{i}.png," for i in range(8)]
    (tmp_path / "t.csv").write_text("\n".join(["file,y", *lines]) + "\n")
    options = {"path_column": "file", "label": "y", "epochs": 1, "batch_size": 4, "device": "cpu", "progress": False}
    run = imix.pretrain(tmp_path / "t.csv", out=tmp_path / "run", **options)
    again = imix.pretrain(tmp_path / "t.csv", out=tmp_path / "run", resume=True, **options)
    assert_same_weights(weights(run), weights(again))


def test_a_folder_with_a_run_is_rejected_without_resume_or_overwrite(table, tmp_path):
    first = imix.pretrain(table[0], SMALL, out=tmp_path / "run", progress=False)
    (tmp_path / "run" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"`resume=True` .* or `overwrite=True`"):
        imix.pretrain(table[0], SMALL, out=tmp_path / "run", progress=False)
    assert imix.load_run(tmp_path / "run").metrics == first.metrics
    other = imix.pretrain(table[0], replace(SMALL, seed=3), out=tmp_path / "run", overwrite=True, progress=False)
    assert imix.load_run(tmp_path / "run").metrics == other.metrics != first.metrics
    assert (tmp_path / "run" / "notes.txt").read_text() == "mine"


def test_a_folder_that_is_not_a_run_is_never_touched(table, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    (tmp_path / "config.json").write_text("{}")
    for options in ({}, {"overwrite": True}, {"resume": True}):
        with pytest.raises(InputError, match="not a run"):
            imix.pretrain(table[0], SMALL, out=tmp_path, progress=False, **options)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "thesis.tex"]


def test_a_truncated_checkpoint_is_rejected_by_name(table, tmp_path):
    imix.pretrain(table[0], SMALL, out=tmp_path / "run", progress=False)
    path = tmp_path / "run" / "checkpoint.pt"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(InputError, match=r"checkpoint\.pt is damaged"):
        imix.pretrain(table[0], SMALL, out=tmp_path / "run", resume=True, progress=False)


def test_a_checkpoint_of_another_encoder_or_program_is_rejected(table, tmp_path):
    def start(width, **options):
        encoder = nn.Sequential(nn.Linear(6, width), nn.BatchNorm1d(width))
        return imix.pretrain(table[0], SMALL, encoder=encoder, out=tmp_path / "run", progress=False, **options)

    start(4)
    with pytest.raises(InputError, match="does not match the encoder"):
        start(5, resume=True)
    torch.save({"state_dict": {}}, tmp_path / "run" / "checkpoint.pt")
    with pytest.raises(InputError, match="not a checkpoint written by imix"):
        start(4, resume=True)


def test_tied_weights_are_saved(tmp_path):
    class Tied(nn.Module):
        width = 6

        def __init__(self):
            super().__init__()
            self.one = nn.Linear(6, 6)
            self.two = nn.Linear(6, 6)
            self.two.weight = self.one.weight

        def forward(self, x):
            return self.two(self.one(x))

    run = imix.pretrain(torch.randn(32, 6), SMALL, encoder=Tied(), out=tmp_path / "run", progress=False)
    x = torch.randn(3, 6)
    assert torch.equal(imix.load_encoder(tmp_path / "run", Tied())(x), run.encoder(x))


def test_a_checkpoint_cannot_execute_code(table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    imix.pretrain(table[0], SMALL, out=tmp_path / "run", progress=False)
    torch.save({"learner": Executes()}, tmp_path / "run" / "checkpoint.pt")
    with pytest.raises(InputError, match="not a checkpoint"):
        imix.pretrain(table[0], SMALL, out=tmp_path / "run", resume=True, progress=False)
    assert not (tmp_path / "executed").exists()


def test_a_failed_write_keeps_the_previous_file(tmp_path):
    checkpoint.save(tmp_path / "checkpoint.pt", {"step": 1})

    def breaks(file):
        file.write(b"half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        files.write_atomically(tmp_path / "checkpoint.pt", breaks)
    assert torch.load(tmp_path / "checkpoint.pt") == {"step": 1}


def test_the_returned_encoder_is_on_the_cpu_and_in_evaluation_mode(table):
    run = imix.pretrain(table[0], SMALL, progress=False)
    assert {weight.device.type for weight in run.encoder.parameters()} == {"cpu"}
    assert not run.encoder.training


def test_an_augmentation_that_does_not_fit_the_data_is_rejected(table):
    with pytest.raises(InputError, match=r"`augment='cifar'` is for images \(C, H, W\)"):
        imix.pretrain(table[0], SMALL, augment="cifar", progress=False)


def test_unused_settings_are_reported(table, capsys):
    imix.pretrain(table[0], replace(SMALL, method="npair", mix="none", queue=16, alpha=2.0))
    assert "npair ignores these settings: queue, alpha" in capsys.readouterr().err
    settings = replace(SMALL, method="byol", encoder="mlp:8", masking=0.5, temperature=0.5, milestones=(1,))
    imix.pretrain(table[0], settings, encoder=imix.encoders.build("mlp:16", (6,)), augment=lambda x: x)
    assert "ignores these settings: encoder, queue, temperature, masking, milestones" in capsys.readouterr().err
    imix.pretrain(table[0], replace(SMALL, method="moco", queue=16, schedule="step", milestones=(1,)))
    assert "ignores" not in capsys.readouterr().err


@pytest.mark.parametrize(("n", "warns"), [(2, True), (3, True), (31, True), (32, False)])
def test_too_few_samples_are_reported(capsys, n, warns):
    imix.pretrain(torch.randn(n, 6), SMALL)
    assert (f"only {n} samples: too few to learn from; use at least 32" in capsys.readouterr().err) == warns


def test_a_queue_larger_than_the_data_is_reported(table, capsys):
    imix.pretrain(table[0], replace(SMALL, method="moco", queue=140))
    assert "the queue holds 2 keys per sample" in capsys.readouterr().err


def test_the_effective_batch_size_and_progress_are_printed(table, capsys):
    imix.pretrain(table[0], SMALL)
    stderr = capsys.readouterr().err
    assert "effective batch 16 = 1 rank(s) x 16" in stderr
    assert "augmentation: resampling 0.3, masking 0.2" in stderr
    assert "training: 12 of 12 steps" in stderr
    assert "views/s" in stderr


def test_every_interface_trains_the_same_encoder(table, tmp_path):
    """Python, the command line, scikit-learn and a hand-written loop give the same weights."""
    np.save(tmp_path / "x.npy", table[0].numpy())
    settings = replace(SMALL, augment="none", seed=int(np.random.RandomState(5).randint(2**31 - 1)))
    run = imix.pretrain(table[0], settings, progress=False)
    flags = ["--epochs", 3, "--batch-size", 16, "--encoder", "mlp:16-16", "--device", "cpu", "--seed", settings.seed]
    process = cli("pretrain", tmp_path / "x.npy", "--out", tmp_path / "run", *flags, "--queue", 40, "--augment", "none")
    output = process.communicate()
    assert process.returncode == 0, output
    same = {"epochs": 3, "batch_size": 16, "encoder": "mlp:16-16", "device": "cpu", "masking": 0, "resampling": 0}
    estimator = imix.IMixTransformer(**same, random_state=5)
    estimator.fit(table[0].numpy())
    assert_same_weights(weights(run), imix.load_encoder(tmp_path / "run").state_dict())
    # The estimator scales rows in float64.
    for name, parameter in run.encoder[-1].named_parameters():
        torch.testing.assert_close(parameter, estimator.encoder_[-1].get_parameter(name), rtol=1e-3, atol=1e-5)

    standard = run.encoder[0](table[0])
    seed_all(settings.seed, BEFORE_TRAINING)
    learner = imix.NPair(imix.encoders.build("mlp:16-16", (6,)), mix=imix.MixUp())
    optimizer = torch.optim.SGD(learner.parameters(), lr=0, momentum=0.9, weight_decay=1e-4, fused=True)
    for epoch in range(3):
        for step, rows in enumerate(epoch_order(settings.seed, epoch, 70)[:64].split(16)):
            seed_all(settings.seed, epoch, step, 0)
            optimizer.param_groups[0]["lr"] = learning_rate(settings, 16, epoch, step, 4)
            learner(standard[rows], standard[rows]).backward()
            optimizer.step()
            optimizer.zero_grad()
            learner.update()
    assert_same_weights(run.encoder[-1].state_dict(), learner.encoder.state_dict())


def test_pretraining_works_inside_no_grad_and_inference_mode(table):
    expected = weights(imix.pretrain(table[0], SMALL, progress=False))
    for context in (torch.no_grad(), torch.inference_mode()):
        with context:
            assert_same_weights(weights(imix.pretrain(table[0], SMALL, progress=False)), expected)
