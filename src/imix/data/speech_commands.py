"""Speech Commands: one-second clips of single words, in the twelve classes of the paper."""

import hashlib
import os
import shutil
import tarfile
import urllib.request
from dataclasses import replace
from pathlib import Path

from imix import distributed
from imix.data.arrays import class_numbers
from imix.data.cache import CACHE
from imix.data.sounds import find_sounds, make_clip, read_clips, read_noise
from imix.data.source import Data
from imix.errors import InputError
from imix.files import locked
from imix.progress import Told
from imix.settings import Reading

WORDS = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")  # all others are unknown
SILENT = 0.1  # of as many training clips, silent ones are added
PLACE = "http://download.tensorflow.org/data/"
CHECKSUMS = {  # SHA-256 of the archives
    "speech_commands_v0.01": "743935421bb51cccdb6bdd152e04c5c70274e935c82119ad7faeec31780d811d",
    "speech_commands_v0.02": "af14739ee7dc311471de98f5f9d2c9191b18aedfe957f4a6ff791c709868ff58",
}
TEST, VALIDATION = "testing_list.txt", "validation_list.txt"


def read_speech_commands(reading: Reading) -> Data:
    """Version 0.01, as in the paper: 51,088 training and 6,835 test clips."""
    return _speech_commands("speech_commands", "speech_commands_v0.01", reading)


def read_speech_commands_v2(reading: Reading) -> Data:
    """Version 0.02, with more words and speakers."""
    return _speech_commands("speech_commands_v0.02", "speech_commands_v0.02", reading)


def _speech_commands(name: str, archive: str, reading: Reading) -> Data:
    folder = _find(archive, reading.data_dir)
    reading = replace(reading, seconds=reading.seconds or 1.0)
    clip = make_clip(reading)
    listed = {
        part: set((folder / part).read_text().split()) for part in (TEST, VALIDATION) if (folder / part).is_file()
    }
    named = {path.relative_to(folder).as_posix(): path for path in find_sounds(folder)}
    train = [path for file, path in named.items() if not any(file in files for files in listed.values())]
    test = [path for file, path in named.items() if file in listed[TEST]]
    if not train or not test:
        raise InputError(f"{str(folder)!r} has {len(train)} training and {len(test)} test clips of its lists")
    silent = int(SILENT * len(train))
    train_clips, train_files = read_clips(train, clip, silent)
    test_clips, test_files = read_clips(test, clip)
    words = [_class(file) for file in train_files] + ["silence"] * silent
    train_clips.labels, known = class_numbers(words, len(words), name)
    test_clips.labels, _ = class_numbers([_class(file) for file in test_files], len(test_files), name, known)
    names = [*map(str, train_files), *["silence"] * silent, *map(str, test_files)]
    return Data(
        name,
        train_clips,
        test_clips,
        [str(word) for word in known],
        reading,
        names=names,
        augment="speech",
        clip=clip,
        noise=read_noise(folder, clip),
    )


def _class(path: Path) -> str:
    return path.parent.name if path.parent.name in WORDS else "unknown"


def _find(archive: str, given: str | None) -> Path:
    """The folder of the data set: where it was said to be, or in the cache, fetched if need be."""
    if given is not None:
        for place in (Path(given), Path(given) / archive):
            if (place / TEST).is_file():
                return place
        raise InputError(f"there is no {TEST} in {given!r}; give the folder of {archive} with --data-dir")
    folder = CACHE / archive
    with distributed.rank_0_first():
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with locked(folder.parent):  # other commands may want it at the same time
                if not (folder / TEST).is_file():
                    _fetch(archive, folder)
        except (OSError, tarfile.TarError) as error:
            raise InputError(
                f"cannot fetch {archive} into {str(folder.parent)!r} ({error}); unpack {archive}.tar.gz yourself and "
                "give its folder with --data-dir"
            ) from error
    return folder


def _fetch(archive: str, folder: Path) -> None:
    packed, unfinished = folder.with_name(f"{archive}.tar.gz"), folder.with_name(f".{archive}")
    try:
        digest = hashlib.sha256()
        with urllib.request.urlopen(f"{PLACE}{archive}.tar.gz", timeout=60) as answer, open(packed, "wb") as file:
            told = Told(f"fetching {archive}", int(answer.headers.get("Content-Length", 0)) >> 20, "MiB")
            while block := answer.read(1 << 20):
                file.write(block)
                digest.update(block)
                told(file.tell() >> 20)
        if digest.hexdigest() != CHECKSUMS[archive]:
            raise InputError(f"what was fetched for {archive} is damaged; try again")
        with tarfile.open(packed) as tar:
            tar.extractall(unfinished, filter="data")
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(unfinished, folder)
    finally:
        packed.unlink(missing_ok=True)
        shutil.rmtree(unfinished, ignore_errors=True)
