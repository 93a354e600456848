"""Audio files: any format that soundfile reads, any sample rate and length.

Files are decoded once, to clips of the same length in an array on disk.
"""

import hashlib
import json
import os
import zlib
from collections.abc import Sequence
from dataclasses import asdict, replace
from fractions import Fraction
from math import ceil, prod
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from imix.data.cache import cache_folder
from imix.data.media.folder import NOISE_FOLDER, Budget, decode_all, decoded, find_files, find_media, read_files
from imix.data.media.references import AUDIO_SUFFIXES, MediaFiles, Reference, version
from imix.data.memory import check_memory
from imix.data.paths import root
from imix.data.source import Data, TensorSource
from imix.encoders.mel import BINS, HOP, Clip
from imix.errors import InputError, first_line
from imix.files import write_atomically, write_text
from imix.output import print_message
from imix.runtime import distributed
from imix.settings import DataSettings

MAX_DEFAULT_SECONDS = 10.0
MAX_INSPECTED = 1000  # files that are opened to choose the length of clips
MAX_CLIP_SAMPLES = 10_000_000
MP3_WARM_UP = 30 * 1152  # samples to decode before a position in the middle; an MP3 decoder starts with garbage
MIN_NOISE_RATE = 1000  # Hz; noise with a lower sample rate would become very long
DECODED_SAMPLES = Budget(1 << 28)  # decoded at the same time in all threads; they take 1 GB
CACHE_FORMAT = 4  # version of the cached array
MAX_HEADER_SIZE = 4096  # bytes in front of the cached array


def read_audio_folder(folder: Path, data_settings: DataSettings) -> Data:
    """Read a folder or pattern of audio files, and `data_settings.test` if it is set.

    If all files are in subfolders, the subfolders are the classes. Recordings in a subfolder `_background_noise_` are
    mixed into views; they are not samples.
    """
    data = read_audio(find_media(folder, data_settings, AUDIO_SUFFIXES, None, "audio files"), data_settings)
    assert data.clip is not None
    return replace(data, noise=read_noise(root(folder), data.clip))


def read_audio(parts: Sequence[MediaFiles], data_settings: DataSettings) -> Data:
    """Read training files and, if any, test files."""
    seconds = data_settings.seconds or _common_seconds(parts[0].references)
    # The length becomes part of the settings, so that data loaded later is cut in the same way.
    data_settings = replace(data_settings, seconds=seconds)
    clip = build_clip(data_settings)
    return replace(read_files(parts, data_settings, lambda files: read_clips(files, clip)), augment="audio", clip=clip)


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


def read_clips(files: MediaFiles, clip: Clip, n_silent: int = 0) -> tuple[TensorSource, list[int]]:
    """Read files as int16 clips (N, 1, L), followed by `n_silent` silent ones; also return which files were read.

    The decoded array is cached on disk. Its name is a hash of the files' paths, sizes and modification times, or of
    their content if they are stored in a table.
    """
    versions = [version(reference) for reference in files.references]
    content = repr((CACHE_FORMAT, asdict(replace(clip, n_mels=0)), n_silent, versions))
    key = hashlib.sha256(os.fsencode(content)).hexdigest()[:32]
    array_path, index_path = (cache_folder() / "clips" / f"{key}.{suffix}" for suffix in ("npy", "json"))
    shape = (len(files.references) + n_silent, 1, clip.samples)
    check_memory(2 * prod(shape), f"{shape[0]:,} clips", "choose a smaller `seconds` or `sample_rate`")
    with distributed.rank_0_first():
        cached = _load_cached(array_path, index_path, files, shape)
        array, indices = cached or _decode_clips(files, clip, shape, array_path, index_path)
    return TensorSource(torch.from_numpy(array[: len(indices) + n_silent])), indices


