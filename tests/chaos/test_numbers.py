"""Numbers that can be relied on: precision, what goes wrong is explained, no drift, and the same again."""

import os
import resource
import sys
from dataclasses import replace

import corpus
import pytest
import torch
from harm import LONG, METHODS, SMALL, processes, table
from torch import nn

import imix
from imix import Settings, TrainingError, losses
from imix.data import load, pictures
from imix.mix import Mix

DIGITS = Settings(epochs=8, batch_size=128, encoder="mlp:128-128", device="cpu", mix="mixup", lr=0.5)


def weights(run):
    return {name: value.clone() for name, value in run.encoder.state_dict().items()}


def same(one, other):
    return [name for name, value in one.items() if not torch.equal(value, other[name])] == []


@pytest.mark.parametrize("method", METHODS if LONG else ["npair", "moco"])
def test_bf16_and_fp32_agree_in_quality_on_digits(method):
    found = {}
    for precision in ("fp32", "bf16"):
        run = imix.pretrain("digits", replace(DIGITS, method=method, precision=precision), progress=False)
        found[precision] = imix.evaluate(run, "digits", "knn").accuracy
    assert min(found.values()) > 0.8, found
    assert abs(found["bf16"] - found["fp32"]) < 0.03, found


TEMPERATURES = [1e-3, 1e-2, 0.05, 0.2, 1.0, 10.0, 1e3]


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("name", ["npair", "simclr", "moco", "supclr", "supnpair"])
def test_gradients_are_those_of_float64_at_any_temperature(name, mixed, temperature):
    def gradients(kind):
        generator = torch.Generator().manual_seed(1)
        q, k, queue = (torch.randn(n, 16, generator=generator, dtype=torch.float64) for n in (12, 12, 20))
        rows = 24 if name in ("simclr", "supclr") else 12
        lam, partner = (
            torch.rand(rows, generator=generator, dtype=torch.float64),
            torch.randperm(rows, generator=generator),
        )
        mix = Mix(partner, lam.to(kind)) if mixed else None
        q, k = q.to(kind).requires_grad_(), k.to(kind).requires_grad_()
        labels = torch.arange(12) % 3
        how = {"temperature": temperature, "mix": mix}
        if name == "npair":
            loss = losses.npair(q, k, **how)
        elif name == "moco":
            loss = losses.moco(q, k, nn.functional.normalize(queue).to(kind), **how)
        elif name == "supnpair":
            loss = losses.supnpair(q, k, labels, **how)
        elif name == "simclr":
            z = torch.cat([q, k])
            loss = losses.simclr(z, z, **how)
        else:
            z = torch.cat([q, k])
            loss = losses.supclr(z, z, labels.repeat(2), **how)
        loss.backward()
        return torch.cat([q.grad, k.grad if k.grad is not None else torch.zeros_like(k)]).double()

    exact, found = gradients(torch.float64), gradients(torch.float32)
    assert found.isfinite().all()
    assert (found - exact).norm() <= 1e-4 * exact.norm() + 1e-9


# --- what is told of a loss that is not finite ------------------------------------------------------------------------


def test_a_loss_that_is_not_finite_is_told_with_its_step_batch_and_samples():
    class Breaks(nn.Module):
        width = 4

        def __init__(self):
            super().__init__()
            self.layer, self.calls = nn.Linear(6, 4), 0

        def forward(self, x):
            self.calls += self.training
            return self.layer(x) * (float("inf") if self.calls == 6 else 1)

    x, _ = table()
    with pytest.raises(TrainingError) as caught:
        imix.pretrain(x, SMALL, encoder=Breaks(), progress=False)
    order = imix.train.randomness.epoch_order(0, 1, 70)
    samples = ", ".join(map(str, order[16:24].tolist()))
    assert f"at step 6 (epoch 2, batch 2 of 4: samples {samples} and 8 more). Likely cause: a learning" in str(
        caught.value
    )


@pytest.mark.parametrize(
    ("value", "told"), [(float("nan"), "values that are NaN or infinite"), (1e30, "values up to 1e")]
)
def test_a_sample_that_breaks_the_loss_is_named(value, told):
    class Source(imix.data.Tensors):
        """Checked by nobody, as a source of one's own is."""

    x = table()[0].clone()
    x[41, 3] = value

    class Squares(nn.Module):
        width = 6

        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 6)

        def forward(self, x):
            return self.layer(x) * x.square()

    how = replace(SMALL, head="linear", masking=0.0)
    with pytest.raises(
        TrainingError, match=rf"the loss became (nan|inf) at step \d+ .* Likely cause: sample 41 has {told}"
    ):
        imix.pretrain(Source(x), how, imix.Reading(standardise="none"), encoder=Squares(), progress=False)


