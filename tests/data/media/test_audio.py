"""Folders of audio files: formats, sample rates, lengths, classes, broken files and the cache of decoded clips."""

import json
import os
import shutil
import tracemalloc

import numpy as np
import polars
import pytest
import soundfile
import torch
from PIL import Image
from torch.testing import assert_close

import imix
from imix import DataSettings, InputError
from imix.batch import to_float
from imix.data import load
from imix.data.media import audio
from imix.data.media.audio import decode
from imix.data.media.folder import Budget, find_files
from imix.data.media.references import AUDIO_SUFFIXES
from imix.encoders.mel import LogMel
from tests.data.media.helpers import (
    BROKEN_KINDS,
    QUICK,
    SAMPLE_RATE,
    SHORT_CLIPS,
    fit_tone,
    tone,
    write_audio,
    write_broken,
)

pytestmark = pytest.mark.usefixtures("cache")


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "subtype", "max_residual"),
    [
        ("a.wav", "PCM_U8", 0.01),
        ("a.wav", "PCM_16", 1e-4),
        ("a.wav", "PCM_24", 1e-6),
        ("a.wav", "PCM_32", 1e-6),
        ("a.wav", "FLOAT", 1e-6),
        ("a.wav", "DOUBLE", 1e-6),
        ("a.wav", "ULAW", 0.02),
        ("a.wav", "ALAW", 0.02),
        ("a.wav", "IMA_ADPCM", 0.02),
        ("a.wav", "MS_ADPCM", 0.02),
        ("A.WAV", None, 1e-4),
        ("a.flac", "PCM_16", 1e-4),
        ("a.flac", "PCM_24", 1e-6),
        ("a.ogg", "VORBIS", 0.02),
        ("a.mp3", "MPEG_LAYER_III", 0.02),
        ("a.aiff", "PCM_16", 1e-4),
        ("a.aif", "PCM_24", 1e-6),
        ("a.au", "PCM_16", 1e-4),
        ("a.caf", "PCM_16", 1e-4),
    ],
)
def test_every_format_is_decoded_to_the_tone_that_was_written(tmp_path, name, subtype, max_residual):
    container = {".ogg": "OGG", ".aif": "AIFF"}.get((tmp_path / name).suffix)
    write_audio(tmp_path / name, tone(440, 2), subtype=subtype, format=container)
    amplitude, residual = fit_tone(decode(tmp_path / name, SAMPLE_RATE, SAMPLE_RATE), 440)
    assert amplitude == pytest.approx(0.5, rel=0.02) and residual < max_residual


def test_opus_is_decoded_to_the_tone_that_was_written(tmp_path):
    write_audio(tmp_path / "a.opus", tone(440, 2, 48_000), rate=48_000, subtype="OPUS", format="OGG")
    amplitude, residual = fit_tone(decode(tmp_path / "a.opus", SAMPLE_RATE, SAMPLE_RATE), 440)
    assert amplitude == pytest.approx(0.5, rel=0.02) and residual < 0.02


def test_16_bit_samples_are_read_exactly(tmp_path):
    wave = np.random.default_rng(0).integers(-32768, 32768, 4000, dtype=np.int16)
    write_audio(tmp_path / "a.wav", wave)
    assert np.array_equal(load(tmp_path).train.inputs[0, 0, :4000].numpy(), wave)


@pytest.mark.parametrize("suffix", ["wav", "flac", "ogg"])
def test_channels_are_averaged(tmp_path, suffix):
    channels = np.stack([tone(300, 1), tone(300, 1, amplitude=0.1), tone(300, 1, amplitude=0)], 1)
    write_audio(tmp_path / f"a.{suffix}", channels)
    assert fit_tone(decode(tmp_path / f"a.{suffix}", SAMPLE_RATE, SAMPLE_RATE), 300)[0] == pytest.approx(0.2, rel=0.02)


