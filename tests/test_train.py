"""The loop: schedules, determinism, resuming to the bit, what it refuses to train through."""

import functools
import importlib.util
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import imix
from imix import InputError, Reading, Settings, TrainingError, files
from imix.augment import Masking
from imix.data import Source
from imix.methods.method import Projected
from imix.train import checkpoint
from imix.train.build import global_batch_size, make_method, make_mix
from imix.train.log import Log
from imix.train.randomness import BEFORE_TRAINING, epoch_order, seed_all
from imix.train.schedule import learning_rate
from imix.train.step import make_optimizer
from imix.train.views import Views
from imix.train.watch import EVERY, PATIENCE, Watch

SMALL = Settings(epochs=3, batch_size=16, encoder="mlp:16-16", device="cpu", checkpoint_minutes=0, queue=40)
METHODS = ["npair", "simclr", "moco", "byol", "supclr", "supnpair", "supervised"]


@pytest.fixture(scope="module")
def table():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(70, 6, generator=generator), torch.randint(3, (70,), generator=generator)


def weights(run):
    return {name: value.clone() for name, value in run.encoder.state_dict().items()}


def assert_same_weights(a, b):
    assert a.keys() == b.keys()
    assert [name for name in a if not torch.equal(a[name], b[name])] == []


# --- what is one's own -----------------------------------------------------------------------------------------------


class Decorrelated(Projected):
    """A method of one's own: views alike, dimensions apart."""

    def forward(self, view_1, view_2):
        a, b = (nn.functional.normalize(z - z.mean(0), dim=0) for z in self.project(self.mixed(view_1)[0], view_2))
        return (a.T @ b - torch.eye(a.shape[1])).square().mean()


def halves(batch):
    """An operator of one's own: with the next sample, half and half."""
    partner = torch.arange(len(batch)).roll(1)
    return (batch + batch[partner]) / 2, imix.Mix(partner, torch.full((len(batch),), 0.5))


def test_a_method_and_an_operator_of_ones_own_are_trained_resumed_and_named(table, tmp_path, capsys):
    own = {"method": functools.partial(Decorrelated, dim=32), "mix": halves}
    whole = imix.pretrain(table[0], SMALL, **own)
    assert "Decorrelated + i-Mix (halves) on given" in capsys.readouterr().err
    assert whole.metrics[-1]["loss"] < whole.metrics[0]["loss"]

    def stopping(batch):
        stopping.left -= 1
        if not stopping.left:
            raise KeyboardInterrupt
        return halves(batch)

    stopping.left, stopping.__name__ = 9, "halves"
    with pytest.raises(KeyboardInterrupt):
        imix.pretrain(table[0], SMALL, out=tmp_path, method=own["method"], mix=stopping, progress=False)
    resumed = imix.pretrain(table[0], SMALL, out=tmp_path, resume=True, progress=False, **own)
    assert_same_weights(weights(whole), weights(resumed))
    assert repr(imix.Run.load(tmp_path)).count("Decorrelated + halves")
    with pytest.raises(InputError, match="its own mix is 'halves', and this version"):
        imix.pretrain(table[0], SMALL, out=tmp_path, resume=True, progress=False, method=Decorrelated)


def test_methods_and_operators_that_are_none_are_refused(table):
    with pytest.raises(InputError, match="method must make an imix"):
        imix.pretrain(table[0], SMALL, method=lambda encoder, mix, width: encoder, progress=False)
    with pytest.raises(InputError, match="an operator gives a pair"):
        imix.pretrain(table[0], SMALL, mix=lambda batch: batch, progress=False)
    with pytest.raises(InputError, match="as many mixed samples as there were"):
        imix.pretrain(table[0], SMALL, mix=lambda batch: (batch[::2], None), progress=False)


class Streaming(Source):
    """Rows that are not held; `missing` batches of an epoch, or samples of a batch, do not come."""

    def __init__(self, rows, missing="", labels=None):
        self.rows, self.missing, self.labels = rows, missing, labels

    def __len__(self):
        return len(self.rows)

    def batches(self, rows):
        for at, chosen in enumerate(rows):
            if self.missing == "batches" and at and len(rows) > 1:
                return
            yield self.rows[chosen[1:] if self.missing == "samples" and len(chosen) > 2 else chosen], None

    def to(self, device):
        return self

    def take(self, rows):
        return Streaming(self.rows[rows], self.missing)


