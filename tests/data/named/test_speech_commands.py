"""Speech Commands: split, classes, silent clips and download."""

import hashlib
import io
import tarfile
import urllib.error
import urllib.request
from contextlib import contextmanager

import numpy as np
import pytest

import imix
from imix import DataSettings, InputError
from imix.data import load
from imix.data.named import speech_commands
from imix.encoders.mel import Clip
from imix.files import locked
from tests.data.media.helpers import QUICK, SAMPLE_RATE, tone, write_audio, write_broken

pytestmark = pytest.mark.usefixtures("cache")


def write_speech_commands(folder, clips=6):
    """Write a small folder in the official layout; of each word, clip 0 is a test and clip 1 a validation clip."""
    lists = {"testing_list.txt": [], "validation_list.txt": []}
    for word in ("yes", "no", "go", "bed", "marvin"):
        for i in range(clips):
            write_audio(folder / word / f"{i}_nohash_0.wav", tone(300 + 10 * i, 0.9))
        lists["testing_list.txt"].append(f"{word}/0_nohash_0.wav")
        lists["validation_list.txt"].append(f"{word}/1_nohash_0.wav")
    for name, lines in lists.items():
        (folder / name).write_text("\n".join(lines) + "\n")
    write_audio(folder / "_background_noise_" / "hiss.wav", np.random.default_rng(0).normal(0, 0.1, 3 * SAMPLE_RATE))
    (folder / "_background_noise_" / "README.md").write_text("sources")
    return folder


def test_the_official_split_is_used(tmp_path):
    data = load("speech_commands", DataSettings(data_dir=str(write_speech_commands(tmp_path / "data"))))
    assert (len(data.train), len(data.test), data.train.shape) == (20 + 2, 5, (1, SAMPLE_RATE))
    assert not any("/1_nohash" in name for name in data.sample_names)
    assert all("/0_nohash" in name for name in data.sample_names[22:])
    assert not any("/0_nohash" in name for name in data.sample_names[:22])


def test_other_words_are_labeled_unknown(tmp_path):
    data = load("speech_commands", DataSettings(data_dir=str(write_speech_commands(tmp_path / "data"))))
    assert list(data.class_names) == ["go", "no", "silence", "unknown", "yes"]
    for part, names in ((data.train, data.sample_names[:20]), (data.test, data.sample_names[22:])):
        class_names = [data.class_names[label] for label in part.labels.tolist()]
        folders = [name.split("/")[-2] for name in names]
        assert class_names[: len(names)] == [word if word in ("yes", "no", "go") else "unknown" for word in folders]


def test_ten_percent_silent_clips_are_added_to_the_training_clips_only(tmp_path):
    data = load("speech_commands", DataSettings(data_dir=str(write_speech_commands(tmp_path / "data", clips=9))))
    silent = ~data.train.inputs.any(2)[:, 0]
    assert silent.sum() == int(0.1 * 35) == 3
    assert [data.class_names[label] for label in data.train.labels[silent]] == ["silence"] * 3
    assert data.test.inputs.any(2).all() and list(data.class_names).index("silence") not in data.test.labels
    assert data.sample_names[35:38] == ["silence"] * 3


def test_silent_clips_keep_their_labels_if_a_file_is_broken(tmp_path):
    folder = write_speech_commands(tmp_path / "data")
    write_broken(folder / "bed" / "3_nohash_0.wav", "text")
    for _ in range(2):  # decoded, and from the cache
        data = load("speech_commands", DataSettings(data_dir=str(folder)))
        silent = [not clip.any() for clip in data.train.inputs]
        assert silent == [name == "silence" for name in data.sample_names[:21]] and sum(silent) == 2


def test_the_background_noise_is_loaded(tmp_path):
    data = load("speech_commands", DataSettings(data_dir=str(write_speech_commands(tmp_path / "data"))))
    assert (data.noise.shape, data.augment, data.clip) == ((3, 1, SAMPLE_RATE), "audio", Clip())


@pytest.mark.parametrize("name", ["speech_commands_v0.01", "speech_commands_v0.02"])
def test_data_dir_may_be_the_parent_of_the_archive_folder(tmp_path, name):
    write_speech_commands(tmp_path / "data" / name)
    dataset = "speech_commands" if name.endswith("1") else name
    assert len(load(dataset, DataSettings(data_dir=str(tmp_path / "data"))).test) == 5


def test_a_folder_without_the_test_list_is_an_error(tones, tmp_path):
    with pytest.raises(InputError, match=r"has no testing_list\.txt; it must be the folder of speech_commands_v0\.01"):
        load("speech_commands", DataSettings(data_dir=str(tones)))
    with pytest.raises(InputError, match=r"nowhere' has no testing_list\.txt"):
        load("speech_commands", DataSettings(data_dir=str(tmp_path / "nowhere")))