@pytest.mark.parametrize("rate", [4000, 8000, 11_025, 22_050, 44_100, 48_000, 96_000, 192_000, 12_345])
def test_resampling_keeps_pitch_and_amplitude(tmp_path, rate):
    write_audio(tmp_path / "a.wav", tone(440, 1.2, rate), rate=rate, subtype="FLOAT")
    wave = decode(tmp_path / "a.wav", SAMPLE_RATE, SAMPLE_RATE)
    amplitude, residual = fit_tone(wave[400:-400], 440)
    assert (len(wave), wave.dtype) == (SAMPLE_RATE, np.float32)
    assert amplitude == pytest.approx(0.5, rel=0.01) and residual < 0.002


def test_resampling_removes_frequencies_above_nyquist(tmp_path):
    write_audio(tmp_path / "a.wav", tone(9000, 1, 48_000), rate=48_000)
    assert np.abs(decode(tmp_path / "a.wav", 8000, 8000)[200:-200]).max() < 0.005


def test_short_files_are_padded_with_silence(tmp_path):
    wave = write_audio(tmp_path / "a.wav", tone(seconds=0.5))
    clip = decode(wave, SAMPLE_RATE, SAMPLE_RATE)
    assert_close(clip[:8000], soundfile.read(wave, dtype="float32")[0])
    assert len(clip) == SAMPLE_RATE and not clip[8000:].any()


@pytest.mark.parametrize("suffix", ["wav", "flac", "aiff", "au", "caf"])
def test_long_files_are_cropped_to_the_middle(tmp_path, suffix):
    wave = np.arange(24_000, dtype=np.int16)
    write_audio(tmp_path / f"a.{suffix}", wave)
    assert np.array_equal(np.round(decode(tmp_path / f"a.{suffix}", SAMPLE_RATE, 8000) * 32768), wave[8000:16_000])


@pytest.mark.parametrize(("suffix", "rate"), [("wav", 48_000), ("mp3", 44_100), ("ogg", 44_100), ("flac", 8000)])
def test_the_middle_is_found_at_any_sample_rate_and_in_any_format(tmp_path, suffix, rate):
    wave = tone(500, 5, rate)
    wave[: 2 * rate] = wave[3 * rate :] = 0
    write_audio(tmp_path / f"a.{suffix}", wave, rate)
    clip = decode(tmp_path / f"a.{suffix}", SAMPLE_RATE, 2 * SAMPLE_RATE)
    loud = np.abs(clip).reshape(-1, 800).max(1) > 0.2
    assert loud[11:29].all() and not loud[:9].any() and not loud[31:].any()


@pytest.mark.parametrize(
    ("name", "subtype", "rate"),
    [
        ("a.wav", "PCM_24", 44_100),
        ("a.wav", "MS_ADPCM", 22_050),
        ("a.flac", None, 48_000),
        ("a.ogg", "VORBIS", 44_100),
        ("a.opus", "OPUS", 48_000),
        ("a.mp3", None, 16_000),
        ("a.mp3", None, 22_050),
        ("a.mp3", None, 44_100),
    ],
)
def test_the_cropped_middle_equals_the_middle_of_the_whole_file(tmp_path, name, subtype, rate):
    path = tmp_path / name
    container = {".ogg": "OGG", ".opus": "OGG"}.get(path.suffix)
    write_audio(path, tone(440, 3, rate) + tone(1000, 3, rate, 0.1), rate, subtype, container)
    whole = soundfile.read(path, dtype="float32")[0]
    start = (len(whole) - rate) // 2
    assert_close(decode(path, rate, rate), whole[start : start + rate], atol=0.005, rtol=0)


@pytest.mark.parametrize(("name", "subtype"), [("a.wav", "GSM610"), ("a.au", "G721_32"), ("a.au", "G723_24")])
@pytest.mark.parametrize("seconds", [0.5, 3])
def test_formats_without_seeking_are_read(tmp_path, name, subtype, seconds):
    write_audio(tmp_path / name, tone(440, seconds), subtype=subtype)
    assert decode(tmp_path / name, SAMPLE_RATE, 8000).std() == pytest.approx(0.5 / np.sqrt(2), rel=0.1)