def test_rows_that_stream_are_standardised_too(table):
    rows = table[0] * torch.tensor([1.0, 1000, 1, 1, 1, 1]) + 5
    held, streamed = (imix.pretrain(source, SMALL, progress=False) for source in (rows, Streaming(rows)))
    assert_same_weights(weights(held), weights(streamed))
    assert type(streamed.encoder[0]).__name__ == "Standardise"


@pytest.mark.parametrize(("missing", "said"), [("batches", "1 of the 4 batches"), ("samples", "15 samples where 16")])
def test_a_source_that_gives_too_little_is_refused(table, missing, said):
    with pytest.raises(InputError, match=f"a source gave {said}"):
        imix.pretrain(Streaming(table[0], missing), SMALL, progress=False)


# --- learning rate ---------------------------------------------------------------------------------------------------


def test_learning_rate_scales_with_the_batch():
    settings = Settings(epochs=100)
    assert learning_rate(settings, 512, 50, 0, 10) == pytest.approx(2 * learning_rate(settings, 256, 50, 0, 10))


def test_warmup_rises_by_step_from_zero_to_the_schedule():
    settings = Settings(epochs=100, warmup=5)
    rates = [learning_rate(settings, 256, epoch, step, 10) for epoch in range(5) for step in range(10)]
    top = learning_rate(settings, 256, 5, 0, 10)
    assert rates == pytest.approx([top * i / 50 for i in range(50)])
    assert top == pytest.approx(0.125 * 0.5 * (1 + math.cos(math.pi * 5 / 100)))


def test_warmup_is_ten_epochs_for_long_runs_and_five_for_others():
    for epochs, warmup in [(501, 10), (500, 5), (200, 5)]:
        settings = Settings(epochs=epochs)
        assert learning_rate(settings, 256, warmup - 1, 9, 10) < learning_rate(settings, 256, warmup, 0, 10)
        assert learning_rate(settings, 256, warmup, 0, 10) == learning_rate(settings, 256, warmup, 9, 10)


def test_cosine_ends_near_zero_and_is_constant_within_an_epoch():
    settings = Settings(epochs=100)
    assert learning_rate(settings, 256, 99, 0, 10) == learning_rate(settings, 256, 99, 9, 10) < 1e-4


def test_step_schedule_decays_at_its_milestones():
    settings = Settings(epochs=500, schedule="step", milestones=(300, 400))
    rates = [learning_rate(settings, 256, epoch, 0, 10) for epoch in (299, 300, 399, 400)]
    assert rates == pytest.approx([0.125, 0.0125, 0.0125, 0.00125])


def test_weight_decay_reaches_every_parameter(table):
    learner = imix.NPair(imix.encoders.build("mlp:16-16", (6,)))
    optimizer = make_optimizer(learner, SMALL, torch.device("cpu"))
    decayed = [p for group in optimizer.param_groups if group["weight_decay"] == 1e-4 for p in group["params"]]
    assert len(decayed) == len(list(learner.parameters()))


# --- determinism and resuming ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_same_seed_gives_the_same_run_and_another_seed_another(table, method):
    settings = replace(SMALL, method=method, masking=0.2)
    first, again, other = (
        imix.pretrain(table[0], s, labels=table[1], progress=False)
        for s in (settings, settings, replace(settings, seed=1))
    )
    assert_same_weights(weights(first), weights(again))
    assert not torch.equal(weights(first)["encoder.layers.1.weight"], weights(other)["encoder.layers.1.weight"])


def test_pretraining_leaves_the_callers_random_numbers_alone(table):
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    imix.pretrain(table[0], SMALL, progress=False)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("method", METHODS)
def test_a_run_killed_at_any_step_resumes_to_the_same_bits(table, method, tmp_path, monkeypatch):
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
            raise KeyboardInterrupt  # as good as a kill: nothing after the checkpoint happens

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
    assert [r["step"] for r in files.read_lines(tmp_path / "killed" / "metrics.jsonl")] == [4, 8, 12]


