"""`imix bench`: three rates of one step."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

import imix
from imix import Settings
from imix.throughput import Throughput
from imix.train.step import Step

QUICK = {"duration": 0.05, "progress": False}


@pytest.mark.parametrize("method", ["npair", "simclr", "moco", "byol", "supclr", "supnpair", "supervised"])
def test_every_method_has_its_rates(tmp_path, method):
    np.savez(tmp_path / "rows.npz", x=np.random.default_rng(0).normal(size=(96, 6)), y=np.arange(96) % 3)
    settings = Settings(method=method, batch_size=32, epochs=10, queue=64, input_mix=2)
    found = imix.bench(tmp_path / "rows.npz", settings, **QUICK)
    assert min(found.bare, found.with_views, found.whole) > 0
    assert (found.views_per_step, found.steps, found.epochs) == (32 * (1 if method == "supervised" else 2), 3, 10)
    assert found.seconds == pytest.approx(30 * found.views_per_step / found.whole)


def test_own_encoder_and_augmentation_are_measured_and_nothing_else_changes():
    class Encoder(torch.nn.Linear):
        width = 5

    encoder, rows = Encoder(7, 5), torch.randn(64, 7)
    before = torch.get_rng_state()
    found = imix.bench(rows, Settings(), encoder=encoder, augment=lambda x: x + torch.randn_like(x), **QUICK)
    assert "Encoder" in found.what
    assert torch.equal(before, torch.get_rng_state())


def test_bare_step_sees_the_same_views_and_the_others_make_them_anew(monkeypatch):
    made, taken = [], []
    take = Step._take
    monkeypatch.setattr(Step, "_take", lambda step, *given: taken.append(step) or take(step, *given))

    def augment(x):
        made.append(len(x))
        return x

    imix.bench(torch.randn(8, 4), Settings(batch_size=8), augment=augment, **QUICK)
    bare = [step for step in taken if step is taken[0]]
    assert set(made) == {8}
    assert len(made) == 2 * (1 + len(taken) - len(bare))


def test_it_is_told_as_a_table():
    told = str(Throughput("npair on rows", 200.0, 190.0, 100.0, 20, 6, 600, memory=3 * 2**30)).splitlines()
    assert told[0] == "npair on rows"
    assert told[2].split() == ["bare", "step", "200", "100.00", "100%"]
    assert told[4].split()[-3:] == ["100", "200.00", "50%"]
    assert told[5] == "600 epochs of 6 steps take 12.0 minutes; steps hold 3.0 GiB of the GPU"


def test_the_command_measures_a_file(tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(64, 6)).astype(np.float32))
    command = [sys.executable, "-m", "imix", "bench", "x.npy", "--duration", "0.05", "--batch-size", "32"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=os.environ, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "bare step" in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.npy"]


def test_slow_steps_are_measured_once(monkeypatch):
    taken = []
    real = Step.__call__
    monkeypatch.setattr(Step, "__call__", lambda *given: taken.append(1) or real(*given))
    imix.bench(torch.randn(64, 10), Settings(batch_size=32, device="cpu"), duration=1e-9, progress=False)
    assert len(taken) == 3