@pytest.mark.parametrize(
    ("data_settings", "shape", "mel_shape"),
    [
        (DataSettings(), (1, 4800), (1, 32, 10)),
        (DataSettings(seconds=1.0), (1, 16_000), (1, 32, 32)),
        (DataSettings(sample_rate=8000), (1, 2400), (1, 32, 5)),
        (DataSettings(seconds=0.5, sample_rate=44_100, n_mels=64), (1, 22_050), (1, 64, 44)),
    ],
)
def test_seconds_sample_rate_and_n_mels_set_the_shape_of_clips(tones, data_settings, shape, mel_shape):
    data = load(tones, data_settings)
    assert (data.train.shape, data.clip.shape, data.train.inputs.dtype) == (shape, mel_shape, torch.int16)
    assert LogMel(data.clip)(to_float(data.train.sample(2))).shape == (2, *mel_shape)


@pytest.mark.parametrize(
    ("lengths", "seconds"),
    [
        ([1.0] * 4, 1.0),
        ([0.25] * 4, 0.3),
        ([0.01] * 4, 0.1),
        ([0.5] * 9 + [3.0], 0.5),
        ([0.5] * 18 + [3.0] * 2, 0.5),
        ([0.5] * 8 + [3.0] * 2, 3.0),
        ([1.0] * 9 + [600.0], 1.0),
        ([12.0] * 3, 10.0),
    ],
)
def test_default_length_covers_90_percent_of_the_files(tmp_path, lengths, seconds):
    for i, length in enumerate(lengths):
        write_audio(tmp_path / f"{i}.wav", np.zeros(round(length * 1000)), rate=1000)
    assert load(tmp_path, DataSettings(sample_rate=8000)).settings.seconds == seconds


@pytest.mark.parametrize("seconds", [0.001, 0.03])
def test_clips_shorter_than_a_frame_are_an_error(tones, seconds):
    with pytest.raises(InputError, match=r"seconds x sample_rate must be between 512 and .* samples; got \d+"):
        load(tones, DataSettings(seconds=seconds))


@pytest.mark.parametrize(
    "data_settings", [{"seconds": 0}, {"seconds": -1}, {"seconds": float("nan")}, {"sample_rate": 0}, {"n_mels": 0}]
)
def test_seconds_sample_rate_and_n_mels_must_be_positive(data_settings):
    with pytest.raises(InputError, match=r"must be above 0; got|must be a number; got nan"):
        DataSettings(**data_settings)


@pytest.mark.parametrize("seconds", [float("inf"), 1e300, 1e9])
def test_huge_lengths_are_an_error_that_names_seconds(tones, seconds):
    with pytest.raises(InputError, match="seconds"):
        load(tones, DataSettings(seconds=seconds))


# --- folders ---------------------------------------------------------------------------------------------------------


def test_subfolders_are_classes_and_samples_are_named_by_file(tones):
    data = load(tones)
    assert (len(data.train), list(data.class_names), data.augment) == (12, ["high", "low"], "audio")
    assert data.train.labels.tolist() == [0] * 6 + [1] * 6
    assert data.sample_names[0].endswith("high/more/0.flac") and data.sample_names[-1].endswith("low/5.wav")


def test_a_file_outside_of_subfolders_disables_labels(tones, capsys):
    write_audio(tones / "stray.wav")
    assert load(tones).train.labels is None
    assert "no labels, because 'stray.wav'" in capsys.readouterr().err


def test_the_background_noise_folder_is_noise_and_not_a_class(tones_with_noise):
    data = load(tones_with_noise)
    assert (len(data.train), list(data.class_names)) == (12, ["high", "low"])
    assert not any(name.endswith("hiss.wav") for name in data.sample_names)
    assert (data.noise.shape, data.noise.dtype) == ((1, 1, 4800), torch.int16)


def test_noise_is_cut_into_clips_and_short_noise_is_padded(tones):
    write_audio(tones / "_background_noise_" / "long.wav", np.full(10_000, 0.5))
    write_audio(tones / "_background_noise_" / "short.wav", np.full(1000, 0.25))
    noise = to_float(load(tones).noise)
    assert noise.shape == (3, 1, 4800) and (noise[:2] == 0.5).all()
    assert (noise[2, 0, :1000] == 0.25).all() and not noise[2, 0, 1000:].any()


