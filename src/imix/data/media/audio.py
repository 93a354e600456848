"""Folders of audio files: any format that soundfile reads, any sample rate and length.

Files are decoded once, to clips of the same length in an array on disk.
"""

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

from imix.data.cache import CACHE
from imix.data.media.folder import NOISE_FOLDER, decode_all, decoded, find_files, read_files
from imix.data.source import Data, TensorSource
from imix.encoders.mel import BINS, HOP, Clip
from imix.errors import InputError, first_line
from imix.runtime import distributed
from imix.settings import DataSettings

AUDIO_SUFFIXES = (".wav", ".flac", ".ogg", ".opus", ".mp3", ".aiff", ".aif", ".au", ".caf")
MAX_DEFAULT_SECONDS = 10.0
MAX_INSPECTED = 1000  # files that are opened to choose the length of clips
MAX_CLIP_SAMPLES = 10_000_000
MP3_WARM_UP = 30 * 1152  # samples to decode before a position in the middle; an MP3 decoder starts with garbage
CACHE_FORMAT = 3  # version of the cached array
STALE_SECONDS = 86_400  # age of an unfinished array that a killed process left behind


def read_audio_folder(folder: Path, data_settings: DataSettings) -> Data:
    """Read a folder of audio files, and `data_settings.test` if it is set.

    If all files are in subfolders, the subfolders are the classes. Recordings in a subfolder `_background_noise_` are
    mixed into views; they are not samples.
    """
    seconds = data_settings.seconds or _common_seconds(find_audio(folder))
    # The length becomes part of the settings, so that data loaded later is cut in the same way.
    data_settings = replace(data_settings, seconds=seconds)
    clip = build_clip(data_settings)
    data = read_files(folder, data_settings, find_audio, lambda paths: read_clips(paths, clip))
    return replace(data, augment="audio", clip=clip, noise=read_noise(folder, clip))


def build_clip(data_settings: DataSettings) -> Clip:
    """Return the format of the clips."""
    assert data_settings.seconds is not None
    samples = data_settings.sample_rate * data_settings.seconds
    if not HOP <= samples <= MAX_CLIP_SAMPLES:
        raise InputError(
            f"seconds x sample_rate must be between {HOP} and {MAX_CLIP_SAMPLES:,} samples; got {samples:,g} "
            f"({data_settings.seconds:g} x {data_settings.sample_rate})"
        )
    if data_settings.n_mels > BINS:
        raise InputError(f"n_mels must be at most {BINS}, the number of frequency bins; got {data_settings.n_mels}")
    return Clip(data_settings.sample_rate, round(samples), data_settings.n_mels)


def find_audio(folder: Path) -> list[Path]:
    """Return the audio files in a folder without the noise folder, sorted; it is an error if there are none."""
    return find_files(folder, AUDIO_SUFFIXES, required="audio files")


def read_clips(paths: Sequence[Path], clip: Clip, n_silent: int = 0) -> tuple[TensorSource, list[Path]]:
    """Read files as int16 clips (N, 1, L), followed by `n_silent` silent ones; also return the files that were read.

    The decoded array is cached on disk. Its name is a hash of the files' paths, sizes and modification times.
    """
    stats = [(str(path), (stat := path.stat()).st_size, stat.st_mtime_ns, stat.st_ctime_ns) for path in paths]
    content = repr((CACHE_FORMAT, asdict(replace(clip, n_mels=0)), n_silent, stats))
    key = hashlib.sha256(os.fsencode(content)).hexdigest()[:32]
    array_path, index_path = CACHE / "clips" / f"{key}.npy", CACHE / "clips" / f"{key}.json"
    shape = (len(paths) + n_silent, 1, clip.samples)
    with distributed.rank_0_first():
        cached = _load_cached(array_path, index_path, paths, shape)
        array, indices = cached or _decode_clips(paths, clip, shape, array_path, index_path)
    return TensorSource(torch.from_numpy(array[: len(indices) + n_silent])), [paths[i] for i in indices]