def cli(*arguments, **options):
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "imix", *map(str, arguments)],
        env=environment,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        **options,
    )


def wait_for_metrics(folder, lines):
    path = folder / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while not (path.exists() and path.read_text().count("\n") >= lines):
        assert time.monotonic() < deadline, "the run wrote no metrics"
        time.sleep(0.02)


def command(folder):
    return ["pretrain", "digits", "--out", folder, "--epochs", 30, "--encoder", "mlp:32-32", "--checkpoint-minutes", 0]


@pytest.mark.slow
def test_a_process_killed_at_a_random_moment_resumes_to_the_same_bits(tmp_path):
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
def test_a_signal_writes_a_checkpoint_and_asks_to_be_resumed(tmp_path, number):
    settings = ["--epochs", 10000, "--checkpoint-minutes", 60, "--encoder", "mlp:32-32"]
    process = cli("pretrain", "digits", "--out", tmp_path / "run", *settings)
    wait_for_metrics(tmp_path / "run", lines=2)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 75
    assert "--resume" in said.splitlines()[-1]
    state = checkpoint.load(tmp_path / "run" / "checkpoint.pt")
    assert state["epoch"] > 0


def test_a_finished_run_resumes_to_itself(table, tmp_path):
    first = imix.pretrain(table[0], SMALL, out=tmp_path / "run", progress=False)
    again = imix.pretrain(table[0], SMALL, out=tmp_path / "run", resume=True, progress=False)
    assert_same_weights(weights(first), weights(again))
    assert first.metrics == again.metrics


def test_resuming_with_other_settings_or_data_is_refused(table, tmp_path):
    imix.pretrain(table[0], SMALL, out=tmp_path / "run", progress=False)
    with pytest.raises(InputError, match=r"temperature is 0\.2, and 0\.5 was given"):
        imix.pretrain(table[0], replace(SMALL, temperature=0.5), out=tmp_path / "run", resume=True, progress=False)
    with pytest.raises(InputError, match="samples is 70, and 60 was given"):
        imix.pretrain(table[0][:60], SMALL, out=tmp_path / "run", resume=True, progress=False)
    with pytest.raises(InputError, match="its data had other values"):
        imix.pretrain(table[0].flip(0), SMALL, out=tmp_path / "run", resume=True, progress=False)
    older = json.loads((tmp_path / "run" / "config.json").read_text())
    del older["data"]["fingerprint"]
    (tmp_path / "run" / "config.json").write_text(json.dumps(older))
    imix.pretrain(table[0].flip(0), SMALL, out=tmp_path / "run", resume=True, progress=False)


def test_a_folder_with_a_run_is_refused_unless_told(table, tmp_path):
    first = imix.pretrain(table[0], SMALL, out=tmp_path / "run", progress=False)
    (tmp_path / "run" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"--resume .* or --overwrite"):
        imix.pretrain(table[0], SMALL, out=tmp_path / "run", progress=False)
    assert imix.Run.load(tmp_path / "run").metrics == first.metrics
    other = imix.pretrain(table[0], replace(SMALL, seed=3), out=tmp_path / "run", overwrite=True, progress=False)
    assert imix.Run.load(tmp_path / "run").metrics == other.metrics != first.metrics
    assert (tmp_path / "run" / "notes.txt").read_text() == "mine"


def test_a_folder_that_is_not_a_run_is_never_touched(table, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    (tmp_path / "config.json").write_text("{}")
    for options in ({}, {"overwrite": True}, {"resume": True}):
        with pytest.raises(InputError, match="not a run"):
            imix.pretrain(table[0], SMALL, out=tmp_path, progress=False, **options)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "thesis.tex"]


def test_a_checkpoint_cut_short_is_named(table, tmp_path):
    imix.pretrain(table[0], SMALL, out=tmp_path / "run", progress=False)
    path = tmp_path / "run" / "checkpoint.pt"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(InputError, match=r"checkpoint\.pt is damaged"):
        imix.pretrain(table[0], SMALL, out=tmp_path / "run", resume=True, progress=False)


