"""epochs="auto" and batch_size="auto"."""

import copy
import os
import re
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
import torch

import imix
from imix import InputError
from imix.data import load
from imix.settings import ResolvedSettings
from imix.train import auto
from imix.train.auto import choose_batch_size, choose_epochs, resolve_auto
from imix.train.options import Components
from tests.train.helpers import SMALL, Streaming, assert_same_weights, cli, weights

CPU, GPU = torch.device("cpu"), torch.device("cuda")
AUTO = {"epochs": "auto", "batch_size": "auto"}
TINY = {"encoder": "mlp:8-8", "device": "cpu", "progress": False}
SIZES = [32, 142, 500, 1_297, 5_000, 50_000, 581_012, 5_000_000]


@pytest.fixture
def short(monkeypatch):
    """A rule that gives runs of about ten steps."""
    monkeypatch.setattr(auto, "MIN_STEPS", 10)


def rows(n=64):
    return torch.randn(n, 5, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("device", [CPU, GPU])
def test_more_samples_have_larger_batches_and_more_steps(device):
    batches = [choose_batch_size(n, device) for n in SIZES]
    per_epoch = [n // batch for n, batch in zip(SIZES, batches, strict=True)]
    epochs = [choose_epochs(n, steps, device) for n, steps in zip(SIZES, per_epoch, strict=True)]
    steps = [a * b for a, b in zip(epochs, per_epoch, strict=True)]
    assert batches == sorted(batches)
    assert all(later > 0.95 * earlier for earlier, later in pairwise(steps))  # not exactly, as epochs are whole
    assert epochs[0] > epochs[-1]


def test_a_few_hundred_samples_and_millions_of_images_get_sensible_numbers():
    assert choose_batch_size(500, CPU) == 64
    assert choose_epochs(500, 500 // 64, CPU) * (500 // 64) == pytest.approx(2_000, rel=0.01)
    assert choose_batch_size(5_000_000, GPU) == 512
    assert 20 <= choose_epochs(5_000_000, 5_000_000 // 512, GPU) <= 40
    assert choose_epochs(5_000_000, 5_000_000 // 256, CPU) == 1


def test_small_data_gets_the_same_numbers_on_any_device():
    for n in (32, 142, 500, 1_000):
        batch = choose_batch_size(n, CPU)
        assert batch == choose_batch_size(n, GPU)
        assert n // batch >= 2
        assert choose_epochs(n, n // batch, CPU) == choose_epochs(n, n // batch, GPU)


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_the_batch_is_a_multiple_of_the_ranks(ranks):
    for n in SIZES:
        assert choose_batch_size(n, CPU, ranks) % ranks == 0


def test_the_run_stores_numbers_and_says_what_was_chosen(short, tmp_path, capsys):
    run = imix.pretrain(rows(), out=tmp_path / "run", **AUTO, **(TINY | {"progress": True}))
    assert (run.settings.epochs, run.settings.batch_size) == (5, 32)
    assert imix.load_run(tmp_path / "run").settings == run.settings
    assert "epochs auto: 5 (about 10 steps for 64 samples); batch size auto: 32" in capsys.readouterr().err


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("options", [AUTO, {"epochs": 5, "batch_size": 32}, AUTO | {"minutes": 0.001}])
def test_a_resumed_run_keeps_its_numbers(tmp_path, monkeypatch, options):
    class Stop(Exception):
        pass

    def stop(state):
        if state.step == 3:
            raise Stop

    whole = imix.pretrain(rows(), **AUTO, **TINY)
    with pytest.raises(Stop):
        imix.pretrain(rows(), out=tmp_path / "run", on_step=stop, checkpoint_minutes=0, **AUTO, **TINY)
    monkeypatch.setattr(auto, "MIN_STEPS", 1_000)  # another rule, as of another version
    resumed = imix.pretrain(rows(), out=tmp_path / "run", resume=True, checkpoint_minutes=0, **options, **TINY)
    assert_same_weights(weights(whole), weights(resumed))


@pytest.mark.usefixtures("short")
def test_a_longer_wsd_run_is_resumed_with_auto(tmp_path):
    options = TINY | {"schedule": "wsd", "warmup": 1, "out": tmp_path / "run"}
    imix.pretrain(rows(), **AUTO, **options)
    imix.pretrain(rows(), epochs=8, batch_size="auto", resume=True, **options)
    assert imix.pretrain(rows(), resume=True, **AUTO, **options).settings.epochs == 8


def test_the_time_budget_limits_the_epochs(monkeypatch):
    monkeypatch.setattr(auto, "measure_step", lambda *arguments: 0.1)
    data = load(rows(640))  # 16 steps of 40 samples, and at most 2,000 steps
    settings = imix.Settings(batch_size=40, epochs="auto", device="cpu")
    chosen = {minutes: resolve_auto(settings, data, minutes=minutes) for minutes in (0.01, 1, 60)}
    assert [resolved.epochs for resolved, _ in chosen.values()] == [1, 33, 125]
    assert chosen[0.01][1] == ["epochs auto: 1 (one epoch takes 1.6 seconds, more than 0.6 seconds)"]
    assert chosen[1][1] == ["epochs auto: 33 (528 steps, limited to 60 seconds)"]
    assert chosen[60][1] == ["epochs auto: 125 (about 2,000 steps for 640 samples)"]


def test_measuring_the_speed_changes_neither_the_encoder_nor_the_random_numbers():
    encoder = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.BatchNorm1d(8))
    before, state = copy.deepcopy(encoder.state_dict()), torch.get_rng_state()
    settings = imix.Settings(epochs="auto", device="cpu")
    resolved, _ = resolve_auto(settings, load(rows()), Components(encoder=encoder), minutes=0.001)
    assert resolved.epochs >= 1
    assert_same_weights(before, encoder.state_dict())
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("method", ["moco", "supervised"])
def test_the_speed_of_every_method_can_be_measured(method):
    settings = imix.Settings(epochs="auto", method=method, queue=100, encoder="mlp:8-8", device="cpu")
    data = load(rows(), labels=[0, 1] * 32)
    assert resolve_auto(settings, data, minutes=0.001)[0].epochs >= 1


@pytest.mark.usefixtures("short")
def test_streamed_data_and_bench_accept_auto():
    assert imix.pretrain(Streaming(rows()), **AUTO, **TINY).settings.batch_size == 32
    assert imix.bench(rows(), duration=0.01, **AUTO, **TINY).epochs == 5


def test_settings_of_a_run_accept_auto_again():
    run = imix.pretrain(rows(), SMALL, progress=False)
    assert isinstance(run.settings, ResolvedSettings)
    again = imix.pretrain(rows(), run.settings, epochs="auto", minutes=1e-9, progress=False)
    assert again.settings.epochs == 1


def test_equal_settings_are_equal_whether_they_are_of_a_run_or_not():
    assert ResolvedSettings(epochs=7) == imix.Settings(epochs=7)
    assert hash(ResolvedSettings(epochs=7)) == hash(imix.Settings(epochs=7))
    assert imix.Settings(epochs="auto") != imix.Settings(epochs=7)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"minutes": 10}, "`minutes` needs `epochs='auto'`; got `epochs=200`"),
        ({"minutes": 10, "batch_size": "auto"}, "`minutes` needs `epochs='auto'`; got `epochs=200`"),
        ({"minutes": 0, "epochs": "auto"}, "`minutes` must be a number above 0; got 0"),
        ({"minutes": -1.5, "epochs": "auto"}, "`minutes` must be a number above 0; got -1.5"),
        ({"minutes": float("nan"), "epochs": "auto"}, "`minutes` must be a number above 0; got nan"),
        ({"minutes": float("inf"), "epochs": "auto"}, "`minutes` must be a number above 0; got inf"),
        ({"minutes": True, "epochs": "auto"}, "`minutes` must be a number above 0; got True"),
        ({"minutes": "10", "epochs": "auto"}, "`minutes` must be a number above 0; got '10'"),
        ({"epochs": "automatic"}, "`epochs` must be an integer or 'auto'; got 'automatic'"),
        ({"batch_size": "Auto"}, "`batch_size` must be an integer or 'auto'; got 'Auto'"),
        ({"epochs": None}, "`epochs` must be an integer or 'auto'; got None"),
        ({"epochs": "auto", "batch_size": 0}, "`batch_size` must be above 0; got 0"),
        ({"epochs": "auto", "warmup": 5_000}, "`warmup` must be at least 0 and less than `epochs=1000`; got 5000"),
        ({"minuts": 10}, "unknown option 'minuts' (did you mean 'minutes'?)"),
    ],
)
def test_invalid_options_are_one_line_errors_before_anything_is_written(tmp_path, options, message):
    with pytest.raises(InputError, match=re.escape(message)):
        imix.pretrain(rows(), out=tmp_path / "run", **({"batch_size": 32} | TINY | options))
    assert not (tmp_path / "run").exists()


def test_a_config_with_auto_in_a_run_folder_is_damaged(tmp_path):
    imix.pretrain(rows(), SMALL, out=tmp_path / "run", progress=False)
    config = tmp_path / "run" / "config.json"
    config.write_text(config.read_text().replace('"epochs": 3', '"epochs": "auto"'))
    with pytest.raises(InputError, match=r"damaged: settings\.epochs must be an integer; got 'auto'"):
        imix.load_run(tmp_path / "run")


@pytest.mark.slow
def test_the_command_line_has_auto_and_minutes(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a,b,c\n" + "\n".join(f"{i},{i * i % 7},{i % 5}" for i in range(64)))
    (tmp_path / "settings.json").write_text('{"epochs": "auto", "batch_size": "auto", "encoder": "mlp:8-8"}')
    common = ("pretrain", path, "--out", tmp_path / "run", "--device", "cpu")
    done = cli(*common, "--config", tmp_path / "settings.json", "--minutes", "1e-9")
    _, messages = done.communicate(timeout=120)
    assert done.returncode == 0, messages
    assert imix.load_run(tmp_path / "run").settings.epochs == 1
    for words, message in {
        ("--epochs", "automatic"): "automatic",
        ("--epochs", "auto", "--minutes", "0"): "--minutes must be a number above 0; got 0",
        ("--minutes", "10"): "--minutes needs --epochs auto",
    }.items():
        failed = cli(*common, "--overwrite", *words)
        _, messages = failed.communicate(timeout=120)
        assert failed.returncode == 2
        assert len(messages.splitlines()) == 1
        assert message in messages


@pytest.mark.slow
def test_two_ranks_choose_the_same_numbers_within_a_time_budget(tmp_path):
    np.save(tmp_path / "x.npy", rows(96).numpy())
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "imix"]
    options = ["--epochs", "auto", "--batch-size", "auto", "--minutes", "0.02", "--encoder", "mlp:8-8"]
    done = subprocess.run(
        [*command, "pretrain", str(tmp_path / "x.npy"), "--out", str(tmp_path / "run"), "--device", "cpu", *options],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    run = imix.load_run(tmp_path / "run")
    assert run.progress is None  # ranks with different numbers would wait for each other
    assert run.config.ranks == 2
    assert "effective batch 32 = 2 rank(s) x 16" in done.stderr