@pytest.mark.parametrize("content", [b"", b"not an audio file"])
def test_broken_noise_files_are_reported_and_skipped(tones_with_noise, content, capsys):
    (tones_with_noise / "_background_noise_" / "broken.wav").write_bytes(content)
    assert len(load(tones_with_noise).noise) == 1
    assert "broken.wav" in capsys.readouterr().err


@pytest.mark.parametrize("rate", [1, 999])
def test_noise_that_claims_a_very_low_sample_rate_is_reported_and_skipped(tones_with_noise, rate, capsys):
    write_audio(tones_with_noise / "_background_noise_" / "slow.wav", np.zeros(1_000_000), rate=rate)
    assert len(load(tones_with_noise).noise) == 1
    assert f"slow.wav': its sample rate is {rate} Hz; noise needs at least 1000 Hz" in capsys.readouterr().err


def test_clips_that_claim_any_sample_rate_take_little_memory(tmp_path):
    for rate in (1, 999, 10**9, 2**31 - 1):
        write_audio(tmp_path / f"{rate}.wav", tone(440, 1), rate=rate)
    tracemalloc.start()
    assert len(load(tmp_path, DataSettings(seconds=1.0)).train) == 4
    assert tracemalloc.get_traced_memory()[1] < 100e6
    tracemalloc.stop()


def test_files_that_decode_to_too_much_are_reported_and_skipped(tones, monkeypatch, capsys):
    monkeypatch.setattr(audio, "DECODED_SAMPLES", Budget(5000))
    write_audio(tones / "low" / "stereo.wav", np.zeros((4000, 2)))
    assert len(load(tones).train) == 12
    assert "stereo.wav': too long: 4,000 x 2 samples" in capsys.readouterr().err


def test_an_empty_noise_folder_gives_no_noise(tones):
    (tones / "_background_noise_").mkdir()
    (tones / "_background_noise_" / "README.md").write_text("sources")
    assert load(tones).noise is None


def test_test_clips_are_read_from_a_second_folder(tones, tmp_path):
    for name in ("low", "high"):
        write_audio(tmp_path / "others" / name / "0.wav", tone(440, 2, 8000), rate=8000)
    data = load(tones, DataSettings(test=str(tmp_path / "others")))
    assert (len(data.test), data.test.shape, data.test.labels.tolist()) == (2, (1, 4800), [0, 1])
    assert len(data.sample_names) == 14 and data.sample_names[12].endswith("others/high/0.wav")


def test_a_test_folder_that_overlaps_the_training_folder_is_an_error(tones):
    for test in (tones, tones / "low", tones.parent):
        with pytest.raises(InputError, match="must not overlap"):
            load(tones, DataSettings(test=str(test)))


def test_a_class_that_only_occurs_in_test_clips_is_an_error(tones, tmp_path):
    write_audio(tmp_path / "others" / "loud" / "0.wav")
    with pytest.raises(InputError, match=r"labels that are not in the training samples: \['loud'\]"):
        load(tones, DataSettings(test=str(tmp_path / "others")))


@pytest.mark.parametrize("kind", BROKEN_KINDS)
@pytest.mark.parametrize("data_settings", [DataSettings(), SHORT_CLIPS])
def test_broken_files_are_reported_and_skipped(tones, kind, data_settings, capsys):
    write_broken(tones / "low" / "00.wav", kind)
    data = load(tones, data_settings)
    message = capsys.readouterr().err
    assert "low/00.wav" in message and "skipped 1 of 13 audio files" in message
    assert (len(data.train), len(data.sample_names), data.train.labels.tolist()) == (12, 12, [0] * 6 + [1] * 6)
    assert data.train.inputs.abs().amax((1, 2)).min() > 10_000
    assert not any(name.endswith("00.wav") for name in data.sample_names)


def test_broken_files_are_counted_once(tones, capsys):
    write_broken(tones / "low" / "00.wav", "text")
    load(tones)
    assert capsys.readouterr().err.count("skipped 1 of 13 audio files") == 1


