"""Pretraining, evaluation and embedding on folders of audio files."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import polars
import pytest
import torch
from PIL import Image
from torch import nn
from torch.testing import assert_close

import imix
from imix import DataSettings, InputError, Settings, mix
from imix.augment.per_sample import CALLS  # of the augmentation, before training
from imix.batch import to_float
from imix.cli import main
from imix.data import load
from imix.encoders.mel import LogMel
from imix.run import checkpoint
from imix.settings import FineTuning
from imix.train.finetune import _Trainer
from imix.train.views import build_view
from tests.data.media.helpers import QUICK, SHORT_CLIPS, tone, write_audio
from tests.data.media.spoken_words import write_spoken_words

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("cache")]


def run_cli(cache, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "imix", *map(str, arguments)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "IMIX_CACHE": str(cache), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )


WORDS = ["yes", "no", "up", "go", "six"]


def test_pretrain_evaluate_and_embed_work_on_spoken_words_without_options(tmp_path, cache):
    folder, run = tmp_path / "spoken", tmp_path / "run"
    write_spoken_words(folder, WORDS, 4)
    result = run_cli(cache, "pretrain", folder, "--out", run)
    assert result.returncode == 0, result.stderr
    result = run_cli(cache, "evaluate", run, "--protocol", "knn")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(f"knn on {folder}: ") and "4 held out with seed 0" in result.stdout
    result = run_cli(cache, "embed", run, folder, "--out", tmp_path / "z.parquet")
    assert result.stdout == f"20 vectors of 128 features written to {tmp_path / 'z.parquet'}\n"
    table = polars.read_parquet(tmp_path / "z.parquet")
    assert table["file"].to_list() == [str(path) for path in sorted(folder.rglob("*.wav"))]
    assert table["label"].to_list() == [path.split("/")[-2] for path in table["file"]]


def test_spoken_words_are_classified_after_pretraining(tmp_path):
    write_spoken_words(tmp_path / "spoken", WORDS, 24)
    run = imix.pretrain(tmp_path / "spoken", Settings(epochs=10, batch_size=40, device="cpu"), progress=False)
    for protocol, min_accuracy in (("linear", 0.8), ("knn", 0.3)):  # with five words, after thirty steps
        result = imix.evaluate(run, tmp_path / "spoken", protocol)
        assert result.accuracy >= min_accuracy and (result.split.test, result.split.held_out) == (24, True)


@pytest.mark.parametrize(
    "flags",
    [
        ["--augment", "cifar"],
        ["--seconds", "0.001"],
        ["--seconds", "inf"],
        ["--mix-waveforms", "--mix", "cutmix"],
        ["--test", "."],
    ],
)
def test_invalid_audio_options_print_one_line(tmp_path, tones, flags, monkeypatch, capsys):
    monkeypatch.chdir(tones)
    command = ["imix", "pretrain", tones, *flags, "--out", tmp_path / "run", "--device", "cpu"]
    monkeypatch.setattr(sys, "argv", [str(part) for part in command])
    with pytest.raises(SystemExit) as exit_info:
        main()
    captured = capsys.readouterr()
    assert (exit_info.value.code, captured.out, len(captured.err.splitlines())) == (2, "", 1), captured.err
    assert not (tmp_path / "run").exists()


def test_the_stored_encoder_takes_waveforms(tones, tmp_path):
    run = imix.pretrain(tones, QUICK, SHORT_CLIPS, out=tmp_path / "run", progress=False)
    waves = to_float(load(tones, SHORT_CLIPS).train.inputs)
    assert waves.shape == (12, 1, 2000) and -1 <= waves.min() < waves.max() <= 1
    with torch.no_grad():
        vectors = imix.load_encoder(tmp_path / "run")(waves)
    assert_close(vectors.numpy(), imix.embed(run, tones))
    assert_close(vectors.numpy(), imix.embed(tmp_path / "run", waves.numpy()))


def test_new_clips_get_the_length_and_sample_rate_of_the_run(tones, tmp_path):
    run = imix.pretrain(tones, QUICK, DataSettings(sample_rate=8000, n_mels=20), progress=False)
    assert (run.data_settings.seconds, run.data_settings.sample_rate, run.data_settings.n_mels) == (0.3, 8000, 20)
    for i in range(3):
        write_audio(tmp_path / "new" / f"{i}.ogg", tone(300, 1 + i, 44_100), rate=44_100)
    assert imix.embed(run, tmp_path / "new").shape == (3, 128)


@pytest.mark.parametrize(("augment", "varies"), [(None, True), ("none", False)])
def test_clips_are_augmented_while_fine_tuning(tones, augment, varies):
    data = load(tones, SHORT_CLIPS)
    run = imix.pretrain(data, replace(QUICK, augment=augment), progress=False)
    trainer = _Trainer(run, data, data.train, FineTuning(include_inputs=False), torch.device("cpu"))
    waves = to_float(data.train.inputs[:4])
    (first,), (second,) = trainer.views(waves), trainer.views(waves)
    assert first.shape == run.encoder[0](waves).shape and torch.equal(first, second) != varies


class RecordingEncoder(nn.Module):
    """An encoder that records its inputs during training."""

    width = 8

    def __init__(self):
        super().__init__()
        self.inputs = []
        self.layer = nn.LazyLinear(8)

    def forward(self, x):
        if self.training:
            self.inputs.append(x.detach().clone())
        return self.layer(x.flatten(1))


def recording_encoder(tones, data_settings=SHORT_CLIPS):
    clip = load(tones, data_settings).clip
    encoder = RecordingEncoder()
    encoder.layer = nn.Linear(clip.n_mels * clip.frames, 8)
    return encoder


@pytest.mark.parametrize("mixed", [{"mix": "mixup"}, {"mix": "cutmix"}, {"mix": "none"}, {"input_mix": 2}])
def test_spectrograms_are_mixed(tones, mixed):
    encoder = recording_encoder(tones)
    imix.pretrain(tones, replace(QUICK, **mixed), SHORT_CLIPS, encoder=encoder, progress=False)
    assert encoder.inputs[0].shape == (8, 1, 32, 4)
    assert encoder.inputs[0].max() <= 0 and encoder.inputs[0].min() >= -80 - 1e-3


def fix_mixing(lam, monkeypatch):
    """Mix each sample with the previous one, with weights `lam` and 1 - `lam`."""
    monkeypatch.setattr(mix, "_dirichlet", lambda n, parts, alpha, like: torch.tensor([[lam, 1 - lam]]).expand(n, 2))
    monkeypatch.setattr(mix, "_permutation", lambda n, device: torch.arange(n).roll(1))


@pytest.mark.parametrize("waveforms", [True, False])
def test_without_augmentation_the_encoder_gets_the_exact_mix(tones, monkeypatch, waveforms):
    fix_mixing(0.7, monkeypatch)
    data, encoder = load(tones, SHORT_CLIPS), recording_encoder(tones)
    settings = replace(QUICK, epochs=1, batch_size=12, augment="none", mix_waveforms=waveforms)
    imix.pretrain(tones, settings, SHORT_CLIPS, encoder=encoder, progress=False)
    waves, log_mel = to_float(data.train.inputs), LogMel(data.clip)
    mixed, plain = encoder.inputs[0].split(12)
    order = (plain[:, None] - log_mel(waves)[None]).abs().amax((2, 3, 4)).argmin(1)
    assert sorted(order.tolist()) == list(range(12))
    waves = waves[order]
    assert_close(plain, log_mel(waves), atol=1e-3, rtol=0)
    other = waves.roll(1, 0)
    expected = log_mel(0.7 * waves + 0.3 * other) if waveforms else 0.7 * log_mel(waves) + 0.3 * log_mel(other)
    assert_close(mixed, expected, atol=1e-2, rtol=0)


@pytest.mark.parametrize("more", [{}, {"input_mix": 2}, {"method": "byol"}, {"mix": "none"}, {"method": "supervised"}])
def test_training_works_with_mixed_waveforms(tones_with_noise, tmp_path, more):
    settings = replace(QUICK, mix_waveforms=True, **more)
    run = imix.pretrain(tones_with_noise, settings, SHORT_CLIPS, out=tmp_path / "run", progress=False)
    assert np.isfinite(run.metrics[-1]["loss"])
    waves = to_float(load(tones_with_noise, SHORT_CLIPS).train.sample(3))
    assert imix.load_encoder(tmp_path / "run")(waves).shape == (3, 128)


def test_cutmix_of_waveforms_is_an_error(tones):
    with pytest.raises(InputError, match="`mix_waveforms` blends waveforms and cutmix cuts spectrograms; choose one"):
        imix.pretrain(tones, replace(QUICK, mix_waveforms=True, mix="cutmix"), SHORT_CLIPS, progress=False)


@pytest.mark.parametrize("shape", [(8, 5), (8, 1, 100), (8, 3, 32, 32)])
@pytest.mark.parametrize("settings", [{"mix_waveforms": True}, {"augment": "audio"}])
def test_audio_settings_are_an_error_for_other_data(shape, settings):
    with pytest.raises(InputError, match="`augment='audio'` and `mix_waveforms` are for audio; in-memory data is not"):
        imix.pretrain(torch.rand(shape), replace(QUICK, **settings), progress=False)


@pytest.mark.parametrize("name", ["cifar", "imagenet"])
def test_image_augmentation_is_an_error_for_audio(tones, name):
    with pytest.raises(InputError, match=rf"`augment='{name}'` is for images .* samples of shape \(1, 2000\)"):
        imix.pretrain(tones, replace(QUICK, augment=name), SHORT_CLIPS, progress=False)


@pytest.mark.parametrize("augment", [None, "none"])
@pytest.mark.parametrize("steps", [{"masking": 1.0}, {"resampling": 1.0}])
def test_masking_and_resampling_of_audio_are_applied_or_rejected(tones, augment, steps):
    data = load(tones, SHORT_CLIPS)
    waves = to_float(data.train.inputs)
    views = []
    for settings in (Settings(augment=augment), Settings(augment=augment, **steps)):
        torch.manual_seed(0)
        try:
            views.append(build_view(settings, data, LogMel(data.clip))(waves.clone()))
        except InputError:
            return
    assert not torch.equal(*views)


def test_a_user_supplied_augmentation_gets_waveforms(tones):
    batches = []

    def quieter(batch):
        batches.append(batch.clone())
        return batch * 0.5

    run = imix.pretrain(tones, QUICK, SHORT_CLIPS, augment=quieter, progress=False)
    assert np.isfinite(run.metrics[-1]["loss"])
    assert all(batch.shape == (4, 1, 2000) and batch.is_floating_point() for batch in batches[CALLS:])
    assert 0.4 < max(float(batch.abs().max()) for batch in batches) <= 1


@pytest.mark.parametrize("more", [{}, {"mix_waveforms": True, "method": "moco", "queue": 8}, {"mix": "cutmix"}])
def test_a_resumed_run_has_the_same_weights_as_an_uninterrupted_one(tones_with_noise, tmp_path, monkeypatch, more):
    settings = replace(QUICK, epochs=3, checkpoint_minutes=0.0, **more)

    def start(folder, **options):
        return imix.pretrain(tones_with_noise, settings, SHORT_CLIPS, out=tmp_path / folder, progress=False, **options)

    uninterrupted = start("uninterrupted").encoder.state_dict()
    original, calls = checkpoint.save, []

    def save_then_interrupt(path, state):
        original(path, state)
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "save", save_then_interrupt)
    with pytest.raises(KeyboardInterrupt):
        start("stopped")
    monkeypatch.setattr(checkpoint, "save", original)
    resumed = start("stopped", resume=True).encoder.state_dict()
    assert list(resumed) == list(uninterrupted)
    assert all(torch.equal(resumed[name], uninterrupted[name]) for name in resumed)


def test_cached_clips_give_the_same_weights_as_decoded_files(tones_with_noise):
    first = imix.pretrain(tones_with_noise, QUICK, SHORT_CLIPS, progress=False).encoder.state_dict()
    again = imix.pretrain(tones_with_noise, QUICK, SHORT_CLIPS, progress=False).encoder.state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_training_does_not_change_the_cache(tones_with_noise, cache):
    imix.pretrain(tones_with_noise, QUICK, SHORT_CLIPS, progress=False)
    before = {path: path.read_bytes() for path in cache.rglob("*.*")}
    imix.pretrain(
        tones_with_noise, replace(QUICK, mix_waveforms=True), SHORT_CLIPS, augment=lambda x: x.mul_(0.5), progress=False
    )
    assert {path: path.read_bytes() for path in cache.rglob("*.*")} == before


def test_moco_mixes_in_background_noise(tones_with_noise, tmp_path, capsys):
    settings = replace(QUICK, method="moco", queue=8, symmetric=True)
    run = imix.pretrain(tones_with_noise, settings, SHORT_CLIPS, out=tmp_path / "run")
    assert "noise up to 0.45" in capsys.readouterr().err
    assert np.isfinite(run.metrics[-1]["loss"])
    split = imix.evaluate(tmp_path / "run", protocol="knn").split
    assert (split.test, split.held_out) == (2, True)


def test_low_and_high_tones_are_classified_after_pretraining(tones):
    run = imix.pretrain(tones, replace(QUICK, epochs=5, batch_size=12), SHORT_CLIPS, progress=False)
    assert imix.evaluate(run, protocol="knn").accuracy == 1
    assert imix.evaluate(run, protocol="linear").accuracy == 1


def test_a_resnet_trains_on_audio(tones):
    run = imix.pretrain(tones, replace(QUICK, epochs=1, encoder="resnet18"), SHORT_CLIPS, progress=False)
    assert imix.embed(run, tones).shape == (12, 512)


def test_knn_accuracy_is_measured_during_training(tones):
    run = imix.pretrain(tones, replace(QUICK, knn_every=1), SHORT_CLIPS, progress=False)
    assert any("knn" in name for name in run.metrics[-1])


def test_images_are_an_error_for_a_run_on_audio(tones, tmp_path):
    Image.new("RGB", (32, 32)).save(tmp_path / "a.png")
    run = imix.pretrain(tones, replace(QUICK, epochs=1), SHORT_CLIPS, progress=False)
    shutil.rmtree(tones)
    with pytest.raises(InputError, match=r"trained on samples of shape \(1, 2000\); .* has \(3, 32, 32\)"):
        imix.embed(run, tmp_path)