def test_another_encoder_or_a_foreign_file_is_not_resumed_from(table, tmp_path):
    def start(width, **options):
        encoder = nn.Sequential(nn.Linear(6, width), nn.BatchNorm1d(width))
        return imix.pretrain(table[0], SMALL, encoder=encoder, out=tmp_path / "run", progress=False, **options)

    start(4)
    with pytest.raises(InputError, match="of another encoder"):
        start(5, resume=True)
    torch.save({"state_dict": {}}, tmp_path / "run" / "checkpoint.pt")
    with pytest.raises(InputError, match="not a checkpoint of imix"):
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


class Executes:
    def __reduce__(self):
        return os.mkdir, ("executed",)


def test_a_checkpoint_cannot_execute_code(table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    imix.pretrain(table[0], SMALL, out=tmp_path / "run", progress=False)
    torch.save({"learner": Executes()}, tmp_path / "run" / "checkpoint.pt")
    with pytest.raises(InputError, match="not a checkpoint"):
        imix.pretrain(table[0], SMALL, out=tmp_path / "run", resume=True, progress=False)
    assert not (tmp_path / "executed").exists()


def test_a_failed_write_leaves_the_last_good_file(tmp_path):
    checkpoint.save(tmp_path / "checkpoint.pt", {"step": 1})

    def breaks(file):
        file.write(b"half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        files.write_atomically(tmp_path / "checkpoint.pt", breaks)
    assert torch.load(tmp_path / "checkpoint.pt") == {"step": 1}


# --- batches ---------------------------------------------------------------------------------------------------------


def test_every_epoch_visits_each_sample_at_most_once_in_its_own_order(table):
    seen = []

    def spy(batch):
        seen.append(batch[:, 0].clone())
        return batch

    imix.pretrain(table[0], replace(SMALL, epochs=2), Reading(standardise="none"), augment=spy, progress=False)
    epochs = [torch.cat(seen[start : start + 8 : 2]) for start in (0, 8)]
    assert all(len(set(epoch.tolist())) == 64 for epoch in epochs)
    assert not torch.equal(*epochs)


def test_a_data_set_smaller_than_the_batch_is_one_batch():
    assert global_batch_size(Settings(batch_size=256), 100) == 100


@pytest.mark.parametrize(("batch_size", "n"), [(1, 100), (256, 1)])
def test_a_batch_of_one_is_refused(batch_size, n):
    with pytest.raises(InputError, match="at least 2"):
        global_batch_size(Settings(batch_size=batch_size), n)


def test_any_method_takes_samples_with_several_fields_and_an_encoder_of_ones_own():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.left, self.right = nn.Linear(3, 8), nn.Conv1d(2, 8, 3, padding=1)

        def forward(self, batch):
            return torch.cat([self.left(batch["row"]), self.right(batch["series"]).mean(2)], 1)

    data = {"row": torch.randn(40, 3), "series": torch.randn(40, 2, 9)}
    for method in ("npair", "moco", "byol"):
        run = imix.pretrain(data, replace(SMALL, method=method), encoder=Both(), progress=False)
        assert run.encoder(data).shape == (40, 16)


def test_bf16_trains_to_finite_weights(table):
    for method in METHODS:
        run = imix.pretrain(table[0], replace(SMALL, method=method, precision="bf16"), labels=table[1], progress=False)
        assert all(torch.isfinite(value).all() for value in weights(run).values())


@pytest.mark.parametrize("method", METHODS)
def test_views_and_loss_compile_into_one_graph_each_with_the_same_loss(table, method):
    torch.compiler.reset()  # sizes that were seen before would count as changing
    settings = replace(SMALL, method=method)
    learner = make_method(settings, imix.encoders.build("mlp:16-16", (6,)), make_mix(settings), width=4, classes=3)
    views = Views(Masking(0.2), learner.views, imix.InputMix(2), at_once=True)
    labels = table[1:] if learner.supervised else ()
    losses = []
    for compiled in (lambda part: part, functools.partial(torch.compile, backend="eager", fullgraph=True)):
        torch.manual_seed(1)
        losses.append(compiled(learner)(*compiled(views)(table[0]), *labels))
    assert torch.equal(*losses)


@pytest.mark.parametrize("input_mix", [None, imix.InputMix(2)])
def test_views_made_at_once_are_those_of_each_sample_drawn_apart(input_mix):
    batch = {"row": torch.ones(500, 3), "series": torch.ones(500, 2, 4)}
    found = Views(Masking(0.5), 2, input_mix, at_once=True)(batch)
    assert [{name: field.shape for name, field in view.items()} for view in found] == [
        {name: field.shape for name, field in batch.items()}
    ] * 2
    assert not torch.equal(found[0]["row"], found[1]["row"])
    for view in found:
        assert abs(float(view["series"].mean()) - 0.5) < 0.05


def test_an_augmentation_of_ones_own_sees_the_batch_once_for_each_view():
    seen = []
    found = Views(lambda x: seen.append(len(x)) or x + len(seen))(torch.zeros(5, 2))
    assert seen == [5, 5]
    assert [float(view.mean()) for view in found] == [1.0, 2.0]
    with pytest.raises(InputError, match="made 4 of 5"):
        Views(lambda x: x[:4])(torch.zeros(5, 2))


@pytest.mark.slow
def test_two_ranks_train_to_the_same_encoder_as_one(tmp_path):
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
    one, two = (imix.Run.load(tmp_path / name) for name in ("one", "two"))
    assert [r["loss"] for r in one.metrics] == pytest.approx([r["loss"] for r in two.metrics], rel=1e-4)
    for name, value in one.encoder.state_dict().items():
        torch.testing.assert_close(value, two.encoder.state_dict()[name], rtol=1e-3, atol=1e-4)


def test_the_width_of_ones_own_encoder_is_what_it_gives_not_what_it_says(table):
    class Says(nn.Linear):
        num_features = 6  # of what it takes

    run = imix.pretrain(table[0], SMALL, encoder=Says(6, 4), progress=False)
    assert run.encoder(torch.randn(3, 6)).shape == (3, 4)


def test_a_view_with_other_samples_than_its_batch_is_refused(table):
    with pytest.raises(InputError, match=r"the augmentation made 5 of 16"):
        imix.pretrain(table[0], replace(SMALL, batch_size=16), augment=lambda x: x[:5], progress=False)


def test_an_augmentation_that_does_nothing_is_not_taken_for_none(table, capsys):
    imix.pretrain(table[0], SMALL, augment=nn.Sequential())
    assert "masking" not in capsys.readouterr().err


def test_the_encoder_of_a_run_is_on_the_cpu_and_in_evaluation_mode(table):
    run = imix.pretrain(table[0], SMALL, progress=False)
    assert {weight.device.type for weight in run.encoder.parameters()} == {"cpu"}
    assert not run.encoder.training


def test_features_that_are_not_finite_stop_the_run(table):
    class Breaks(nn.Linear):
        width = 4

        def forward(self, x):
            return super().forward(x) * (1 if self.training else float("nan"))

    with pytest.raises(TrainingError, match="features are not finite after step"):
        imix.pretrain(table[0], replace(SMALL, epochs=60), encoder=Breaks(6, 4), progress=False)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"fold": "no"}, "fold must be True or False; got 'no'"),
        ({"compile": 3}, "compile must be True or False"),
        ({"milestones": 80}, "milestones must be a list; got 80"),
        ({"encoder": 18}, "encoder must be a name, and a module is given to pretrain itself; got 18"),
        ({"weight_decay": float("nan")}, "weight_decay must be a number"),
    ],
)
def test_settings_of_the_wrong_kind_are_refused(given, said):
    with pytest.raises(InputError, match=said):
        Settings(**given)