def test_broken_files_are_reported_when_the_cache_is_used_too(tones, capsys):
    write_broken(tones / "low" / "00.wav", "text")
    first = load(tones)
    capsys.readouterr()
    again = load(tones)
    message = capsys.readouterr().err
    assert torch.equal(first.train.inputs, again.train.inputs) and first.sample_names == again.sample_names
    assert message.count("skipped 1 of 13 audio files") == 1 and "low/00.wav" in message


def test_too_many_broken_files_are_an_error_and_leave_no_cache_file(tones, cache):
    for i, kind in enumerate(BROKEN_KINDS):
        write_broken(tones / "low" / f"broken {i}.wav", kind)
    with pytest.raises(InputError, match=r"6 audio files cannot be decoded; the last is .*broken 5\.wav"):
        load(tones)
    assert not list(cache.rglob("*.*"))


def test_a_folder_of_broken_files_only_is_an_error(tmp_path):
    write_broken(tmp_path / "a.wav", "text")
    with pytest.raises(InputError, match=r"none of the 1 audio files can be decoded; the first is .*a\.wav"):
        load(tmp_path)


def test_a_folder_of_images_and_audio_files_is_an_error(tones):
    Image.new("RGB", (8, 8)).save(tones / "low" / "cover.png")
    with pytest.raises(InputError, match="contains 1 images and 12 audio files; pass a folder that contains only one"):
        load(tones)


