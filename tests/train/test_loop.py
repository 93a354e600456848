"""The training loop: determinism, order of samples, resuming after kills and signals, ranks."""

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch

import imix
from imix import DataSettings, InputError, files
from imix.augment.per_sample import CALLS  # of the augmentation, before training
from imix.run import checkpoint
from tests.train.helpers import METHODS, SMALL, Streaming, assert_same_weights, cli, command, wait_for_metrics, weights


@pytest.mark.parametrize(
    ("missing", "message"), [("batches", "1 of the 4 batches"), ("samples", "15 samples instead of 16")]
)
def test_a_source_that_returns_too_few_samples_or_batches_is_rejected(table, missing, message):
    with pytest.raises(InputError, match=f"the source returned {message}"):
        imix.pretrain(Streaming(table[0], missing), SMALL, progress=False)


@pytest.mark.parametrize("method", METHODS)
def test_the_same_seed_gives_the_same_run_and_another_seed_a_different_one(table, method):
    settings = replace(SMALL, method=method, masking=0.2)
    first, again, other = (
        imix.pretrain(table[0], s, labels=table[1], progress=False)
        for s in (settings, settings, replace(settings, seed=1))
    )
    assert_same_weights(weights(first), weights(again))
    assert not torch.equal(weights(first)["encoder.layers.1.weight"], weights(other)["encoder.layers.1.weight"])


@pytest.mark.parametrize("method", METHODS)
def test_a_run_killed_at_any_step_resumes_bit_for_bit(table, method, tmp_path, monkeypatch):
    settings = replace(SMALL, method=method, input_mix=2, masking=0.2)

    def start(folder, **options):
        return imix.pretrain(table[0], settings, labels=table[1], out=tmp_path / folder, progress=False, **options)

    undisturbed = start("undisturbed")
    steps_before_death = random.Random(method).randint(1, 11)
    original, calls = checkpoint.save, []

    def save_then_die(path, state):
        original(path, state)
        calls.append(state["step"])
        if len(calls) == steps_before_death:
            raise KeyboardInterrupt  # like a kill: nothing after the checkpoint runs

    monkeypatch.setattr(checkpoint, "save", save_then_die)
    with pytest.raises(KeyboardInterrupt):
        start("killed")
    monkeypatch.setattr(checkpoint, "save", original)
    resumed = start("killed", resume=True)

    assert_same_weights(weights(undisturbed), weights(resumed))
    before, after = (checkpoint.load(tmp_path / name / "checkpoint.pt") for name in ("undisturbed", "killed"))
    assert_same_weights(before["learner"], after["learner"])
    losses = [[(r["step"], r["loss"]) for r in run.metrics] for run in (undisturbed, resumed)]
    assert losses[0] == losses[1]
    assert [r["step"] for r in files.read_jsonl(tmp_path / "killed" / "metrics.jsonl")] == [4, 8, 12]


def test_a_clock_that_jumps_changes_neither_the_result_nor_the_checkpoints(table, tmp_path, monkeypatch):
    expected = imix.pretrain(table[0], SMALL, out=tmp_path / "steady", progress=False)
    jumps = random.Random(0)
    monkeypatch.setattr(time, "time", lambda: jumps.uniform(-1e9, 4e9))
    saved = []
    save = checkpoint.save
    monkeypatch.setattr(checkpoint, "save", lambda path, state: saved.append(state["step"]) or save(path, state))
    settings = replace(SMALL, checkpoint_minutes=60.0)
    run = imix.pretrain(table[0], settings, out=tmp_path / "jumping", progress=False)
    assert_same_weights(weights(expected), weights(run))
    assert len(saved) == 1  # at the end: an hour did not pass


@pytest.mark.slow
def test_a_process_killed_at_a_random_moment_resumes_bit_for_bit(tmp_path):
    killed = cli(*command(tmp_path / "killed"))
    wait_for_metrics(tmp_path / "killed", lines=random.Random(0).randint(3, 20))
    killed.kill()
    killed.communicate()
    resumed = cli(*command(tmp_path / "killed"), "--resume")
    resumed.communicate()
    undisturbed = cli(*command(tmp_path / "undisturbed"))
    undisturbed.communicate()
    assert resumed.returncode == undisturbed.returncode == 0
    a, b = (checkpoint.load(tmp_path / name / "checkpoint.pt") for name in ("killed", "undisturbed"))
    assert_same_weights(a["learner"], b["learner"])
    assert (tmp_path / "killed/encoder.safetensors").read_bytes() == (
        tmp_path / "undisturbed/encoder.safetensors"
    ).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_writes_a_checkpoint_and_exits_with_code_75(tmp_path, number):
    settings = ["--epochs", 10000, "--checkpoint-minutes", 60, "--encoder", "mlp:32-32"]
    process = cli("pretrain", "digits", "--out", tmp_path / "run", *settings)
    wait_for_metrics(tmp_path / "run", lines=2)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 75
    assert "--resume" in stderr.splitlines()[-1]
    state = checkpoint.load(tmp_path / "run" / "checkpoint.pt")
    assert state["epoch"] > 0


def test_every_epoch_visits_each_sample_at_most_once_in_a_new_order(table):
    seen = []

    def spy(batch):
        seen.append(batch[:, 0].clone())
        return batch

    imix.pretrain(table[0], replace(SMALL, epochs=2), DataSettings(standardize="none"), augment=spy, progress=False)
    epochs = [torch.cat(seen[start : start + 8 : 2]) for start in (CALLS, CALLS + 8)]
    assert all(len(set(epoch.tolist())) == 64 for epoch in epochs)
    assert not torch.equal(*epochs)


@pytest.mark.slow
def test_two_ranks_train_the_same_encoder_as_one(tmp_path):
    options = ["--epochs", 2, "--encoder", "mlp:16-32", "--mix", "none", "--batch-size", 64, "--method", "moco"]
    single = cli("pretrain", "digits", "--out", tmp_path / "one", *options)
    ranks = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "imix"]
        + [str(part) for part in ("pretrain", "digits", "--out", tmp_path / "two", *options)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert single.communicate() and single.returncode == 0
    assert ranks.returncode == 0, ranks.stderr
    assert "effective batch 64 = 2 rank(s) x 32" in ranks.stderr
    one, two = (imix.load_run(tmp_path / name) for name in ("one", "two"))
    assert [r["loss"] for r in one.metrics] == pytest.approx([r["loss"] for r in two.metrics], rel=1e-4)
    for name, value in one.encoder.state_dict().items():
        torch.testing.assert_close(value, two.encoder.state_dict()[name], rtol=1e-3, atol=1e-4)