# --- what must not be trained through --------------------------------------------------------------------------------


def test_a_loss_that_is_not_finite_stops_the_run_and_names_the_step(table, tmp_path):
    class Breaks(nn.Module):
        width = 4

        def __init__(self):
            super().__init__()
            self.layer, self.calls = nn.Linear(6, 4), 0

        def forward(self, x):
            self.calls += self.training
            return self.layer(x) * (float("nan") if self.calls == 6 else 1)

    settings = replace(SMALL, checkpoint_minutes=60)
    with pytest.raises(TrainingError, match=r"the loss became nan at step 6.*--lr"):
        imix.pretrain(table[0], settings, encoder=Breaks(), out=tmp_path / "run", progress=False)
    assert not (tmp_path / "run" / "checkpoint.pt").exists()


def test_collapse_is_detected_and_explained(table):
    class Constant(nn.Module):
        width = 4

        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 4)

        def forward(self, x):
            return 0 * self.layer(x) + 1

    settings = replace(SMALL, epochs=400, head="mlp", warmup=1)
    for method in ("npair", "byol"):
        with pytest.raises(TrainingError, match="collapse"):
            imix.pretrain(table[0], replace(settings, method=method), encoder=Constant(), progress=False)


def test_weights_that_are_not_finite_are_never_a_result(table, tmp_path):
    class BreaksBackward(nn.Module):
        width = 4

        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 4)

        def forward(self, x):
            return self.layer(x) + (0 * self.layer.weight.sum()).sqrt()  # finite, but with an infinite derivative

    settings = replace(SMALL, epochs=1, batch_size=64, warmup=0)
    with pytest.raises(TrainingError, match=r"the weights encoder\.layer\.weight .* not finite after step 1"):
        imix.pretrain(table[0], settings, encoder=BreaksBackward(), out=tmp_path / "run", progress=False)
    assert {path.name for path in (tmp_path / "run").iterdir()} <= {"config.json", "metrics.jsonl"}