def test_a_folder_without_media_is_an_error_that_lists_the_suffixes(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(InputError, match=r"no images \(\.jpg, .*\) and no audio files \(\.wav, .*\.mp3.*\)"):
        load(tmp_path)


def test_a_folder_of_noise_only_is_an_error(tmp_path):
    write_audio(tmp_path / "_background_noise_" / "hiss.wav")
    with pytest.raises(InputError, match="no audio files"):
        load(tmp_path)


def test_a_test_folder_without_audio_files_is_an_error(tones, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty' contains no audio files \(\.wav, .*\)"):
        load(tones, DataSettings(test=str(tmp_path / "empty")))


NAMES = ["a b.wav", 'it\'s "so".wav', "two\nlines.wav", "tab\t.wav", "ü 語 🎤.wav", "%s{}$HOME.wav", "-rf.wav"]


@pytest.mark.parametrize("name", NAMES)
def test_unusual_file_names_are_kept(tmp_path, name):
    write_audio(tmp_path / name / name, tone(440, 0.5))
    data = load(tmp_path)
    assert data.sample_names == [str(tmp_path / name / name)] and list(data.class_names) == [name]
    assert data.train.inputs.abs().max() > 16_000


@pytest.mark.parametrize("data_settings", [DataSettings(), SHORT_CLIPS])
def test_file_names_that_are_not_utf8_are_escaped_in_output(tones, tmp_path, data_settings):
    os.rename(tones / "low" / "0.wav", os.fsencode(tones / "low") + b"/\xff0.wav")
    run = imix.pretrain(tones, QUICK, data_settings, progress=False)
    assert len(imix.embed(run, tones, tmp_path / "z.parquet")) == 12
    assert any("\\xff0.wav" in name for name in polars.read_parquet(tmp_path / "z.parquet")["file"])


def test_class_names_that_are_not_utf8_are_escaped_in_output(tmp_path):
    for name in (b"caf\xe9", b"the"):
        for i in range(2):
            write_audio(tmp_path / "tones" / os.fsdecode(name) / f"{i}.wav")
    run = imix.pretrain(tmp_path / "tones", QUICK, SHORT_CLIPS, progress=False)
    imix.embed(run, tmp_path / "tones", tmp_path / "z.parquet")
    assert polars.read_parquet(tmp_path / "z.parquet")["label"].to_list() == ["caf\\xe9"] * 2 + ["the"] * 2


def test_cyclic_and_broken_links_are_ignored(tones):
    (tones / "low" / "loop").symlink_to(tones)
    (tones / "low" / "itself.wav").symlink_to(tones / "low" / "itself.wav")
    (tones / "low" / "nowhere.wav").symlink_to(tones / "gone.wav")
    assert len(find_files(tones, AUDIO_SUFFIXES)) == 12


def test_hidden_files_and_pipes_are_ignored_and_links_are_followed(tones, tmp_path):
    write_audio(tones / ".trash" / "a.wav")
    write_audio(tones / "low" / "._0.wav")
    (tones / "low" / "folder.wav").mkdir()
    os.mkfifo(tones / "low" / "pipe.wav")
    write_audio(tmp_path / "elsewhere" / "0.wav")
    (tones / "mid").symlink_to(tmp_path / "elsewhere")
    data = load(tones)
    assert (len(data.train), list(data.class_names)) == (13, ["high", "low", "mid"])


def test_the_format_is_detected_by_content_not_by_suffix(tmp_path):
    write_audio(tmp_path / "a.mp3", tone(440, 1), format="WAV")
    write_audio(tmp_path / "b.wav", tone(440, 1), format="FLAC")
    clips = load(tmp_path).train.inputs
    assert all(fit_tone(clip, 440)[0] == pytest.approx(16_384, rel=0.01) for clip in clips[:, 0].double().numpy())


# --- the cache -------------------------------------------------------------------------------------------------------


@pytest.fixture
def forbid_decoding(monkeypatch):
    """A function that makes every later call of `decode` fail."""

    def fail(path, *_):
        raise AssertionError(f"{path} was decoded again")

    def forbid():
        monkeypatch.setattr(audio, "decode", fail)

    return forbid


def test_decoded_clips_are_cached(tones, forbid_decoding):
    first = load(tones)
    forbid_decoding()
    again = load(tones)
    assert torch.equal(first.train.inputs, again.train.inputs) and first.sample_names == again.sample_names


def test_another_number_of_mel_bands_uses_the_same_cached_clips(tones, forbid_decoding, cache):
    load(tones)
    forbid_decoding()
    assert load(tones, DataSettings(n_mels=64)).clip.n_mels == 64
    assert len(list(cache.rglob("*.npy"))) == 1


def test_another_length_or_sample_rate_is_decoded_again(tones, forbid_decoding):
    load(tones, DataSettings(seconds=0.5))
    forbid_decoding()
    for data_settings in (DataSettings(seconds=0.6), DataSettings(seconds=0.5, sample_rate=8000)):
        with pytest.raises(InputError, match="cannot be decoded"):
            load(tones, data_settings)


@pytest.mark.parametrize("change", ["modified", "added", "deleted", "renamed"])
def test_changed_files_are_decoded_again(tones, change):
    before = load(tones).train.inputs.clone()
    path = tones / "low" / "0.wav"
    if change == "modified":
        write_audio(path, tone(1234))
        os.utime(path, ns=(1, 1))
    elif change == "added":
        write_audio(tones / "low" / "6.wav")
    elif change == "deleted":
        path.unlink()
    else:
        path.rename(tones / "low" / "9.wav")
    data = load(tones)
    assert len(data.train) == {"added": 13, "deleted": 11}.get(change, 12) == len(data.sample_names)
    assert data.train.inputs.shape != before.shape or not torch.equal(data.train.inputs, before)


def test_clips_are_kept_in_memory_if_the_cache_is_not_writable(tones, cache, capsys):
    expected = load(tones).train.inputs.clone()
    shutil.rmtree(cache)
    cache.write_text("not a folder")
    capsys.readouterr()
    assert torch.equal(load(tones).train.inputs, expected)
    message = capsys.readouterr().err
    assert message.startswith("cannot write to ") and len(message.splitlines()) == 1
    assert "audio clips are kept in memory" in message


def test_a_cache_file_that_shrinks_after_loading_changes_nothing(tones, cache):
    """If the file were memory-mapped, reading the clips would kill the process."""
    for _ in range(2):  # decoded, then loaded
        data = load(tones)
        expected = data.train.inputs.clone()
        (array,) = cache.rglob("*.npy")
        os.truncate(array, 100)
        assert torch.equal(data.train.inputs, expected)
        assert torch.equal(load(tones).train.inputs, expected)


def test_clips_that_do_not_fit_into_memory_are_an_error(tones, monkeypatch):
    monkeypatch.setattr(os, "sysconf", lambda name: 300)
    with pytest.raises(InputError, match=r"12 clips would take 0\.0 GB of memory.*choose a smaller `seconds`"):
        load(tones)


DAMAGED_INDICES = {
    "invalid index": lambda text: "[0, 1",
    "empty index": lambda text: "",
    "null index": lambda text: "null",
    "nested index": lambda text: "[" * 100_000,
    "permuted index": lambda text: json.dumps([json.loads(text)[0][::-1], json.loads(text)[1]]),
    "shifted index": lambda text: json.dumps([[i - 1 for i in json.loads(text)[0]], json.loads(text)[1]]),
    "index of words": lambda text: json.dumps(["abcdefghijkl", json.loads(text)[1]]),
    "index without hash": lambda text: json.dumps(json.loads(text)[0]),
}


@pytest.mark.parametrize(
    "damage",
    ["empty", "cut", "text", "zip", "clips swapped", "too long", "Fortran order", "missing", *DAMAGED_INDICES],
)
def test_a_damaged_cache_is_rebuilt(tones, cache, damage):
    write_broken(tones / "low" / "00.wav", "text")  # so that the index leaves out a file
    expected = load(tones).train.inputs.clone()
    (array,), (index,) = cache.rglob("*.npy"), cache.rglob("*.json")
    content = array.read_bytes()
    clips = np.load(array)
    damaged = {
        "empty": b"",
        "cut": content[:-500],
        "text": b"no array",
        "zip": b"PK\x03\x04",
        "clips swapped": content[:128] + clips[::-1].tobytes(),
        "too long": content + bytes(10_000),
        "Fortran order": content.replace(b"False", b"True "),
    }
    if damage == "missing":
        array.unlink()
    elif damage in damaged:
        array.write_bytes(damaged[damage])
    else:
        index.write_text(DAMAGED_INDICES[damage](index.read_text()))
    data = load(tones)
    assert data.train.labels.tolist() == [0] * 6 + [1] * 6
    assert data.sample_names == [str(path) for path in find_files(tones, AUDIO_SUFFIXES) if path.name != "00.wav"]
    assert torch.equal(data.train.inputs, expected)
    assert torch.equal(torch.from_numpy(np.load(array))[:12], expected)


def test_interrupted_decoding_leaves_no_file(tones, cache, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(audio, "decode_all", stop)
    with pytest.raises(KeyboardInterrupt):
        load(tones)
    assert not list(cache.rglob("*.*"))


def test_int16_clips_become_floats_in_minus_1_to_1(tmp_path):
    write_audio(tmp_path / "a.wav", np.array([-32768, 32767, 16_384, 0] * 200, np.int16))
    batch = to_float(load(tmp_path, DataSettings(seconds=0.05)).train.sample(1))
    assert_close(batch[0, 0, :4], torch.tensor([-1, 32767 / 32768, 0.5, 0]))


def test_samples_above_full_scale_are_clipped(tmp_path):
    write_audio(tmp_path / "a.wav", np.array([2.0, -2.0] * 800), subtype="FLOAT")
    assert load(tmp_path).train.inputs[0, 0, :2].tolist() == [32767, -32768]


def test_a_file_that_becomes_readable_is_decoded_again(tmp_path, monkeypatch):
    for number in range(20):
        (tmp_path / "yes").mkdir(exist_ok=True)
        soundfile.write(tmp_path / "yes" / f"{number}.wav", np.random.default_rng(number).normal(0, 0.1, 800), 8000)
    path, original = tmp_path / "yes" / "3.wav", audio.decode

    def decode_or_fail(requested, *others):
        if requested == path:
            raise PermissionError("Permission denied")
        return original(requested, *others)

    with monkeypatch.context() as patched:
        patched.setattr(audio, "decode", decode_or_fail)
        assert len(load(tmp_path / "yes").train) == 19
    assert len(load(tmp_path / "yes").train) == 19  # from the cache
    path.chmod(0o600)
    assert len(load(tmp_path / "yes").train) == 20


def test_a_fraction_of_the_clips_keeps_names_and_noise(tones_with_noise):
    data = load(tones_with_noise, DataSettings(fraction=0.5))
    assert (len(data.train), len(data.sample_names), len(data.noise)) == (6, 6, 1)
    assert data.train.labels.tolist() == [0] * 3 + [1] * 3