def read_noise(folder: Path, clip: Clip) -> Tensor | None:
    """Return the recordings in the noise folder, cut into clips (M, 1, L), or None if there are none."""
    noise_folder = folder / NOISE_FOLDER
    paths = find_files(noise_folder, AUDIO_SUFFIXES) if noise_folder.is_dir() else []
    pieces = []
    for path, wave in decoded(paths, lambda path: decode(path, clip.sample_rate)):
        if isinstance(wave, Exception):
            print_message(f"skipped {str(path)!r}: {first_line(wave)}")
            continue
        wave = np.pad(wave, (0, max(0, clip.samples - len(wave))))
        pieces.append(wave[: len(wave) // clip.samples * clip.samples].reshape(-1, 1, clip.samples))
    return torch.from_numpy(_to_int16(np.concatenate(pieces))) if pieces else None


def decode(reference: Reference, sample_rate: int, samples: int | None = None) -> np.ndarray:
    """Decode an audio file to mono floats in -1..1; with `samples`, take the middle or pad with silence."""
    import soundfile

    with reference.open("rb") as stream, soundfile.SoundFile(stream) as file:
        file_rate, start, n_frames = file.samplerate, 0, file.frames
        if samples is not None:
            n_frames = min(n_frames, ceil(samples * file_rate / sample_rate))
            start = (file.frames - n_frames) // 2
        elif file_rate < MIN_NOISE_RATE:
            raise InputError(f"its sample rate is {file_rate} Hz; noise needs at least {MIN_NOISE_RATE} Hz")
        skipped = max(0, start - MP3_WARM_UP) if file.seekable() else 0
        if skipped:
            file.seek(skipped)
        n_frames += start - skipped
        if n_frames * file.channels > DECODED_SAMPLES.total:
            raise InputError(f"too long: {n_frames:,} x {file.channels} samples")
        with DECODED_SAMPLES.reserve(n_frames * file.channels):
            wave = file.read(n_frames, dtype="float32", always_2d=True)[start - skipped :].mean(1)
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
    array_path: Path, index_path: Path, files: MediaFiles, shape: tuple[int, ...]
) -> tuple[np.ndarray, list[int]] | None:
    """Load the cached array and the indices of the files in it, or return None if the cache is missing or damaged.

    The array is not memory-mapped: if another process truncated the file, the system would kill this one.
    """
    try:
        indices, digest = json.loads(index_path.read_text())
        if array_path.stat().st_size > 2 * prod(shape) + MAX_HEADER_SIZE:
            return None
        array = np.load(array_path)
        if array.shape != shape or array.dtype != np.int16 or digest != _digest(array, indices):
            return None
        left_out = sorted(set(range(len(files.references))) - set(indices))
        if left_out and files.one_per_row:
            return None
    except Exception:  # a damaged file can raise almost any exception
        return None
    for i in left_out:
        print_message(f"skipped {str(files.references[i])!r}")
    if left_out:
        print_message(f"skipped {len(left_out)} of {len(files.references)} audio files")
    return array, indices


def _digest(array: np.ndarray, indices: Sequence[int]) -> str:
    """Return a checksum of the clips and of the indices of their files."""
    return f"{zlib.crc32(json.dumps(indices).encode(), zlib.crc32(array.data)):08x}"


def _decode_clips(
    files: MediaFiles, clip: Clip, shape: tuple[int, ...], array_path: Path, index_path: Path
) -> tuple[np.ndarray, list[int]]:
    """Decode files, and cache the array on disk if there is space; same result as `_load_cached`."""
    array = np.zeros(shape, np.int16)

    def decode_clip(reference: Reference) -> np.ndarray:
        return _to_int16(decode(reference, clip.sample_rate, clip.samples))

    indices = decode_all(files, decode_clip, array[:, 0], "audio files")
    try:
        array_path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(array_path, lambda file: np.save(file, array), array.nbytes)
        write_text(index_path, json.dumps([indices, _digest(array, indices)]))
    except (OSError, InputError) as error:
        print_message(f"cannot write to {array_path.parent} ({error}); audio clips are kept in memory")
    return array, indices


def _to_int16(wave: np.ndarray) -> np.ndarray:
    return np.clip(np.round(wave * 32768), -32768, 32767).astype(np.int16)


def _common_seconds(references: Sequence[Reference]) -> float:
    """Return the 90th percentile of the file lengths, rounded up to tenths of a second."""
    import soundfile

    lengths = []
    for reference in references[:: max(1, len(references) // MAX_INSPECTED)]:
        try:
            with reference.open("rb") as stream, soundfile.SoundFile(stream) as file:
                lengths.append(file.frames / file.samplerate)
        except (soundfile.SoundFileError, OSError, TypeError):
            continue
    longest = float(np.quantile(lengths, 0.9, method="inverted_cdf")) if lengths else 1.0
    return min(MAX_DEFAULT_SECONDS, max(1, ceil(10 * longest - 1e-6)) / 10)
