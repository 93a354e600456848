"""Numerical reliability: precision, explained failures, constant memory use and reproducibility."""

import os
import resource
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import imix
from imix import DataSettings, Settings, TrainingError, losses, progress
from imix.data import TensorSource, load
from imix.mix import Mix
from imix.runtime.rng import epoch_order
from tests.chaos import corpus
from tests.chaos.processes import FORKSERVER, LONG, METHODS, SMALL, small_data

DIGITS = Settings(epochs=8, batch_size=128, encoder="mlp:128-128", device="cpu", mix="mixup", lr=0.5)


def weights(run):
    return {name: value.clone() for name, value in run.encoder.state_dict().items()}


def are_equal(first, second):
    return first.keys() == second.keys() and all(torch.equal(value, second[name]) for name, value in first.items())


@pytest.mark.parametrize("method", METHODS if LONG else ["npair", "moco"])
def test_bf16_and_fp32_reach_the_same_accuracy_on_digits(method):
    accuracy = {}
    for precision in ("fp32", "bf16"):
        run = imix.pretrain("digits", replace(DIGITS, method=method, precision=precision), progress=False)
        accuracy[precision] = imix.evaluate(run, "digits", "knn").accuracy
    assert min(accuracy.values()) > 0.8, accuracy
    assert abs(accuracy["bf16"] - accuracy["fp32"]) < 0.03, accuracy


@pytest.mark.parametrize("temperature", [1e-3, 1e-2, 0.05, 0.2, 1.0, 10.0, 1e3])
@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("name", ["npair", "simclr", "moco", "supclr", "supnpair"])
def test_float32_gradients_match_float64_at_any_temperature(name, mixed, temperature):
    def gradients(dtype):
        generator = torch.Generator().manual_seed(1)
        q, k, queue = (torch.randn(n, 16, generator=generator, dtype=torch.float64) for n in (12, 12, 20))
        n_anchors = 24 if name in ("simclr", "supclr") else 12
        lam = torch.rand(n_anchors, generator=generator, dtype=torch.float64)
        partner = torch.randperm(n_anchors, generator=generator)
        q, k = q.to(dtype).requires_grad_(), k.to(dtype).requires_grad_()
        labels = torch.arange(12) % 3
        options = {"temperature": temperature, "mix": Mix(partner, lam.to(dtype)) if mixed else None}
        if name == "npair":
            loss = losses.npair(q, k, **options)
        elif name == "moco":
            loss = losses.moco(q, k, nn.functional.normalize(queue).to(dtype), **options)
        elif name == "supnpair":
            loss = losses.supnpair(q, k, labels, **options)
        elif name == "simclr":
            z = torch.cat([q, k])
            loss = losses.simclr(z, z, **options)
        else:
            z = torch.cat([q, k])
            loss = losses.supclr(z, z, labels.repeat(2), **options)
        loss.backward()
        return torch.cat([q.grad, k.grad if k.grad is not None else torch.zeros_like(k)]).double()

    expected, actual = gradients(torch.float64), gradients(torch.float32)
    assert actual.isfinite().all()
    assert (actual - expected).norm() <= 1e-4 * expected.norm() + 1e-9


# --- messages about a loss that is not finite -------------------------------------------------------------------------


def test_the_error_for_a_non_finite_loss_names_step_batch_and_samples():
    class OverflowsAtStep6(nn.Module):
        width = 4

        def __init__(self):
            super().__init__()
            self.layer, self.calls = nn.Linear(6, 4), 0

        def forward(self, x):
            self.calls += self.training
            return self.layer(x) * (float("inf") if self.calls == 6 else 1)

    x, _ = small_data()
    with pytest.raises(TrainingError) as error:
        imix.pretrain(x, SMALL, encoder=OverflowsAtStep6(), progress=False)
    samples = ", ".join(map(str, epoch_order(0, 1, 70)[16:24].tolist()))
    expected = f"at step 6 (epoch 2, batch 2 of 4: samples {samples} and 8 more). Likely cause: the learning rate"
    assert expected in str(error.value)


@pytest.mark.parametrize(
    ("value", "description"), [(float("nan"), "values that are NaN or infinite"), (1e30, "values up to 1e")]
)
def test_a_sample_that_makes_the_loss_non_finite_is_named(value, description):
    class UncheckedSource(TensorSource):
        """A user-supplied source, whose values are not checked before training."""

    class Squares(nn.Module):
        width = 6

        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 6)

        def forward(self, x):
            return self.layer(x) * x.square()

    x = small_data()[0].clone()
    x[41, 3] = value
    settings = replace(SMALL, head="linear", masking=0.0)
    data_settings = DataSettings(standardize="none")
    message = rf"the loss became (nan|inf) at step \d+ .* Likely cause: sample 41 has {description}"
    with pytest.raises(TrainingError, match=message):
        imix.pretrain(UncheckedSource(x), settings, data_settings, encoder=Squares(), progress=False)