def test_samples_that_are_all_alike_are_a_collapse_even_in_a_short_run():
    with pytest.raises(TrainingError, match="not all alike"):
        imix.pretrain(torch.ones(64, 5), Settings(epochs=100, encoder="mlp:16-16", device="cpu"), progress=False)


def test_features_of_zero_are_a_collapse():
    watch = Watch(chance=None, advice="", total_steps=100)
    for step in range(PATIENCE - 1):
        watch.alive(step, 0.5, torch.zeros(8, 4))
    with pytest.raises(TrainingError, match="same features"):
        watch.alive(PATIENCE, 0.5, torch.zeros(8, 4))


def test_an_ordinary_run_is_not_taken_for_a_collapse(table):
    imix.pretrain(table[0], replace(SMALL, epochs=4 * EVERY // 4 * PATIENCE), progress=False)


def test_one_check_at_chance_is_not_a_collapse():
    watch, varied = Watch(chance=math.log(8), advice="", total_steps=1000), torch.eye(8)
    for step, loss in enumerate([math.log(8)] * (PATIENCE - 1) + [1.0] + [math.log(8)] * (PATIENCE - 1)):
        watch.alive(step, loss, varied)
    with pytest.raises(TrainingError, match="stands at chance"):
        watch.alive(99, math.log(8), varied)


# --- logs ------------------------------------------------------------------------------------------------------------


def test_metrics_have_loss_rate_and_speed_for_every_epoch(table, tmp_path):
    run = imix.pretrain(table[0], SMALL, out=tmp_path / "run", progress=False)
    records = files.read_lines(tmp_path / "run" / "metrics.jsonl")
    assert records == run.metrics
    assert [record["epoch"] for record in records] == [1, 2, 3]
    assert all(record.keys() >= {"step", "epoch", "loss", "lr", "views_per_second"} for record in records)


def test_a_name_is_no_augmentation_and_says_where_it_belongs(table):
    with pytest.raises(InputError, match=r"a name belongs in Settings\(augment='cifar'\)"):
        imix.pretrain(table[0], SMALL, augment="cifar")


def test_settings_that_nothing_looks_at_are_said(table, capsys):
    imix.pretrain(table[0], replace(SMALL, method="npair", mix="none", queue=16, alpha=2.0))
    assert "npair has no use for queue, alpha: passed over" in capsys.readouterr().err
    settings = replace(SMALL, method="byol", encoder="mlp:8", masking=0.5, temperature=0.5, milestones=(1,))
    imix.pretrain(table[0], settings, encoder=imix.encoders.build("mlp:16", (6,)), augment=lambda x: x)
    assert "has no use for encoder, queue, temperature, masking, milestones: passed over" in capsys.readouterr().err
    imix.pretrain(table[0], replace(SMALL, method="moco", queue=16, schedule="step", milestones=(1,)))
    assert "no use" not in capsys.readouterr().err


def test_a_queue_that_holds_the_data_many_times_is_said(table, capsys):
    imix.pretrain(table[0], replace(SMALL, method="moco", queue=140))
    assert "the queue holds 2 keys of every sample" in capsys.readouterr().err


def test_the_effective_batch_and_progress_are_printed(table, capsys):
    imix.pretrain(table[0], SMALL)
    said = capsys.readouterr().err
    assert "effective batch 16 = 1 rank(s) x 16" in said
    assert "views by masking 0.2" in said
    assert "training: 12 of 12 steps" in said
    assert "views/s" in said


def test_tensorboard_gets_the_records(table, tmp_path):
    imix.pretrain(table[0], replace(SMALL, tensorboard=True), out=tmp_path / "run", progress=False)
    assert list((tmp_path / "run" / "tensorboard").glob("events*"))


def test_wandb_that_is_not_installed_is_asked_for(table, tmp_path, monkeypatch):
    run = imix.pretrain(table[0], SMALL, out=tmp_path / "run", progress=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"imix-ssl\[wandb\]"):
        imix.pretrain(table[0], replace(SMALL, wandb=True), out=tmp_path / "run", overwrite=True, progress=False)
    assert imix.Run.load(tmp_path / "run").metrics == run.metrics, "a refused command must not clear the folder"


def test_a_log_without_sinks_remembers():
    log = Log([])
    log.write({"step": 1})
    assert log.records == [{"step": 1}]


# --- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "dino"}, "unknown method 'dino'; choose from npair, simclr"),
        ({"mix": "fmix"}, "unknown mix 'fmix'"),
        ({"head": "fancy"}, "unknown head 'fancy'"),
        ({"temperature": 0}, "temperature must be above 0; got 0"),
        ({"epochs": 0}, "epochs must be above 0"),
        ({"masking": 1.5}, "masking must lie within 0 and 1; got 1.5"),
        ({"lr": -1}, "lr must be above 0"),
        ({"seed": -1}, "seed must not be below 0"),
        ({"epochs": 1.5}, "epochs must be a whole number; got 1.5"),
        ({"epochs": "3"}, "epochs must be a whole number; got '3'"),
        ({"lr": "fast"}, "lr must be a number; got 'fast'"),
        ({"epochs": 5, "warmup": 5}, "warmup must be at least 0 and less than epochs=5; got 5"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(changes, message):
    with pytest.raises(InputError, match=message):
        Settings(**changes)


# --- one definition --------------------------------------------------------------------------------------------------


def test_every_face_trains_the_same_encoder(table, tmp_path):
    """Python, the command line, scikit-learn and a loop of one's own around the method: the same weights."""
    np.save(tmp_path / "x.npy", table[0].numpy())
    settings = replace(SMALL, masking=0, seed=int(np.random.RandomState(5).randint(2**31 - 1)))
    run = imix.pretrain(table[0], settings, progress=False)
    flags = ["--epochs", 3, "--batch-size", 16, "--encoder", "mlp:16-16", "--device", "cpu", "--seed", settings.seed]
    process = cli("pretrain", tmp_path / "x.npy", "--out", tmp_path / "run", *flags, "--queue", 40, "--masking", 0)
    said = process.communicate()
    assert process.returncode == 0, said
    same = {"epochs": 3, "batch_size": 16, "encoder": "mlp:16-16", "device": "cpu", "masking": 0}
    estimator = imix.IMixTransformer(**same, random_state=5)
    estimator.fit(table[0].numpy())
    assert_same_weights(weights(run), imix.load_encoder(tmp_path / "run").state_dict())
    # The estimator's rows were scaled in float64.
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


def test_an_augmentation_that_works_in_place_still_makes_two_views(table):
    def in_place(x):
        x[torch.rand_like(x) < 0.3] = 0
        return x

    def copied(x):
        return x.masked_fill(torch.rand_like(x) < 0.3, 0)

    first, other = (imix.pretrain(table[0], SMALL, augment=view, progress=False) for view in (in_place, copied))
    assert_same_weights(weights(first), weights(other))


def test_a_caller_without_gradients_can_train(table):
    expected = weights(imix.pretrain(table[0], SMALL, progress=False))
    for context in (torch.no_grad(), torch.inference_mode()):
        with context:
            assert_same_weights(weights(imix.pretrain(table[0], SMALL, progress=False)), expected)
