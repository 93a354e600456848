"""Folders of sound files: any format that soundfile reads, any rate and length, decoded once into an array on disk."""

import contextlib
import hashlib
import json
import os
import sys
import time
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from fractions import Fraction
from math import ceil
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from imix import distributed
from imix.data.cache import CACHE
from imix.data.folder import decode_all, decoded, find_files, read_files
from imix.data.mel import BINS, HOP, Clip
from imix.data.source import Data, Tensors
from imix.errors import InputError, first_line
from imix.settings import Reading

SOUNDS = (".wav", ".flac", ".ogg", ".opus", ".mp3", ".aiff", ".aif", ".au", ".caf")
NOISE = "_background_noise_"  # the folder with recordings of noise, as Speech Commands calls it
LONGEST = 10.0  # seconds that clips get unless set
SAMPLED = 1000  # files whose length is looked at
MOST = 10_000_000  # samples of a clip
BEFORE = 30 * 1152  # samples read before a place in the middle, without which an MP3 begins with garbage
FORMAT = 2  # of the cached array


def read_sounds(folder: Path, reading: Reading) -> Data:
    """A folder of sounds; where all are in subfolders, these are the classes. `reading.test` is such a folder too.

    Recordings in a subfolder _background_noise_ are what views are mixed with, not samples.
    """
    seconds = reading.seconds or _common_seconds(find_sounds(folder))
    reading = replace(reading, seconds=seconds)  # sounds that come later are brought to the same
    clip = make_clip(reading)
    data = read_files(folder, reading, find_sounds, lambda paths: read_clips(paths, clip))
    return replace(data, augment="speech", clip=clip, noise=read_noise(folder, clip))


def make_clip(reading: Reading) -> Clip:
    """What clips are, as set."""
    assert reading.seconds is not None
    samples = reading.rate * reading.seconds
    if samples < HOP:
        raise InputError(f"clips of {samples:g} samples are too short; give at least {HOP} (seconds x rate)")
    if samples > MOST:
        raise InputError(f"clips of {samples:g} samples are too long; give at most {MOST:,} (seconds x rate)")
    if reading.mels > BINS:
        raise InputError(f"there are {BINS} frequencies, which do not make {reading.mels} mel bands")
    return Clip(reading.rate, round(samples), reading.mels)


def find_sounds(folder: Path) -> list[Path]:
    """All sound files below a folder but for noise, in order; what is hidden does not count."""
    found = find_files(folder, SOUNDS, leave=NOISE)
    if not found:
        raise InputError(f"there are no sounds ({', '.join(SOUNDS)}) in {str(folder)!r}")
    return found


def read_clips(paths: Sequence[Path], clip: Clip, silent: int = 0) -> tuple[Tensors, list[Path]]:
    """Files as clips (N, 1, L) of 16 bits, then so many `silent` ones; and the files, less those that are broken.

    They are decoded once: the array is kept on disk, under a name that changes with the files.
    """
    stats = [(str(path), (stat := path.stat()).st_size, stat.st_mtime_ns, stat.st_ctime_ns) for path in paths]
    key = hashlib.sha256(os.fsencode(repr((FORMAT, asdict(replace(clip, mels=0)), silent, stats)))).hexdigest()
    kept, told = CACHE / "clips" / f"{key[:32]}.npy", CACHE / "clips" / f"{key[:32]}.json"
    shape = (len(paths) + silent, 1, clip.samples)
    with distributed.rank_0_first():
        array, numbers = _kept_clips(kept, told, shape) or _decode_clips(paths, clip, shape, kept, told)
    return Tensors(torch.from_numpy(array[: len(numbers) + silent])), [paths[number] for number in numbers]