# --- no drift --------------------------------------------------------------------------------------------------------


def _memory_of_steps(folder, steps, connection):
    torch.set_num_threads(1)
    x, y = table()
    seen = []

    def watch(batch):
        seen.append(0)
        if len(seen) in (2 * steps // 4, 2 * steps - 2):
            with open("/proc/self/statm") as file:
                connection.send(int(file.read().split()[1]) * resource.getpagesize())
        return batch

    how = replace(SMALL, method="moco", epochs=steps // 4, checkpoint_minutes=0.02)
    imix.pretrain(x, how, labels=y, out=folder, augment=watch, progress=False)


def test_two_thousand_steps_hold_memory_flat(tmp_path):
    there, here = processes.Pipe()
    process = processes.Process(target=_memory_of_steps, args=(tmp_path / "run", 20_000 if LONG else 2_000, here))
    process.start()
    before, after = there.recv(), there.recv()
    process.join()
    assert process.exitcode == 0
    assert after - before < 8 << 20, f"{(after - before) / 1e6:.1f} MB more"


# --- the same again --------------------------------------------------------------------------------------------------


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("method", METHODS if LONG else ["moco"])
def test_a_compiled_run_is_the_same_again(tmp_path, monkeypatch, method):
    """In the long form by the compiler itself, in the short one by all of it but the making of machine code."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    if not LONG:
        compiled = nn.Module.compile
        monkeypatch.setattr(nn.Module, "compile", lambda module: compiled(module, backend="aot_eager"))
    x, y = table()
    how = replace(SMALL, method=method, compile=True, epochs=2)
    runs = []
    for _ in range(2):
        torch._dynamo.reset()
        runs.append(weights(imix.pretrain(x, how, labels=y, progress=False)))
    assert same(*runs)


def test_the_number_of_workers_changes_nothing(tmp_path, monkeypatch):
    for number in range(24):
        (tmp_path / str(number % 2)).mkdir(exist_ok=True)
        corpus.picture(tmp_path / str(number % 2) / f"{number}.jpg", (20 + number, 30), seed=number)
    monkeypatch.setattr(pictures, "IN_MEMORY", 0)  # so that they are decoded while they are learned from
    found = []
    for workers in (1, 2, 7, 32):
        monkeypatch.setattr(os, "cpu_count", lambda workers=workers: workers)
        how = Settings(epochs=2, batch_size=8, encoder="small", device="cpu")
        found.append(weights(imix.pretrain(tmp_path, how, progress=False)))
    assert all(same(found[0], other) for other in found[1:])


def test_sounds_are_the_same_however_many_decode_them(tmp_path, monkeypatch):
    for number in range(12):
        corpus.sound(tmp_path / f"{number}.wav", 3000 + 100 * number)
    found = []
    for workers in (1, 8):
        monkeypatch.setattr("imix.data.sounds.CACHE", tmp_path / f".cache {workers}")
        monkeypatch.setattr(os, "cpu_count", lambda workers=workers: workers)
        found.append(load(tmp_path).train.sample(12))
    assert torch.equal(*found)


# --- long work says how far it is ------------------------------------------------------------------------------------


def test_long_work_says_how_far_it_is(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys.modules["imix.progress"], "EVERY", 0.0)
    (tmp_path / "t.csv").write_text(corpus.GOOD)
    run = imix.pretrain(tmp_path / "t.csv", replace(SMALL, epochs=1), imix.Reading(label="label"), out=tmp_path / "run")
    assert "reading t.csv: 40 rows so far" in capsys.readouterr().err
    imix.evaluate(run)
    said = capsys.readouterr().err
    assert "encoding: 32 of 32 samples" in said
    assert "linear evaluation: 50 of 100 epochs" in said
    imix.embed(run, tmp_path / "t.csv")
    assert "encoding: 40 of 40 samples" in capsys.readouterr().err
    for number in range(3):
        corpus.picture(tmp_path / f"{number}.png")
    load(tmp_path)
    assert "decoding: 3 of 3 images" in capsys.readouterr().err
