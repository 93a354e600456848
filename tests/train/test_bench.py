"""`imix bench`: throughput of the step only, with augmentation, and end to end."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

import imix
from imix import Settings
from imix.augment.per_sample import CALLS  # of the augmentation, before training
from imix.train.bench import Throughput
from imix.train.step import TrainingStep
from tests.helpers import cells

QUICK = {"duration": 0.05, "progress": False}


@pytest.mark.parametrize("method", ["npair", "simclr", "moco", "byol", "supclr", "supnpair", "supervised"])
def test_every_method_is_measured(tmp_path, method):
    np.savez(tmp_path / "rows.npz", x=np.random.default_rng(0).normal(size=(96, 6)), y=np.arange(96) % 3)
    settings = Settings(method=method, batch_size=32, epochs=10, queue=64, input_mix=2)
    result = imix.bench(tmp_path / "rows.npz", settings, **QUICK)
    assert min(result.step_only, result.with_augmentation, result.end_to_end) > 0
    assert (result.views_per_step, result.steps_per_epoch, result.epochs) == (
        32 * (1 if method == "supervised" else 2),
        3,
        10,
    )
    assert result.seconds == pytest.approx(30 * result.views_per_step / result.end_to_end)


def test_user_supplied_encoder_and_augmentation_are_measured_without_side_effects():
    class Encoder(torch.nn.Linear):
        width = 5

    encoder, rows = Encoder(7, 5), torch.randn(64, 7)
    before = torch.get_rng_state()
    result = imix.bench(rows, Settings(), encoder=encoder, augment=lambda x: x + torch.randn_like(x), **QUICK)
    assert "Encoder" in result.title
    assert torch.equal(before, torch.get_rng_state())


def test_the_step_only_variant_reuses_its_views_and_the_others_make_new_ones(monkeypatch):
    view_sizes, steps = [], []
    run = TrainingStep.run
    monkeypatch.setattr(TrainingStep, "run", lambda step, *inputs: steps.append(step) or run(step, *inputs))

    def augment(x):
        view_sizes.append(len(x))
        return x

    imix.bench(torch.randn(8, 4), Settings(batch_size=8), augment=augment, **QUICK)
    step_only = [step for step in steps if step is steps[0]]
    assert set(view_sizes[CALLS:]) == {8}
    assert len(view_sizes[CALLS:]) == 2 * (1 + len(steps) - len(step_only))


def test_the_result_prints_as_a_table():
    lines = str(Throughput("npair on rows", 200.0, 190.0, 100.0, 20, 6, 600, memory=3 * 2**30)).splitlines()
    assert lines[0] == "npair on rows"
    assert lines[2].split() == ["step", "only", "200", "100.00", "100%"]
    assert lines[4].split()[-3:] == ["100", "200.00", "50%"]
    assert lines[5] == "600 epochs of 6 steps take 12.0 minutes; peak GPU memory 3.0 GiB"


def test_a_notebook_shows_the_table():
    result = Throughput("npair on <rows>", 200.0, 190.0, 100.0, 20, 6, 600)
    assert cells(result)[:8] == ["", "views/s", "ms/step", "relative", "step only", "200", "100.00", "100%"]
    assert cells(result)[-4:] == ["+ data loading", "100", "200.00", "50%"]
    assert "<b>npair on &lt;rows&gt;</b>" in result._repr_html_()
    assert "600 epochs of 6 steps take 12.0 minutes" in result._repr_html_()


def test_the_command_benchmarks_a_file(tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(64, 6)).astype(np.float32))
    command = [sys.executable, "-m", "imix", "bench", "x.npy", "--duration", "0.05", "--batch-size", "32"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=os.environ, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "step only" in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.npy"]


def test_slow_steps_are_timed_once(monkeypatch):
    calls = []
    original = TrainingStep.__call__
    monkeypatch.setattr(TrainingStep, "__call__", lambda *inputs: calls.append(1) or original(*inputs))
    imix.bench(torch.randn(64, 10), Settings(batch_size=32, device="cpu"), duration=1e-9, progress=False)
    assert len(calls) == 3
