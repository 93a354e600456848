"""Folders of sounds: formats, rates and lengths; classes; broken files; the cache; Speech Commands; runs on them."""

import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import polars
import pytest
import soundfile
import torch
from PIL import Image
from torch import nn
from torch.testing import assert_close

import imix
from imix import InputError, Reading, Settings, mix
from imix.batch import as_floats
from imix.cli import main
from imix.data import load, sounds, speech_commands
from imix.data.mel import Clip, LogMel
from imix.data.sounds import decode, find_sounds
from imix.files import locked
from imix.train import checkpoint
from imix.train.views import make_view
from spoken import spoken_folder

RATE = 16_000
SHORT = Reading(seconds=0.25, rate=8000)  # 2000 samples, four frames
QUICK = Settings(epochs=2, batch_size=4, device="cpu")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache of its own for each test, in every module that knows the name."""
    place = tmp_path / "cache"
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("imix.data") and hasattr(module, "CACHE"):
            monkeypatch.setattr(module, "CACHE", place)
    return place


def tone(hertz=440.0, seconds=0.25, rate=RATE, amplitude=0.5):
    return amplitude * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)


def sound(path, wave=None, rate=RATE, subtype=None, format=None):
    """Write a sound, by default a tone that follows from its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    wave = tone(200 + sum(os.fsencode(path.name)) % 50 * 40, rate=rate) if wave is None else wave
    with open(path, "wb") as file:  # soundfile itself cannot open every name
        soundfile.write(file, wave, rate, subtype, format=format or path.suffix[1:].upper())
    return path


def heard(wave, hertz, rate=RATE):
    """Amplitude of a tone in a wave, and the deviation of what is left without it."""
    t = np.arange(len(wave)) / rate
    parts = np.stack([np.sin(2 * np.pi * hertz * t), np.cos(2 * np.pi * hertz * t)], 1)
    fit, *_ = np.linalg.lstsq(parts, wave, rcond=None)
    return np.hypot(*fit), np.std(wave - parts @ fit)


@pytest.fixture
def words(tmp_path):
    """Twelve clips of a quarter of a second in two classes, which are told apart by their pitch."""
    for i in range(6):
        sound(tmp_path / "words" / "low" / f"{i}.wav", tone(200 + 10 * i))
        sound(tmp_path / "words" / "high" / "more" / f"{i}.flac", tone(3000 + 50 * i))
    return tmp_path / "words"