def test_a_test_list_without_existing_files_is_an_error(tmp_path):
    folder = write_speech_commands(tmp_path / "data")
    (folder / "testing_list.txt").write_text("yes/elsewhere.wav\n")
    with pytest.raises(InputError, match=r"has 25 training and 0 test clips according to testing_list\.txt"):
        load("speech_commands", DataSettings(data_dir=str(folder)))


def test_a_run_can_embed_a_folder_of_clips_of_other_lengths(tmp_path, tones):
    data_settings = DataSettings(data_dir=str(write_speech_commands(tmp_path / "data")))
    run = imix.pretrain("speech_commands", QUICK, data_settings, progress=False)
    assert imix.embed(run, tones).shape == (12, 128)


class Response(io.BytesIO):
    def __init__(self, content):
        super().__init__(content)
        self.headers = {"Content-Length": str(len(content))}


@pytest.fixture
def serve_archive(monkeypatch):
    """A function that replaces the download by the given bytes and returns the list of requested URLs."""
    requested = []

    def serve(content, checksum=None):
        def urlopen(url, **_):
            requested.append(url)
            return Response(content)

        monkeypatch.setattr(urllib.request, "urlopen", urlopen)
        if checksum is not None:
            monkeypatch.setitem(speech_commands.SHA256, "speech_commands_v0.01", checksum)
        return requested

    return serve


def pack(folder, extra=None):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        tar.add(folder, arcname=".")
        if extra is not None:
            tar.addfile(tarfile.TarInfo(extra))
    return buffer.getvalue()


def test_the_archive_is_downloaded_once_and_verified(tmp_path, serve_archive, cache):
    archive = pack(write_speech_commands(tmp_path / "data"))
    requested = serve_archive(archive, hashlib.sha256(archive).hexdigest())
    assert len(load("speech_commands").train) == len(load("speech_commands").train) == 22
    assert requested == ["http://download.tensorflow.org/data/speech_commands_v0.01.tar.gz"]
    assert sorted(path.name for path in cache.iterdir()) == ["clips", "speech_commands_v0.01"]


def test_only_one_process_downloads_at_a_time(cache, monkeypatch):
    def download(archive, folder):
        with pytest.raises(BlockingIOError), locked(cache, wait=False):
            pass
        write_speech_commands(folder)

    monkeypatch.setattr(speech_commands, "_download", download)
    assert len(load("speech_commands").train) == 22


def test_data_downloaded_by_another_process_is_not_downloaded_again(serve_archive, monkeypatch):
    @contextmanager
    def wait_for_other_process(folder):
        write_speech_commands(folder / "speech_commands_v0.01")
        yield

    requested = serve_archive(b"")
    monkeypatch.setattr(speech_commands, "locked", wait_for_other_process)
    assert len(load("speech_commands").train) == 22 and not requested


def test_an_unusable_cache_folder_is_an_error_with_instructions(cache):
    cache.write_text("not a folder")
    with pytest.raises(InputError, match=r"cannot download .*unpack .*tar\.gz yourself"):
        load("speech_commands")


def test_a_wrong_checksum_is_an_error_and_leaves_no_files(tmp_path, serve_archive, cache):
    serve_archive(pack(write_speech_commands(tmp_path / "data")))
    with pytest.raises(InputError, match=r"speech_commands_v0\.01 has the wrong SHA-256 checksum; try again"):
        load("speech_commands")
    assert not list(cache.iterdir())


@pytest.mark.parametrize("name", ["../outside.txt", "yes/../../outside.txt", "/../outside.txt"])
def test_an_archive_with_paths_outside_of_its_folder_is_an_error(tmp_path, serve_archive, cache, name):
    archive = pack(write_speech_commands(tmp_path / "data"), name)
    serve_archive(archive, hashlib.sha256(archive).hexdigest())
    with pytest.raises(InputError, match=r"outside\.txt|speech_commands_v0\.01"):
        load("speech_commands")
    assert not list(cache.iterdir()) and not list(tmp_path.glob("outside.txt"))


def test_a_download_that_is_not_an_archive_is_an_error(serve_archive, cache):
    serve_archive(b"not an archive", hashlib.sha256(b"not an archive").hexdigest())
    with pytest.raises(InputError, match=r"speech_commands_v0\.01"):
        load("speech_commands")
    assert not list(cache.iterdir())


def test_a_failed_download_is_an_error_with_instructions(monkeypatch, cache):
    def fail(*_, **__):
        raise urllib.error.URLError("no network")

    monkeypatch.setattr(urllib.request, "urlopen", fail)
    with pytest.raises(
        InputError, match=r"cannot download .*no network.*unpack .*tar\.gz yourself and pass its .*`data_dir`"
    ):
        load("speech_commands")
    assert not list(cache.iterdir())