# --- memory -----------------------------------------------------------------------------------------------------------


def _send_resources_during_training(folder, steps, connection):
    """Send the resident memory in bytes, the open files and the threads after a quarter of the steps and at the end."""
    torch.set_num_threads(1)
    x, y = small_data()
    n_calls = 0  # of the augmentation, two per step

    def send_resources(batch):
        nonlocal n_calls
        n_calls += 1
        if n_calls in (2 * steps // 4, 2 * steps - 2):
            memory = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
            connection.send((memory, *(len(os.listdir(f"/proc/self/{name}")) for name in ("fd", "task"))))
        return batch

    settings = replace(SMALL, method="moco", epochs=steps // 4, checkpoint_minutes=0.02)
    imix.pretrain(x, settings, labels=y, out=folder, augment=send_resources, progress=False)


@pytest.mark.parametrize("steps", [2_000, pytest.param(20_000, marks=pytest.mark.full)])
def test_memory_open_files_and_threads_do_not_grow_during_training(tmp_path, steps):
    receiver, sender = FORKSERVER.Pipe()
    process = FORKSERVER.Process(target=_send_resources_during_training, args=(tmp_path / "run", steps, sender))
    process.start()
    before, after = receiver.recv(), receiver.recv()
    process.join()
    assert process.exitcode == 0
    assert after[0] - before[0] < 8 << 20, f"memory grew by {(after[0] - before[0]) / 1e6:.1f} MB"
    assert after[1:] == before[1:], "open files, threads"


# --- reproducibility --------------------------------------------------------------------------------------------------


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("method", METHODS if LONG else ["moco"])
def test_two_compiled_runs_are_equal(tmp_path, monkeypatch, method):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    x, y = small_data()
    settings = replace(SMALL, method=method, compile=True, epochs=2)
    runs = []
    for _ in range(2):
        torch._dynamo.reset()
        runs.append(weights(imix.pretrain(x, settings, labels=y, progress=False)))
    assert are_equal(*runs)


def test_the_number_of_threads_that_decode_images_does_not_change_the_weights(tmp_path, monkeypatch):
    for i in range(24):
        (tmp_path / str(i % 2)).mkdir(exist_ok=True)
        corpus.write_image(tmp_path / str(i % 2) / f"{i}.jpg", (20 + i, 30), seed=i)
    monkeypatch.setattr("imix.data.media.images.MAX_BYTES_IN_MEMORY", 0)  # so that images are decoded during training
    settings = Settings(epochs=2, batch_size=8, encoder="small", device="cpu")
    runs = []
    for threads in (1, 2, 7, 32):
        monkeypatch.setattr(os, "cpu_count", lambda threads=threads: threads)
        runs.append(weights(imix.pretrain(tmp_path, settings, progress=False)))
    assert all(are_equal(runs[0], run) for run in runs[1:])


def test_the_number_of_threads_that_decode_audio_does_not_change_the_samples(tmp_path, monkeypatch):
    for i in range(12):
        corpus.write_audio(tmp_path / f"{i}.wav", 3000 + 100 * i)
    samples = []
    for threads in (1, 8):
        monkeypatch.setenv("IMIX_CACHE", str(tmp_path / f".cache {threads}"))
        monkeypatch.setattr(os, "cpu_count", lambda threads=threads: threads)
        samples.append(load(tmp_path).train.sample(12))
    assert torch.equal(*samples)


# --- progress ---------------------------------------------------------------------------------------------------------


def test_long_work_reports_its_progress(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(progress, "INTERVAL_SECONDS", 0.0)
    path = tmp_path / "t.csv"
    path.write_text(corpus.VALID_CSV)
    run = imix.pretrain(path, replace(SMALL, epochs=1), DataSettings(label="label"), out=tmp_path / "run")
    assert "fitting: 2 of 2 columns" in capsys.readouterr().err
    imix.evaluate(run)
    messages = capsys.readouterr().err
    assert "encoding: 32 of 32 samples" in messages
    assert "evaluating: 3 of " in messages
    imix.evaluate(run, protocol="linear-paper")
    messages = capsys.readouterr().err
    assert "linear evaluation: 50 of 100 epochs" in messages
    imix.embed(run, path)
    assert "encoding: 40 of 40 samples" in capsys.readouterr().err
    for i in range(3):
        corpus.write_image(tmp_path / f"{i}.png")
    load(tmp_path)
    assert "decoding: 3 of 3 images" in capsys.readouterr().err
