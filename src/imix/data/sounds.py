"""Folders of sound files: any format that soundfile reads, any rate and length, decoded once into an array on disk."""

import hashlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from math import ceil, gcd
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from imix.data.folder import CACHE, decode_all, find_files, read_files
from imix.data.mel import HOP, Clip
from imix.data.source import Data, Tensors
from imix.errors import InputError
from imix.settings import Reading

SUFFIXES = (".wav", ".flac", ".ogg", ".opus", ".mp3", ".aiff", ".aif", ".au", ".caf")
NOISE = "_background_noise_"  # the folder with recordings of noise, as Speech Commands calls it
LONGEST = 10.0  # seconds that clips get unless set
SAMPLED = 1000  # files whose length is looked at
FORMAT = 1  # of the cached array


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
    clip = Clip(reading.rate, round(reading.rate * reading.seconds), reading.mels)
    if clip.samples < HOP:
        raise InputError(f"clips of {clip.samples} samples are too short; give at least {HOP} (seconds x rate)")
    return clip


def find_sounds(folder: Path) -> list[Path]:
    """All sound files below a folder but for noise, in order; what is hidden does not count."""
    found = find_files(folder, SUFFIXES, leave=NOISE)
    if not found:
        raise InputError(f"there are no sounds ({', '.join(SUFFIXES)}) in {str(folder)!r}")
    return found


def read_clips(paths: Sequence[Path], clip: Clip, silent: int = 0) -> tuple[Tensors, list[Path]]:
    """Files as clips (N, 1, L) of 16 bits, then so many `silent` ones; and the files, less those that are broken.

    They are decoded once: the array is kept on disk, under a name that changes with the files.
    """
    stats = [(str(path), (stat := path.stat()).st_size, stat.st_mtime_ns) for path in paths]
    key = hashlib.sha256(os.fsencode(repr((FORMAT, asdict(replace(clip, mels=0)), silent, stats)))).hexdigest()
    kept, told = CACHE / "clips" / f"{key[:32]}.npy", CACHE / "clips" / f"{key[:32]}.json"
    try:
        numbers = json.loads(told.read_text())
        array = np.load(kept, mmap_mode="c")
    except (OSError, ValueError):
        array, numbers = _decode_clips(paths, clip, silent, kept, told)
    if left := len(paths) - len(numbers):
        print(f"{left} of {len(paths)} sounds were left out when they were decoded", file=sys.stderr)
    return Tensors(torch.from_numpy(array[: len(numbers) + silent])), [paths[number] for number in numbers]


def read_noise(folder: Path, clip: Clip) -> Tensor | None:
    """The recordings of noise in a folder, cut into clips (M, 1, L); None where there are none."""
    paths = find_files(folder / NOISE, SUFFIXES) if (folder / NOISE).is_dir() else []
    pieces = []
    for path in paths:
        wave = decode(path, clip.rate)
        wave = np.pad(wave, (0, max(0, clip.samples - len(wave))))
        pieces.append(wave[: len(wave) // clip.samples * clip.samples].reshape(-1, 1, clip.samples))
    return torch.from_numpy(_as_16_bits(np.concatenate(pieces))) if pieces else None


def decode(path: Path, rate: int, samples: int | None = None) -> np.ndarray:
    """A sound, one channel, floats in -1..1 at that rate; with `samples` its middle, or followed by silence."""
    import soundfile

    with soundfile.SoundFile(path) as file:
        if samples is not None:
            wanted = ceil(samples * file.samplerate / rate)
            file.seek(max(0, (file.frames - wanted) // 2))
            wave = file.read(wanted, dtype="float32", always_2d=True).mean(1)
        else:
            wave = file.read(dtype="float32", always_2d=True).mean(1)
        given = file.samplerate
    if not len(wave):
        raise InputError("it is empty")
    if not np.isfinite(wave).all():
        raise InputError("it has values that are no numbers")
    if given != rate:
        from scipy.signal import resample_poly

        common = gcd(given, rate)
        wave = resample_poly(wave, rate // common, given // common).astype(np.float32)
    return wave if samples is None else np.pad(wave[:samples], (0, max(0, samples - len(wave))))


def _decode_clips(
    paths: Sequence[Path], clip: Clip, silent: int, kept: Path, told: Path
) -> tuple[np.ndarray, list[int]]:
    """Clips in an array on disk, or in memory where that cannot be written, and the numbers of the files in it."""
    shape = (len(paths) + silent, 1, clip.samples)
    unfinished = kept.with_name(f".{kept.name}.{os.getpid()}")
    array: np.ndarray
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        array = np.lib.format.open_memmap(unfinished, mode="w+", dtype=np.int16, shape=shape)
    except OSError as error:
        print(f"clips are kept in memory, since {kept.parent} cannot be written: {error}", file=sys.stderr)
        array = np.zeros(shape, np.int16)
    try:
        good = set(
            decode_all(paths, lambda path: _as_16_bits(decode(path, clip.rate, clip.samples)), array[:, 0], "sounds")
        )
        numbers = [number for number, path in enumerate(paths) if path in good]
        if isinstance(array, np.memmap):
            array.flush()
            os.replace(unfinished, kept)
            told.write_text(json.dumps(numbers))
    finally:
        unfinished.unlink(missing_ok=True)
    return array, numbers


def _as_16_bits(wave: np.ndarray) -> np.ndarray:
    return np.clip(np.round(wave * 32768), -32768, 32767).astype(np.int16)


def _common_seconds(paths: Sequence[Path]) -> float:
    """The length that nine of ten sounds do not exceed, in tenths of a second."""
    import soundfile

    lengths = []
    for path in paths[:: max(1, len(paths) // SAMPLED)]:
        try:
            info = soundfile.info(path)
            lengths.append(info.frames / info.samplerate)
        except (soundfile.SoundFileError, OSError, TypeError):
            continue
    longest = float(np.quantile(lengths, 0.9)) if lengths else 1.0
    return min(LONGEST, max(1, ceil(10 * longest - 1e-6)) / 10)