@pytest.fixture
def noisy(words):
    """The same, with half a second of noise."""
    sound(words / "_background_noise_" / "hiss.wav", np.random.default_rng(0).normal(0, 0.1, RATE // 2))
    return words


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "subtype", "rest"),
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
def test_every_format_gives_the_sound_that_was_written(tmp_path, name, subtype, rest):
    container = {".ogg": "OGG", ".aif": "AIFF"}.get((tmp_path / name).suffix)
    sound(tmp_path / name, tone(440, 2), subtype=subtype, format=container)
    amplitude, left = heard(decode(tmp_path / name, RATE, RATE), 440)
    assert amplitude == pytest.approx(0.5, rel=0.02) and left < rest


def test_opus_gives_the_sound_that_was_written(tmp_path):
    sound(tmp_path / "a.opus", tone(440, 2, 48_000), rate=48_000, subtype="OPUS", format="OGG")
    amplitude, left = heard(decode(tmp_path / "a.opus", RATE, RATE), 440)
    assert amplitude == pytest.approx(0.5, rel=0.02) and left < 0.02


def test_samples_are_the_file_s_to_the_bit(tmp_path):
    wave = np.random.default_rng(0).integers(-32768, 32768, 4000, dtype=np.int16)
    sound(tmp_path / "a.wav", wave)
    assert np.array_equal(load(tmp_path).train.inputs[0, 0, :4000].numpy(), wave)


@pytest.mark.parametrize("suffix", ["wav", "flac", "ogg"])
def test_channels_are_mixed_down_to_their_mean(tmp_path, suffix):
    channels = np.stack([tone(300, 1), tone(300, 1, amplitude=0.1), tone(300, 1, amplitude=0)], 1)
    sound(tmp_path / f"a.{suffix}", channels)
    assert heard(decode(tmp_path / f"a.{suffix}", RATE, RATE), 300)[0] == pytest.approx(0.2, rel=0.02)


@pytest.mark.parametrize("rate", [4000, 8000, 11_025, 22_050, 44_100, 48_000, 96_000, 192_000, 12_345])
def test_a_tone_keeps_its_pitch_and_amplitude_at_another_rate(tmp_path, rate):
    sound(tmp_path / "a.wav", tone(440, 1.2, rate), rate=rate, subtype="FLOAT")
    wave = decode(tmp_path / "a.wav", RATE, RATE)
    amplitude, left = heard(wave[400:-400], 440)
    assert (len(wave), wave.dtype) == (RATE, np.float32)
    assert amplitude == pytest.approx(0.5, rel=0.01) and left < 0.002


def test_what_is_too_high_for_the_rate_is_taken_away_and_not_folded_back(tmp_path):
    sound(tmp_path / "a.wav", tone(9000, 1, 48_000), rate=48_000)
    assert np.abs(decode(tmp_path / "a.wav", 8000, 8000)[200:-200]).max() < 0.005


def test_shorter_clips_are_followed_by_silence(tmp_path):
    wave = sound(tmp_path / "a.wav", tone(seconds=0.5))
    clip = decode(wave, RATE, RATE)
    assert_close(clip[:8000], soundfile.read(wave, dtype="float32")[0])
    assert len(clip) == RATE and not clip[8000:].any()


@pytest.mark.parametrize("suffix", ["wav", "flac", "aiff", "au", "caf"])
def test_longer_clips_are_cut_to_their_middle(tmp_path, suffix):
    wave = np.arange(24_000, dtype=np.int16)
    sound(tmp_path / f"a.{suffix}", wave)
    assert np.array_equal(np.round(decode(tmp_path / f"a.{suffix}", RATE, 8000) * 32768), wave[8000:16_000])


@pytest.mark.parametrize(("suffix", "rate"), [("wav", 48_000), ("mp3", 44_100), ("ogg", 44_100), ("flac", 8000)])
def test_the_middle_is_the_middle_at_any_rate_and_in_any_format(tmp_path, suffix, rate):
    wave = tone(500, 5, rate)
    wave[: 2 * rate] = wave[3 * rate :] = 0
    sound(tmp_path / f"a.{suffix}", wave, rate)
    clip = decode(tmp_path / f"a.{suffix}", RATE, 2 * RATE)
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
def test_the_middle_sounds_as_it_does_in_the_whole(tmp_path, name, subtype, rate):
    path = tmp_path / name
    container = {".ogg": "OGG", ".opus": "OGG"}.get(path.suffix)
    sound(path, tone(440, 3, rate) + tone(1000, 3, rate, 0.1), rate, subtype, container)
    whole = soundfile.read(path, dtype="float32")[0]
    start = (len(whole) - rate) // 2
    assert_close(decode(path, rate, rate), whole[start : start + rate], atol=0.005, rtol=0)


@pytest.mark.parametrize(("name", "subtype"), [("a.wav", "GSM610"), ("a.au", "G721_32"), ("a.au", "G723_24")])
@pytest.mark.parametrize("seconds", [0.5, 3])
def test_a_format_in_which_one_cannot_jump_is_read(tmp_path, name, subtype, seconds):
    sound(tmp_path / name, tone(440, seconds), subtype=subtype)
    assert decode(tmp_path / name, RATE, 8000).std() == pytest.approx(0.5 / np.sqrt(2), rel=0.1)


@pytest.mark.parametrize(
    ("reading", "shape", "picture"),
    [
        (Reading(), (1, 4800), (1, 32, 10)),
        (Reading(seconds=1.0), (1, 16_000), (1, 32, 32)),
        (Reading(rate=8000), (1, 2400), (1, 32, 5)),
        (Reading(seconds=0.5, rate=44_100, mels=64), (1, 22_050), (1, 64, 44)),
    ],
)
def test_clips_are_as_long_fast_and_tall_as_set(words, reading, shape, picture):
    data = load(words, reading)
    assert (data.train.shape, data.clip.shape, data.train.inputs.dtype) == (shape, picture, torch.int16)
    assert LogMel(data.clip)(as_floats(data.train.sample(2))).shape == (2, *picture)


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
def test_by_default_clips_are_as_long_as_nine_of_ten_are_at_most(tmp_path, lengths, seconds):
    for i, length in enumerate(lengths):
        sound(tmp_path / f"{i}.wav", np.zeros(round(length * 1000)), rate=1000)
    assert load(tmp_path, Reading(rate=8000)).reading.seconds == seconds


@pytest.mark.parametrize("seconds", [0.001, 0.03])
def test_clips_shorter_than_a_frame_are_refused(words, seconds):
    with pytest.raises(InputError, match=r"clips of \d+ samples are too short; give at least 512"):
        load(words, Reading(seconds=seconds))


@pytest.mark.parametrize(
    "reading", [{"seconds": 0}, {"seconds": -1}, {"seconds": float("nan")}, {"rate": 0}, {"mels": 0}]
)
def test_lengths_rates_and_bands_are_above_0(reading):
    with pytest.raises(InputError, match=r"must be above 0; got|must be a number; got nan"):
        Reading(**reading)


@pytest.mark.parametrize("seconds", [float("inf"), 1e300, 1e9])
def test_a_length_that_no_machine_holds_is_refused_in_words(words, seconds):
    with pytest.raises(InputError, match="seconds"):
        load(words, Reading(seconds=seconds))


# --- folders ---------------------------------------------------------------------------------------------------------


def test_subfolders_are_classes_and_files_have_names(words):
    data = load(words)
    assert (len(data.train), list(data.class_names), data.augment) == (12, ["high", "low"], "speech")
    assert data.train.labels.tolist() == [0] * 6 + [1] * 6
    assert data.names[0].endswith("high/more/0.flac") and data.names[-1].endswith("low/5.wav")


def test_there_are_no_labels_where_a_file_is_in_no_subfolder(words, capsys):
    sound(words / "stray.wav")
    assert load(words).train.labels is None
    assert "no labels, since 'stray.wav'" in capsys.readouterr().err


def test_background_noise_is_noise_and_no_sample(noisy):
    data = load(noisy)
    assert (len(data.train), list(data.class_names)) == (12, ["high", "low"])
    assert not any(name.endswith("hiss.wav") for name in data.names)
    assert (data.noise.shape, data.noise.dtype) == ((1, 1, 4800), torch.int16)


def test_noise_is_cut_into_clips_and_padded_where_it_is_shorter(words):
    sound(words / "_background_noise_" / "long.wav", np.full(10_000, 0.5))
    sound(words / "_background_noise_" / "short.wav", np.full(1000, 0.25))
    noise = as_floats(load(words).noise)
    assert noise.shape == (3, 1, 4800) and (noise[:2] == 0.5).all()
    assert (noise[2, 0, :1000] == 0.25).all() and not noise[2, 0, 1000:].any()


@pytest.mark.parametrize("content", [b"", b"no sound at all"])
def test_broken_noise_is_named_and_left_out(noisy, content, capsys):
    (noisy / "_background_noise_" / "broken.wav").write_bytes(content)
    assert len(load(noisy).noise) == 1
    assert "broken.wav" in capsys.readouterr().err


def test_without_recordings_of_noise_there_is_none(words):
    (words / "_background_noise_").mkdir()
    (words / "_background_noise_" / "README.md").write_text("where it is from")
    assert load(words).noise is None


def test_test_clips_are_in_a_folder_of_their_own(words, tmp_path):
    for name in ("low", "high"):
        sound(tmp_path / "others" / name / "0.wav", tone(440, 2, 8000), rate=8000)
    data = load(words, Reading(test=str(tmp_path / "others")))
    assert (len(data.test), data.test.shape, data.test.labels.tolist()) == (2, (1, 4800), [0, 1])
    assert len(data.names) == 14 and data.names[12].endswith("others/high/0.wav")


def test_test_clips_within_the_training_folder_are_refused(words):
    for test in (words, words / "low", words.parent):
        with pytest.raises(InputError, match="must lie apart"):
            load(words, Reading(test=str(test)))


def test_test_clips_of_a_class_that_is_not_known_are_refused(words, tmp_path):
    sound(tmp_path / "others" / "loud" / "0.wav")
    with pytest.raises(InputError, match=r"labels that the training samples have not: \['loud'\]"):
        load(words, Reading(test=str(tmp_path / "others")))


def broken(path, kind):
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "text":
        path.write_bytes(b"this is no sound\n" * 100)
    elif kind == "zero bytes":
        path.write_bytes(b"")
    elif kind == "no samples":
        sound(path, np.zeros(0))
    elif kind == "cut within its header":
        path.write_bytes(sound(path).read_bytes()[:20])
    else:
        sound(path, np.array([0.1, float(kind), 0.2] * 100), subtype="FLOAT")
    return path


KINDS = ["text", "zero bytes", "no samples", "cut within its header", "nan", "inf"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reading", [Reading(), SHORT])
def test_a_broken_file_is_named_counted_and_left_out(words, kind, reading, capsys):
    broken(words / "low" / "00.wav", kind)
    data = load(words, reading)
    said = capsys.readouterr().err
    assert "low/00.wav" in said and "1 of 13 sounds were left out" in said
    assert (len(data.train), len(data.names), data.train.labels.tolist()) == (12, 12, [0] * 6 + [1] * 6)
    assert data.train.inputs.abs().amax((1, 2)).min() > 10_000
    assert not any(name.endswith("00.wav") for name in data.names)


def test_broken_files_are_counted_once(words, capsys):
    broken(words / "low" / "00.wav", "text")
    load(words)
    assert capsys.readouterr().err.count("1 of 13 sounds were left out") == 1


def test_a_broken_file_is_named_and_left_out_when_it_comes_from_the_cache_too(words, capsys):
    broken(words / "low" / "00.wav", "text")
    first = load(words)
    capsys.readouterr()
    again = load(words)
    said = capsys.readouterr().err
    assert torch.equal(first.train.inputs, again.train.inputs) and first.names == again.names
    assert said.count("1 of 13 sounds were left out") == 1 and "low/00.wav" in said


def test_more_than_a_few_broken_files_stop_the_run_and_leave_nothing_behind(words, cache):
    for number, kind in enumerate(KINDS):
        broken(words / "low" / f"broken {number}.wav", kind)
    with pytest.raises(InputError, match=r"6 sounds cannot be decoded; the last is .*broken 5\.wav"):
        load(words)
    assert not list((cache / "clips").iterdir())


def test_a_folder_of_nothing_but_broken_files_is_refused(tmp_path):
    broken(tmp_path / "a.wav", "text")
    with pytest.raises(InputError, match=r"none of the 1 sounds can be decoded; the first is .*a\.wav"):
        load(tmp_path)


def test_a_folder_of_images_and_sounds_is_refused(words):
    Image.new("RGB", (8, 8)).save(words / "low" / "cover.png")
    with pytest.raises(InputError, match="holds 1 images and 12 sounds; give a folder of one kind"):
        load(words)


def test_a_folder_of_neither_is_refused_with_what_would_do(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(InputError, match=r"no images \(\.jpg, .*\) and no sounds \(\.wav, .*\.mp3.*\) in"):
        load(tmp_path)


def test_a_folder_of_noise_alone_is_refused(tmp_path):
    sound(tmp_path / "_background_noise_" / "hiss.wav")
    with pytest.raises(InputError, match="no sounds"):
        load(tmp_path)


def test_a_test_folder_without_sounds_is_refused(words, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"no sounds \(\.wav, .*\) in .*empty"):
        load(words, Reading(test=str(tmp_path / "empty")))


NAMES = ["a b.wav", 'it\'s "so".wav', "two\nlines.wav", "tab\t.wav", "ü 語 🎤.wav", "%s{}$HOME.wav", "-rf.wav"]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_taken_as_they_are(tmp_path, name):
    sound(tmp_path / name / name, tone(440, 0.5))
    data = load(tmp_path)
    assert data.names == [str(tmp_path / name / name)] and list(data.class_names) == [name]
    assert data.train.inputs.abs().max() > 16_000


@pytest.mark.parametrize("reading", [Reading(), SHORT])
def test_a_name_that_is_no_text_is_read_and_written_as_far_as_it_goes(words, tmp_path, reading):
    os.rename(words / "low" / "0.wav", os.fsencode(words / "low") + b"/\xff0.wav")
    run = imix.pretrain(words, QUICK, reading, progress=False)
    assert len(imix.embed(run, words, tmp_path / "z.parquet")) == 12
    assert any("\\xff0.wav" in name for name in polars.read_parquet(tmp_path / "z.parquet")["file"])


def test_a_class_whose_name_is_no_text_is_written_as_far_as_it_goes(tmp_path):
    for name in (b"caf\xe9", b"the"):
        for i in range(2):
            sound(tmp_path / "words" / os.fsdecode(name) / f"{i}.wav")
    run = imix.pretrain(tmp_path / "words", QUICK, SHORT, progress=False)
    imix.embed(run, tmp_path / "words", tmp_path / "z.parquet")
    assert polars.read_parquet(tmp_path / "z.parquet")["label"].to_list() == ["caf\\xe9"] * 2 + ["the"] * 2


def test_links_that_go_in_circles_are_not_followed(words):
    (words / "low" / "loop").symlink_to(words)
    (words / "low" / "itself.wav").symlink_to(words / "low" / "itself.wav")
    (words / "low" / "nowhere.wav").symlink_to(words / "gone.wav")
    assert len(find_sounds(words)) == 12


def test_what_is_hidden_or_no_file_does_not_count_and_links_do(words, tmp_path):
    sound(words / ".trash" / "a.wav")
    sound(words / "low" / "._0.wav")
    (words / "low" / "folder.wav").mkdir()
    os.mkfifo(words / "low" / "pipe.wav")
    sound(tmp_path / "elsewhere" / "0.wav")
    (words / "mid").symlink_to(tmp_path / "elsewhere")
    data = load(words)
    assert (len(data.train), list(data.class_names)) == (13, ["high", "low", "mid"])


def test_what_a_file_is_counts_and_not_what_its_name_says(tmp_path):
    sound(tmp_path / "a.mp3", tone(440, 1), format="WAV")
    sound(tmp_path / "b.wav", tone(440, 1), format="FLAC")
    clips = load(tmp_path).train.inputs
    assert all(heard(clip, 440)[0] == pytest.approx(16_384, rel=0.01) for clip in clips[:, 0].double().numpy())


# --- the cache -------------------------------------------------------------------------------------------------------


@pytest.fixture
def forget(monkeypatch):
    """Nothing can be decoded from now on."""

    def refuse(path, *_):
        raise AssertionError(f"{path} is decoded")

    def now():
        monkeypatch.setattr(sounds, "decode", refuse)

    return now


def test_what_was_decoded_once_is_not_decoded_again(words, forget):
    first = load(words)
    forget()
    again = load(words)
    assert torch.equal(first.train.inputs, again.train.inputs) and first.names == again.names


def test_other_mel_bands_take_the_same_array(words, forget, cache):
    load(words)
    forget()
    assert load(words, Reading(mels=64)).clip.mels == 64
    assert len(list(cache.rglob("*.npy"))) == 1


def test_another_length_or_rate_is_decoded_anew(words, forget):
    load(words, Reading(seconds=0.5))
    forget()
    for reading in (Reading(seconds=0.6), Reading(seconds=0.5, rate=8000)):
        with pytest.raises(InputError, match="cannot be decoded"):
            load(words, reading)


@pytest.mark.parametrize("change", ["content", "new", "gone", "renamed"])
def test_a_change_among_the_files_is_noticed(words, change):
    before = load(words).train.inputs.clone()
    path = words / "low" / "0.wav"
    if change == "content":
        sound(path, tone(1234))
        os.utime(path, ns=(1, 1))
    elif change == "new":
        sound(words / "low" / "6.wav")
    elif change == "gone":
        path.unlink()
    else:
        path.rename(words / "low" / "9.wav")
    data = load(words)
    assert len(data.train) == {"new": 13, "gone": 11}.get(change, 12) == len(data.names)
    assert data.train.inputs.shape != before.shape or not torch.equal(data.train.inputs, before)


def test_where_the_cache_cannot_be_written_clips_are_kept_in_memory(words, cache, capsys):
    expected = load(words).train.inputs.clone()
    shutil.rmtree(cache)
    cache.write_text("a file where a folder should be")
    capsys.readouterr()
    assert torch.equal(load(words).train.inputs, expected)
    said = capsys.readouterr().err
    assert said.startswith("clips are kept in memory, since ") and len(said.splitlines()) == 1


def test_room_for_all_clips_is_taken_before_they_are_decoded(words, cache, monkeypatch):
    """Else a disk that becomes full kills the process without a word: the array is written through memory."""
    sizes = []
    original = sounds.decode_all

    def watched(*arguments):
        sizes.extend((path.stat().st_blocks * 512, path.stat().st_size) for path in cache.rglob(".*.npy.*"))
        return original(*arguments)

    monkeypatch.setattr(sounds, "decode_all", watched)
    load(words, Reading(seconds=10.0))
    ((taken, size),) = sizes
    assert taken >= size


@pytest.mark.parametrize("damage", ["empty", "cut", "text", "zip", "other numbers", "empty numbers", "no list", "gone"])
def test_a_damaged_cache_is_made_anew(words, cache, damage):
    expected = load(words).train.inputs.clone()
    (array,), (numbers,) = cache.rglob("*.npy"), cache.rglob("*.json")
    content = array.read_bytes()
    array.unlink()  # and not written into: it is mapped
    if damage in ("empty", "cut", "text", "zip"):
        array.write_bytes({"empty": b"", "cut": content[:-500], "text": b"no array", "zip": b"PK\x03\x04"}[damage])
    elif damage != "gone":
        array.write_bytes(content)
        numbers.write_text({"other numbers": "[0, 1", "empty numbers": "", "no list": "null"}[damage])
    assert torch.equal(load(words).train.inputs, expected)
    assert torch.equal(torch.from_numpy(np.load(array)), expected)


def test_a_decoding_that_is_stopped_leaves_no_file(words, cache, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(sounds, "decode_all", stop)
    with pytest.raises(KeyboardInterrupt):
        load(words)
    assert not list((cache / "clips").iterdir())


def test_sixteen_bits_are_floats_up_to_1_for_encoders(tmp_path):
    sound(tmp_path / "a.wav", np.array([-32768, 32767, 16_384, 0] * 200, np.int16))
    batch = as_floats(load(tmp_path, Reading(seconds=0.05)).train.sample(1))
    assert_close(batch[0, 0, :4], torch.tensor([-1, 32767 / 32768, 0.5, 0]))


def test_what_is_louder_than_full_scale_is_clipped_and_does_not_wrap(tmp_path):
    sound(tmp_path / "a.wav", np.array([2.0, -2.0] * 800), subtype="FLOAT")
    assert load(tmp_path).train.inputs[0, 0, :2].tolist() == [32767, -32768]


# --- Speech Commands -------------------------------------------------------------------------------------------------


def commands(folder, clips=6):
    """A small folder in the official layout: of each word the first clip is for testing, the second for validation."""
    lists = {"testing_list.txt": [], "validation_list.txt": []}
    for word in ("yes", "no", "go", "bed", "marvin"):
        for i in range(clips):
            sound(folder / word / f"{i}_nohash_0.wav", tone(300 + 10 * i, 0.9))
        lists["testing_list.txt"].append(f"{word}/0_nohash_0.wav")
        lists["validation_list.txt"].append(f"{word}/1_nohash_0.wav")
    for name, lines in lists.items():
        (folder / name).write_text("\n".join(lines) + "\n")
    sound(folder / "_background_noise_" / "hiss.wav", np.random.default_rng(0).normal(0, 0.1, 3 * RATE))
    (folder / "_background_noise_" / "README.md").write_text("where it is from")
    return folder


def test_speech_commands_has_the_official_parts(tmp_path):
    data = load("speech_commands", Reading(data_dir=str(commands(tmp_path / "data"))))
    assert (len(data.train), len(data.test), data.train.shape) == (20 + 2, 5, (1, RATE))
    assert not any("/1_nohash" in name for name in data.names)
    assert all("/0_nohash" in name for name in data.names[22:])
    assert not any("/0_nohash" in name for name in data.names[:22])


def test_other_words_of_speech_commands_are_unknown(tmp_path):
    data = load("speech_commands", Reading(data_dir=str(commands(tmp_path / "data"))))
    assert list(data.class_names) == ["go", "no", "silence", "unknown", "yes"]
    for part, names in ((data.train, data.names[:20]), (data.test, data.names[22:])):
        said = [data.class_names[label] for label in part.labels.tolist()]
        folders = [name.split("/")[-2] for name in names]
        assert said[: len(names)] == [word if word in ("yes", "no", "go") else "unknown" for word in folders]


def test_a_tenth_as_many_silent_clips_are_added_to_training_alone(tmp_path):
    data = load("speech_commands", Reading(data_dir=str(commands(tmp_path / "data", clips=9))))
    silent = ~data.train.inputs.any(2)[:, 0]
    assert silent.sum() == int(0.1 * 35) == 3
    assert [data.class_names[label] for label in data.train.labels[silent]] == ["silence"] * 3
    assert data.test.inputs.any(2).all() and list(data.class_names).index("silence") not in data.test.labels
    assert data.names[35:38] == ["silence"] * 3


def test_silent_clips_follow_the_good_ones_where_one_is_broken(tmp_path):
    folder = commands(tmp_path / "data")
    broken(folder / "bed" / "3_nohash_0.wav", "text")
    for _ in range(2):  # decoded, and from the cache
        data = load("speech_commands", Reading(data_dir=str(folder)))
        silent = [not clip.any() for clip in data.train.inputs]
        assert silent == [name == "silence" for name in data.names[:21]] and sum(silent) == 2


def test_speech_commands_has_its_noise(tmp_path):
    data = load("speech_commands", Reading(data_dir=str(commands(tmp_path / "data"))))
    assert (data.noise.shape, data.augment, data.clip) == ((3, 1, RATE), "speech", Clip())


@pytest.mark.parametrize("name", ["speech_commands_v0.01", "speech_commands_v0.02"])
def test_the_folder_of_speech_commands_or_the_one_around_it_will_do(tmp_path, name):
    commands(tmp_path / "data" / name)
    called = "speech_commands" if name.endswith("1") else name
    assert len(load(called, Reading(data_dir=str(tmp_path / "data"))).test) == 5


def test_a_folder_that_is_not_speech_commands_is_refused(words, tmp_path):
    with pytest.raises(
        InputError, match=r"no testing_list.txt in .*; give the folder of speech_commands_v0.01 with --"
    ):
        load("speech_commands", Reading(data_dir=str(words)))
    with pytest.raises(InputError, match=r"no testing_list.txt in .*nowhere"):
        load("speech_commands", Reading(data_dir=str(tmp_path / "nowhere")))


def test_speech_commands_without_the_files_of_its_list_is_refused(tmp_path):
    folder = commands(tmp_path / "data")
    (folder / "testing_list.txt").write_text("yes/elsewhere.wav\n")
    with pytest.raises(InputError, match="has 25 training and 0 test clips of its lists"):
        load("speech_commands", Reading(data_dir=str(folder)))


def test_a_run_on_speech_commands_takes_a_folder_of_other_lengths(tmp_path, words):
    reading = Reading(data_dir=str(commands(tmp_path / "data")))
    run = imix.pretrain("speech_commands", QUICK, reading, progress=False)
    assert imix.embed(run, words).shape == (12, 128)


class Answer(io.BytesIO):
    def __init__(self, content):
        super().__init__(content)
        self.headers = {"Content-Length": str(len(content))}


@pytest.fixture
def served(tmp_path, monkeypatch):
    """Serve an archive in place of the official one; gives the addresses that were asked for."""
    asked = []

    def serve(content, checksum=None):
        def answer(address, **_):
            asked.append(address)
            return Answer(content)

        monkeypatch.setattr(urllib.request, "urlopen", answer)
        if checksum is not None:
            monkeypatch.setitem(speech_commands.CHECKSUMS, "speech_commands_v0.01", checksum)
        return asked

    return serve


def packed(folder, extra=None):
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:gz") as tar:
        tar.add(folder, arcname=".")
        if extra is not None:
            tar.addfile(tarfile.TarInfo(extra))
    return held.getvalue()


def test_speech_commands_is_fetched_once_and_checked(tmp_path, served, cache):
    archive = packed(commands(tmp_path / "data"))
    asked = served(archive, hashlib.sha256(archive).hexdigest())
    assert len(load("speech_commands").train) == len(load("speech_commands").train) == 22
    assert asked == ["http://download.tensorflow.org/data/speech_commands_v0.01.tar.gz"]
    assert sorted(path.name for path in cache.iterdir()) == ["clips", "speech_commands_v0.01"]


def test_one_process_at_a_time_looks_for_the_archive_and_fetches_it(tmp_path, cache, monkeypatch):
    def fetch(archive, folder):
        with pytest.raises(BlockingIOError), locked(cache, wait=False):
            pass
        commands(folder)

    monkeypatch.setattr(speech_commands, "_fetch", fetch)
    assert len(load("speech_commands").train) == 22


def test_what_another_process_fetched_meanwhile_is_not_fetched_again(tmp_path, served, cache, monkeypatch):
    @contextmanager
    def waiting(folder):
        commands(folder / "speech_commands_v0.01")
        yield

    asked = served(b"")
    monkeypatch.setattr(speech_commands, "locked", waiting)
    assert len(load("speech_commands").train) == 22 and not asked


def test_a_cache_that_cannot_be_made_is_said_with_what_to_do(cache):
    cache.write_text("a file in its place")
    with pytest.raises(InputError, match=r"cannot fetch .*unpack .*tar\.gz yourself"):
        load("speech_commands")


def test_an_archive_with_another_checksum_is_refused_and_nothing_left_behind(tmp_path, served, cache):
    served(packed(commands(tmp_path / "data")))
    with pytest.raises(InputError, match=r"what was fetched for speech_commands_v0\.01 is damaged; try again"):
        load("speech_commands")
    assert not list(cache.iterdir())


@pytest.mark.parametrize("name", ["../outside.txt", "yes/../../outside.txt", "/../outside.txt"])
def test_an_archive_that_reaches_out_of_its_folder_is_refused(tmp_path, served, cache, name):
    archive = packed(commands(tmp_path / "data"), name)
    served(archive, hashlib.sha256(archive).hexdigest())
    with pytest.raises(InputError, match=r"outside\.txt|speech_commands_v0\.01"):
        load("speech_commands")
    assert not list(cache.iterdir()) and not list(tmp_path.glob("outside.txt"))


def test_an_archive_that_is_none_is_refused(served, cache):
    served(b"no archive", hashlib.sha256(b"no archive").hexdigest())
    with pytest.raises(InputError, match=r"speech_commands_v0\.01"):
        load("speech_commands")
    assert not list(cache.iterdir())


def test_without_a_network_it_is_said_what_to_do(monkeypatch, cache):
    def fail(*_, **__):
        raise urllib.error.URLError("no network")

    monkeypatch.setattr(urllib.request, "urlopen", fail)
    with pytest.raises(
        InputError, match=r"cannot fetch .*no network.*unpack .*tar\.gz yourself and give its .*--data-d"
    ):
        load("speech_commands")
    assert not list(cache.iterdir())


# --- runs ------------------------------------------------------------------------------------------------------------


def run_cli(cache, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "imix", *map(str, arguments)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "IMIX_CACHE": str(cache), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )


WORDS = ["yes", "no", "up", "go", "six"]


@pytest.mark.slow
def test_spoken_words_from_a_folder_to_vectors_without_any_flag(tmp_path, cache):
    spoken, run = tmp_path / "spoken", tmp_path / "run"
    spoken_folder(spoken, WORDS, 4)
    done = run_cli(cache, "pretrain", spoken, "--out", run)
    assert done.returncode == 0, done.stderr
    found = run_cli(cache, "evaluate", run, "--protocol", "knn")
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith(f"knn on {spoken}: ") and "4 held out of train" in found.stdout
    done = run_cli(cache, "embed", run, spoken, "--out", tmp_path / "z.parquet")
    assert done.stdout == f"20 vectors of 128 features written to {tmp_path / 'z.parquet'}\n"
    table = polars.read_parquet(tmp_path / "z.parquet")
    assert table["file"].to_list() == [str(path) for path in sorted(spoken.rglob("*.wav"))]
    assert table["label"].to_list() == [path.split("/")[-2] for path in table["file"]]


@pytest.mark.slow
def test_spoken_words_are_told_apart(tmp_path):
    spoken_folder(tmp_path / "spoken", WORDS, 24)
    run = imix.pretrain(tmp_path / "spoken", Settings(epochs=10, batch_size=40, device="cpu"), progress=False)
    for protocol, least in (("linear", 0.8), ("knn", 0.3)):  # of five words, after thirty steps
        found = imix.evaluate(run, tmp_path / "spoken", protocol)
        assert found.accuracy >= least and found.constants["test"] == "24 held out of train"


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
def test_complaints_about_sounds_are_one_line(tmp_path, words, flags, monkeypatch, capsys):
    monkeypatch.chdir(words)
    command = ["imix", "pretrain", words, *flags, "--out", tmp_path / "run", "--device", "cpu"]
    monkeypatch.setattr(sys, "argv", [str(part) for part in command])
    with pytest.raises(SystemExit) as leaving:
        main()
    captured = capsys.readouterr()
    assert (leaving.value.code, captured.out, len(captured.err.splitlines())) == (2, "", 1), captured.err
    assert not (tmp_path / "run").exists()


def test_the_encoder_takes_waveforms(words, tmp_path):
    run = imix.pretrain(words, QUICK, SHORT, out=tmp_path / "run", progress=False)
    waves = as_floats(load(words, SHORT).train.inputs)
    assert waves.shape == (12, 1, 2000) and -1 <= waves.min() < waves.max() <= 1
    with torch.no_grad():
        vectors = imix.load_encoder(tmp_path / "run")(waves)
    assert_close(vectors.numpy(), imix.embed(run, words))
    assert_close(vectors.numpy(), imix.embed(tmp_path / "run", waves.numpy()))


def test_later_clips_are_brought_to_the_run_s_length_and_rate(words, tmp_path):
    run = imix.pretrain(words, QUICK, Reading(rate=8000, mels=20), progress=False)
    assert (run.reading.seconds, run.reading.rate, run.reading.mels) == (0.3, 8000, 20)
    for i in range(3):
        sound(tmp_path / "new" / f"{i}.ogg", tone(300, 1 + i, 44_100), rate=44_100)
    assert imix.embed(run, tmp_path / "new").shape == (3, 128)


class Eye(nn.Module):
    """An encoder that remembers what it saw in training."""

    width = 8

    def __init__(self):
        super().__init__()
        self.seen = []
        self.layer = nn.LazyLinear(8)

    def forward(self, x):
        if self.training:
            self.seen.append(x.detach().clone())
        return self.layer(x.flatten(1))


def eye(words, reading=SHORT):
    clip = load(words, reading).clip
    made = Eye()
    made.layer = nn.Linear(clip.mels * clip.frames, 8)
    return made


@pytest.mark.parametrize("mixed", [{"mix": "mixup"}, {"mix": "cutmix"}, {"mix": "none"}, {"input_mix": 2}])
def test_pictures_are_mixed(words, mixed):
    encoder = eye(words)
    imix.pretrain(words, replace(QUICK, **mixed), SHORT, encoder=encoder, progress=False)
    assert encoder.seen[0].shape == (8, 1, 32, 4)
    assert encoder.seen[0].max() <= 0 and encoder.seen[0].min() >= -80 - 1e-3


def lam_of(share, monkeypatch):
    """Mix each sample with the one before it, of which it gets what `share` leaves."""
    monkeypatch.setattr(
        mix, "_dirichlet", lambda n, parts, alpha, like: torch.tensor([[share, 1 - share]]).expand(n, 2)
    )
    monkeypatch.setattr(mix, "_permutation", lambda n, device: torch.arange(n).roll(1))


@pytest.mark.parametrize("waveforms", [True, False])
def test_without_views_the_encoder_sees_the_mix_itself(words, monkeypatch, waveforms):
    lam_of(0.7, monkeypatch)
    data, encoder = load(words, SHORT), eye(words)
    settings = replace(QUICK, epochs=1, batch_size=12, augment="none", mix_waveforms=waveforms)
    imix.pretrain(words, settings, SHORT, encoder=encoder, progress=False)
    waves, see = as_floats(data.train.inputs), LogMel(data.clip)
    mixed, plain = encoder.seen[0].split(12)
    order = (plain[:, None] - see(waves)[None]).abs().amax((2, 3, 4)).argmin(1)
    assert sorted(order.tolist()) == list(range(12))
    waves = waves[order]
    assert_close(plain, see(waves), atol=1e-3, rtol=0)
    other = waves.roll(1, 0)
    expected = see(0.7 * waves + 0.3 * other) if waveforms else 0.7 * see(waves) + 0.3 * see(other)
    assert_close(mixed, expected, atol=1e-2, rtol=0)


@pytest.mark.parametrize("more", [{}, {"input_mix": 2}, {"method": "byol"}, {"mix": "none"}, {"method": "supervised"}])
def test_mixing_waveforms_trains(noisy, tmp_path, more):
    settings = replace(QUICK, mix_waveforms=True, **more)
    run = imix.pretrain(noisy, settings, SHORT, out=tmp_path / "run", progress=False)
    assert np.isfinite(run.metrics[-1]["loss"])
    waves = as_floats(load(noisy, SHORT).train.sample(3))
    assert imix.load_encoder(tmp_path / "run")(waves).shape == (3, 128)


def test_waveforms_cannot_be_cut(words):
    with pytest.raises(InputError, match="mix_waveforms blends sounds; cutmix cuts their pictures: choose one"):
        imix.pretrain(words, replace(QUICK, mix_waveforms=True, mix="cutmix"), SHORT, progress=False)


@pytest.mark.parametrize("shape", [(8, 5), (8, 1, 100), (8, 3, 32, 32)])
@pytest.mark.parametrize("settings", [{"mix_waveforms": True}, {"augment": "speech"}])
def test_what_is_for_sounds_is_refused_elsewhere(shape, settings):
    with pytest.raises(InputError, match="augment='speech' and mix_waveforms are for sounds; given has none"):
        imix.pretrain(torch.rand(shape), replace(QUICK, **settings), progress=False)


@pytest.mark.parametrize("name", ["cifar", "imagenet"])
def test_views_of_images_are_refused_for_sounds(words, name):
    with pytest.raises(InputError, match=rf"augment='{name}' is for colour images .*; .* has samples of \(1, 2000\)"):
        imix.pretrain(words, replace(QUICK, augment=name), SHORT, progress=False)


@pytest.mark.parametrize("augment", [None, "none"])
@pytest.mark.parametrize("steps", [{"masking": 1.0}, {"resampling": 1.0}])
def test_masking_and_resampling_of_sounds_is_done_or_refused_but_not_forgotten(words, augment, steps):
    data = load(words, SHORT)
    waves = as_floats(data.train.inputs)
    views = []
    for settings in (Settings(augment=augment), Settings(augment=augment, **steps)):
        torch.manual_seed(0)
        try:
            views.append(make_view(settings, data, LogMel(data.clip))(waves.clone()))
        except InputError:
            return
    assert not torch.equal(*views)


def test_an_augmentation_of_ones_own_sees_waveforms(words):
    seen = []

    def quieter(batch):
        seen.append(batch.clone())
        return batch * 0.5

    run = imix.pretrain(words, QUICK, SHORT, augment=quieter, progress=False)
    assert np.isfinite(run.metrics[-1]["loss"])
    assert all(batch.shape == (4, 1, 2000) and batch.is_floating_point() for batch in seen)
    assert 0.4 < max(float(batch.abs().max()) for batch in seen) <= 1


@pytest.mark.parametrize("more", [{}, {"mix_waveforms": True, "method": "moco", "queue": 8}, {"mix": "cutmix"}])
def test_a_run_that_was_stopped_resumes_to_the_same_weights(noisy, tmp_path, monkeypatch, more):
    settings = replace(QUICK, epochs=3, checkpoint_minutes=0.0, **more)

    def start(folder, **options):
        return imix.pretrain(noisy, settings, SHORT, out=tmp_path / folder, progress=False, **options)

    undisturbed = start("undisturbed").encoder.state_dict()
    original, calls = checkpoint.save, []

    def save_then_die(path, state):
        original(path, state)
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "save", save_then_die)
    with pytest.raises(KeyboardInterrupt):
        start("stopped")
    monkeypatch.setattr(checkpoint, "save", original)
    resumed = start("stopped", resume=True).encoder.state_dict()
    assert list(resumed) == list(undisturbed)
    assert all(torch.equal(resumed[name], undisturbed[name]) for name in resumed)


def test_a_run_is_the_same_from_the_cache_as_from_the_files(noisy):
    first = imix.pretrain(noisy, QUICK, SHORT, progress=False).encoder.state_dict()
    again = imix.pretrain(noisy, QUICK, SHORT, progress=False).encoder.state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_training_leaves_the_cache_as_it_was(noisy, cache):
    imix.pretrain(noisy, QUICK, SHORT, progress=False)
    kept = {path: path.read_bytes() for path in cache.rglob("*.*")}
    imix.pretrain(noisy, replace(QUICK, mix_waveforms=True), SHORT, augment=lambda x: x.mul_(0.5), progress=False)
    assert {path: path.read_bytes() for path in cache.rglob("*.*")} == kept


def test_moco_hears_noise(noisy, tmp_path, capsys):
    settings = replace(QUICK, method="moco", queue=8, symmetric=True)
    run = imix.pretrain(noisy, settings, SHORT, out=tmp_path / "run")
    assert "noise up to 0.45" in capsys.readouterr().err
    assert np.isfinite(run.metrics[-1]["loss"])
    assert imix.evaluate(tmp_path / "run", protocol="knn").constants["test"] == "2 held out of train"


def test_two_classes_of_pitch_are_told_apart(words):
    run = imix.pretrain(words, replace(QUICK, epochs=5, batch_size=12), SHORT, progress=False)
    assert imix.evaluate(run, protocol="knn").accuracy == 1
    assert imix.evaluate(run, protocol="linear").accuracy == 1


def test_a_resnet_sees_sounds(words):
    run = imix.pretrain(words, replace(QUICK, epochs=1, encoder="resnet18"), SHORT, progress=False)
    assert imix.embed(run, words).shape == (12, 512)


def test_accuracy_can_be_followed_while_sounds_are_learned(words):
    run = imix.pretrain(words, replace(QUICK, knn_every=1), SHORT, progress=False)
    assert any("knn" in name for name in run.metrics[-1])


def test_a_fraction_of_the_clips_keeps_its_names_and_the_noise(noisy):
    data = load(noisy, Reading(fraction=0.5))
    assert (len(data.train), len(data.names), len(data.noise)) == (6, 6, 1)
    assert data.train.labels.tolist() == [0] * 3 + [1] * 3


def test_a_run_on_sounds_refuses_images(words, tmp_path):
    Image.new("RGB", (32, 32)).save(tmp_path / "a.png")
    run = imix.pretrain(words, replace(QUICK, epochs=1), SHORT, progress=False)
    shutil.rmtree(words)
    with pytest.raises(InputError, match=r"trained on samples of shape \(1, 2000\); .* has \(3, 32, 32\)"):
        imix.embed(run, tmp_path)


def test_a_sound_that_can_be_read_again_is_read_again(tmp_path, monkeypatch):
    for number in range(20):
        (tmp_path / "yes").mkdir(exist_ok=True)
        soundfile.write(tmp_path / "yes" / f"{number}.wav", np.random.default_rng(number).normal(0, 0.1, 800), 8000)
    path, decode = tmp_path / "yes" / "3.wav", sounds.decode

    def refused(asked, *others):
        if asked == path:
            raise PermissionError("Permission denied")
        return decode(asked, *others)

    with monkeypatch.context() as patched:
        patched.setattr(sounds, "decode", refused)
        assert len(load(tmp_path / "yes").train) == 19
    assert len(load(tmp_path / "yes").train) == 19  # as it is kept
    path.chmod(0o600)
    assert len(load(tmp_path / "yes").train) == 20