def read_noise(folder: Path, clip: Clip) -> Tensor | None:
    """Return the recordings in the noise folder, cut into clips (M, 1, L), or None if there are none."""
    noise_folder = folder / NOISE_FOLDER
    paths = find_files(noise_folder, AUDIO_SUFFIXES) if noise_folder.is_dir() else []
    pieces = []
    for path, wave in decoded(paths, lambda path: decode(path, clip.sample_rate)):
        if isinstance(wave, Exception):
            print(f"skipped {str(path)!r}: {first_line(wave)}", file=sys.stderr)
            continue
        wave = np.pad(wave, (0, max(0, clip.samples - len(wave))))
        pieces.append(wave[: len(wave) // clip.samples * clip.samples].reshape(-1, 1, clip.samples))
    return torch.from_numpy(_to_int16(np.concatenate(pieces))) if pieces else None


def decode(path: Path, sample_rate: int, samples: int | None = None) -> np.ndarray:
    """Decode an audio file to mono floats in -1..1; with `samples`, take the middle or pad with silence."""
    import soundfile

    open(path, "rb").close()  # raises OSError with a clear message, which soundfile does not
    with soundfile.SoundFile(os.fsencode(path)) as file:
        file_rate, start, n_frames = file.samplerate, 0, -1
        if samples is not None:
            n_frames = ceil(samples * file_rate / sample_rate)
            start = max(0, (file.frames - n_frames) // 2)
        skipped = max(0, start - MP3_WARM_UP) if file.seekable() else 0
        if skipped:
            file.seek(skipped)
        frames = file.read(-1 if n_frames < 0 else start - skipped + n_frames, dtype="float32", always_2d=True)
        wave = frames[start - skipped :].mean(1)
    if not len(wave):
        raise InputError("the file is empty")
    if not np.isfinite(wave).all():
        raise InputError("it has NaN or infinite values")
    if file_rate != sample_rate:
        from scipy.signal import resample_poly

        # Exact for the usual sample rates; the limit keeps unusual ones fast.
        ratio = Fraction(sample_rate, file_rate).limit_denominator(1000)
        wave = resample_poly(wave, max(1, ratio.numerator), ratio.denominator).astype(np.float32)
    return wave if samples is None else np.pad(wave[:samples], (0, max(0, samples - len(wave))))


def _load_cached(
    array_path: Path, index_path: Path, paths: Sequence[Path], shape: tuple[int, ...]
) -> tuple[np.ndarray, list[int]] | None:
    """Load the cached array and the indices of the files in it, or return None if the cache is missing or damaged."""
    try:
        indices = json.loads(index_path.read_text())
        array = np.load(array_path, mmap_mode="c")
        left_out = sorted(set(paths) - {paths[i] for i in indices})
        is_valid = (
            isinstance(array, np.ndarray)
            and array.shape == shape
            and array.dtype == np.int16
            and len(indices) + len(left_out) == len(paths)
        )
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, TypeError, IndexError):
        return None
    if not is_valid:
        return None
    for path in left_out:
        print(f"skipped {str(path)!r}", file=sys.stderr)
    if left_out:
        print(f"skipped {len(left_out)} of {len(paths)} audio files", file=sys.stderr)
    return array, indices


def _decode_clips(
    paths: Sequence[Path], clip: Clip, shape: tuple[int, ...], array_path: Path, index_path: Path
) -> tuple[np.ndarray, list[int]]:
    """Decode files into an array on disk, or in memory if the cache is not writable; same result as `_load_cached`."""
    unfinished = array_path.with_name(f".{array_path.name}.{os.getpid()}")
    try:
        array = _allocate(unfinished, shape)

        def decode_clip(path: Path) -> np.ndarray:
            return _to_int16(decode(path, clip.sample_rate, clip.samples))

        good = set(decode_all(paths, decode_clip, array[:, 0], "audio files"))
        indices = [i for i, path in enumerate(paths) if path in good]
        if isinstance(array, np.memmap):
            with contextlib.suppress(OSError):  # the mapped array remains usable even if it cannot be cached
                array.flush()
                os.replace(unfinished, array_path)
                index_path.write_text(json.dumps(indices))
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
    return array, indices


def _allocate(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """Create an array on disk with all of its space reserved, or in memory if that fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for old in path.parent.glob(".*.npy.*"):
            if time.time() - old.stat().st_mtime > STALE_SECONDS:
                old.unlink()
        array: np.ndarray = np.lib.format.open_memmap(path, mode="w+", dtype=np.int16, shape=shape)
        with open(path, "rb+") as file:  # writing to a sparse file on a full disk would kill the process (SIGBUS)
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
        return array
    except OSError as error:
        print(f"cannot write to {path.parent} ({error}); audio clips are kept in memory", file=sys.stderr)
        return np.zeros(shape, np.int16)


def _to_int16(wave: np.ndarray) -> np.ndarray:
    return np.clip(np.round(wave * 32768), -32768, 32767).astype(np.int16)


def _common_seconds(paths: Sequence[Path]) -> float:
    """Return the 90th percentile of the file lengths, rounded up to tenths of a second."""
    import soundfile

    lengths = []
    for path in paths[:: max(1, len(paths) // MAX_INSPECTED)]:
        try:
            info = soundfile.info(os.fsencode(path))
            lengths.append(info.frames / info.samplerate)
        except (soundfile.SoundFileError, OSError, TypeError):
            continue
    longest = float(np.quantile(lengths, 0.9, method="inverted_cdf")) if lengths else 1.0
    return min(MAX_DEFAULT_SECONDS, max(1, ceil(10 * longest - 1e-6)) / 10)
