"""Speech Commands: one-second clips of single words, in the 12 classes of the paper, which uses version 0.01."""

import hashlib
import os
import shutil
import tarfile
import urllib.request
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from imix.data.cache import cache_folder
from imix.data.named.record import NamedDataset, PaperRecipe
from imix.errors import InputError
from imix.files import locked
from imix.progress import ProgressLine
from imix.settings import DataSettings

if TYPE_CHECKING:
    from imix.data.source import Data

WORDS = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")  # other words have the class "unknown"
N_CLASSES = len(WORDS) + 2  # with "unknown" and "silence"
SILENCE_FRACTION = 0.1  # silent clips added to the training clips, as a fraction of their number
BASE_URL = "http://download.tensorflow.org/data/"
SHA256 = {  # of the archives
    "speech_commands_v0.01": "743935421bb51cccdb6bdd152e04c5c70274e935c82119ad7faeec31780d811d",
    "speech_commands_v0.02": "af14739ee7dc311471de98f5f9d2c9191b18aedfe957f4a6ff791c709868ff58",
}
TEST_LIST, VALIDATION_LIST = "testing_list.txt", "validation_list.txt"


def load_speech_commands(name: str, archive: str, data_settings: DataSettings) -> "Data":
    """Read the clips of `archive`; validation clips are neither training nor test samples."""
    from imix.data.arrays import encode_classes
    from imix.data.media.audio import build_clip, read_clips, read_noise
    from imix.data.media.folder import find_files
    from imix.data.media.references import AUDIO_SUFFIXES, MediaFiles
    from imix.data.source import Data

    folder = _find_folder(archive, data_settings.data_dir)
    data_settings = replace(data_settings, seconds=data_settings.seconds or 1.0)
    clip = build_clip(data_settings)
    test_names, validation_names = _read_list(folder / TEST_LIST), _read_list(folder / VALIDATION_LIST)
    not_train = test_names | validation_names
    paths = find_files(folder, AUDIO_SUFFIXES, required="audio files")
    files = {path.relative_to(folder).as_posix(): path for path in paths}
    train = [path for file, path in files.items() if file not in not_train]
    test = [path for file, path in files.items() if file in test_names]
    if not train or not test:
        raise InputError(
            f"{str(folder)!r} has {len(train)} training and {len(test)} test clips according to {TEST_LIST} and "
            f"{VALIDATION_LIST}; at least one of each is needed"
        )
    n_silent = int(SILENCE_FRACTION * len(train))
    train_clips, train_read = read_clips(MediaFiles(name, train), clip, n_silent)
    test_clips, test_read = read_clips(MediaFiles(name, test), clip)
    train_files, test_files = [train[i] for i in train_read], [test[i] for i in test_read]
    train_words = [_class_name(file) for file in train_files] + ["silence"] * n_silent
    test_words = [_class_name(file) for file in test_files]
    train_clips.labels, class_names = encode_classes(train_words, len(train_words), name)
    test_clips.labels, _ = encode_classes(test_words, len(test_words), name, class_names)
    return Data(
        name,
        train_clips,
        test_clips,
        [str(word) for word in class_names],
        data_settings,
        sample_names=[*map(str, train_files), *["silence"] * n_silent, *map(str, test_files)],
        augment="audio",
        clip=clip,
        noise=read_noise(folder, clip),
    )


def _read_list(path: Path) -> set[str]:
    return set(path.read_text().split()) if path.is_file() else set()


def _class_name(path: Path) -> str:
    return path.parent.name if path.parent.name in WORDS else "unknown"


def _find_folder(archive: str, data_dir: str | None) -> Path:
    """The folder of the data set: `data_dir` or a subfolder, or the cache, into which it is downloaded if necessary."""
    from imix.runtime.distributed import rank_0_first

    if data_dir is not None:
        for folder in (Path(data_dir), Path(data_dir) / archive):
            if (folder / TEST_LIST).is_file():
                return folder
        raise InputError(f"`data_dir` {data_dir!r} has no {TEST_LIST}; it must be the folder of {archive}")
    folder = cache_folder() / archive
    with rank_0_first():
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with locked(folder.parent):  # other processes may download it at the same time
                if not (folder / TEST_LIST).is_file():
                    _download(archive, folder)
        except (OSError, tarfile.TarError) as error:
            raise InputError(
                f"cannot download {archive} to {str(folder.parent)!r} ({error}); unpack {archive}.tar.gz yourself and "
                "pass its folder as `data_dir`"
            ) from error
    return folder


def _download(archive: str, folder: Path) -> None:
    packed, unpacked = folder.with_name(f"{archive}.tar.gz"), folder.with_name(f".{archive}")
    try:
        digest = hashlib.sha256()
        with urllib.request.urlopen(f"{BASE_URL}{archive}.tar.gz", timeout=60) as response, open(packed, "wb") as file:
            total = int(response.headers.get("Content-Length", 0)) >> 20
            progress = ProgressLine(f"downloading {archive}", total, "MiB")
            while block := response.read(1 << 20):
                file.write(block)
                digest.update(block)
                progress(file.tell() >> 20)
        if digest.hexdigest() != SHA256[archive]:
            raise InputError(f"the download of {archive} has the wrong SHA-256 checksum; try again")
        with tarfile.open(packed) as tar:
            tar.extractall(unpacked, filter="data")
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(unpacked, folder)
    finally:
        packed.unlink(missing_ok=True)
        shutil.rmtree(unpacked, ignore_errors=True)


def _record(title: str, name: str, archive: str, clips: str, n_train: int, recipe: PaperRecipe | None) -> NamedDataset:
    return NamedDataset(
        name=name,
        title=title,
        kind="audio",
        summary=f"{clips}, {N_CLASSES} classes",
        options=("data_dir", "seconds", "sample_rate", "n_mels"),
        n_train=n_train,
        n_classes=N_CLASSES,
        marker_files=(TEST_LIST, archive),
        load=partial(load_speech_commands, name, archive),
        recipe=recipe,
    )


RECIPE = PaperRecipe(
    settings={
        "encoder": "resnet50",
        "head": "mlpbn",
        "predictor": "mlpbn1",
        "temperature": 0.5,
        "schedule": "step",
        "milestones": (300, 400),
        "epochs": 500,
    },
    short_settings={"encoder": "resnet18", "epochs": 110, "weight_decay": 1e-3, "momentum": 0.99, "milestones": ()},
)
V1, V2 = SHA256
DATASETS = [
    _record("Speech Commands", "speech_commands", V1, "64,727 clips of one second (v0.01)", 56_196, RECIPE),
    _record("Speech Commands v0.02", V2, V2, "105,829 clips of one second", 93_327, None),
]