def read_noise(folder: Path, clip: Clip) -> Tensor | None:
    """The recordings of noise in a folder, cut into clips (M, 1, L); None where there are none."""
    paths = find_files(folder / NOISE, SOUNDS) if (folder / NOISE).is_dir() else []
    pieces = []
    for path, wave in decoded(paths, lambda path: decode(path, clip.rate)):
        if isinstance(wave, Exception):
            print(f"left out {str(path)!r}: {first_line(wave)}", file=sys.stderr)
            continue
        wave = np.pad(wave, (0, max(0, clip.samples - len(wave))))
        pieces.append(wave[: len(wave) // clip.samples * clip.samples].reshape(-1, 1, clip.samples))
    return torch.from_numpy(_as_16_bits(np.concatenate(pieces))) if pieces else None


def decode(path: Path, rate: int, samples: int | None = None) -> np.ndarray:
    """A sound, one channel, floats in -1..1 at that rate; with `samples` its middle, or followed by silence."""
    import soundfile

    open(path, "rb").close()  # or why not, in the system's words
    with soundfile.SoundFile(os.fsencode(path)) as file:
        given, start, wanted = file.samplerate, 0, -1
        if samples is not None:
            wanted = ceil(samples * given / rate)
            start = max(0, (file.frames - wanted) // 2)
        skipped = max(0, start - BEFORE) if file.seekable() else 0
        if skipped:
            file.seek(skipped)
        read = file.read(-1 if wanted < 0 else start - skipped + wanted, dtype="float32", always_2d=True)
        wave = read[start - skipped :].mean(1)
    if not len(wave):
        raise InputError("it is empty")
    if not np.isfinite(wave).all():
        raise InputError("it has values that are no numbers")
    if given != rate:
        from scipy.signal import resample_poly

        ratio = Fraction(rate, given).limit_denominator(1000)  # exact for usual rates, and quick for others
        wave = resample_poly(wave, max(1, ratio.numerator), ratio.denominator).astype(np.float32)
    return wave if samples is None else np.pad(wave[:samples], (0, max(0, samples - len(wave))))


def _kept_clips(kept: Path, told: Path, shape: tuple[int, ...]) -> tuple[np.ndarray, list[int]] | None:
    """The array on disk and the numbers of the files in it, if both are there and whole."""
    try:
        found = json.loads(told.read_text())
        array = np.load(kept, mmap_mode="c")
        numbers, left = found["numbers"], found["left out"]
        whole = isinstance(array, np.ndarray) and array.shape == shape and array.dtype == np.int16
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, KeyError, TypeError):
        return None
    if not whole or not isinstance(numbers, list) or len(numbers) > shape[0]:
        return None
    for name in left:
        print(f"left out {name!r}", file=sys.stderr)
    if left:
        print(f"{len(left)} of {len(left) + len(numbers)} sounds were left out", file=sys.stderr)
    return array, numbers


def _decode_clips(
    paths: Sequence[Path], clip: Clip, shape: tuple[int, ...], kept: Path, told: Path
) -> tuple[np.ndarray, list[int]]:
    """Clips in an array on disk, or in memory where that cannot be written, and the numbers of the files in it."""
    unfinished = kept.with_name(f".{kept.name}.{os.getpid()}")
    try:
        array = _open_array(unfinished, shape)
        good = set(
            decode_all(paths, lambda path: _as_16_bits(decode(path, clip.rate, clip.samples)), array[:, 0], "sounds")
        )
        numbers = [number for number, path in enumerate(paths) if path in good]
        if isinstance(array, np.memmap):
            with contextlib.suppress(OSError):  # what is mapped stays, kept or not
                array.flush()
                os.replace(unfinished, kept)
                left = [str(path) for path in paths if path not in good]
                told.write_text(json.dumps({"numbers": numbers, "left out": left}))
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
    return array, numbers


def _open_array(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """An array on disk, with room for all of it, or in memory."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for old in path.parent.glob(".*.npy.*"):  # of a run that was killed
            if time.time() - old.stat().st_mtime > 86_400:
                old.unlink()
        array: np.ndarray = np.lib.format.open_memmap(path, mode="w+", dtype=np.int16, shape=shape)
        with open(path, "rb+") as file:  # a file with holes would fail when they are filled, and not by an error
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
        return array
    except OSError as error:
        print(f"clips are kept in memory, since {path.parent} cannot be written: {error}", file=sys.stderr)
        return np.zeros(shape, np.int16)


def _as_16_bits(wave: np.ndarray) -> np.ndarray:
    return np.clip(np.round(wave * 32768), -32768, 32767).astype(np.int16)


def _common_seconds(paths: Sequence[Path]) -> float:
    """The length that nine of ten sounds do not exceed, in tenths of a second."""
    import soundfile

    lengths = []
    for path in paths[:: max(1, len(paths) // SAMPLED)]:
        try:
            info = soundfile.info(os.fsencode(path))
            lengths.append(info.frames / info.samplerate)
        except (soundfile.SoundFileError, OSError, TypeError):
            continue
    longest = float(np.quantile(lengths, 0.9, method="inverted_cdf")) if lengths else 1.0
    return min(LONGEST, max(1, ceil(10 * longest - 1e-6)) / 10)
