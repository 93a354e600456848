"""Fuzzing of everything that reads a user's files: damaged files are read as finite numbers or refused.

Each parser runs in a process of its own, so that a crash, a hang or too much memory is a failure of the test.
"""

import bz2
import gzip
import io
import os
import resource
import tarfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stderr
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars
import pyarrow
import pytest
import soundfile
import torch
from PIL import Image

from imix import InputError
from imix.data import load
from imix.data.cache import cache_folder
from imix.data.media import audio, images
from imix.data.media.images import ImageFiles, ImageFormat
from imix.data.media.references import AUDIO_SUFFIXES, IMAGE_SUFFIXES, MediaFiles
from imix.encoders.mel import Clip
from tests.chaos import corpus
from tests.chaos.processes import FORKSERVER
from tests.data.media.shards import write_tar

MAX_GROWTH = 2 << 30  # bytes of memory
MAX_SECONDS = 20  # for one file
TABLE = polars.DataFrame(
    {
        "number": np.arange(60) * 0.37,
        "count": np.arange(60) % 7,
        "word": ["a", "b", None] * 20,
        "day": polars.Series([f"2021-12-{1 + i % 28:02}" for i in range(60)]).str.to_date(),
        "flag": [True, False, None] * 20,
    }
)
NOISE = np.random.default_rng(0).integers(0, 256, (24, 32, 3), np.uint8)
WAVE = np.random.default_rng(0).normal(0, 0.2, 3000)
CLIP = Clip(sample_rate=8000, samples=4000)
INTERESTING = (
    b"\0",
    b"\xff",
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\0\0\0\0",
    b"99999999999",
    b"-1",
    b'"',
    b"\n",
)


def written(write: Callable[[io.BytesIO], object]) -> bytes:
    """What `write` writes to a file."""
    buffer = io.BytesIO()
    write(buffer)
    return buffer.getvalue()


def image(file_format: str, mode: str = "RGB", **options: object) -> bytes:
    return written(lambda file: Image.fromarray(NOISE).convert(mode).save(file, file_format, **options))


def sound(file_format: str, subtype: str | None = None) -> bytes:
    return written(lambda file: soundfile.write(file, WAVE, 8000, subtype, format=file_format))


def shard(extension: str, contents: Iterable[bytes], **options: int) -> bytes:
    """A tar shard of files with these contents, and a label for each."""
    files = [
        (f"{'long' * 30 if i == 2 else i}.{each}", content if each == extension else b"%d" % (i % 2))
        for i, content in enumerate(contents)
        for each in (extension, "cls")
    ]
    with TemporaryDirectory() as folder:
        return write_tar(Path(folder) / "s.tar", files, **options).read_bytes()


CSV = TABLE.write_csv().encode()
VALID = {
    "t.csv": CSV,
    "t.tsv": TABLE.write_csv(separator="\t", quote_style="always").encode(),
    "t.csv.gz": gzip.compress(CSV, mtime=0),
    "t.csv.bz2": bz2.compress(CSV),
    "t.csv.zst": pyarrow.compress(CSV, "zstd", asbytes=True),
    "plain.parquet": written(lambda file: TABLE.write_parquet(file, compression="uncompressed")),
    "zstd.parquet": written(lambda file: TABLE.write_parquet(file, compression="zstd", row_group_size=20)),
    "t.npy": written(lambda file: np.save(file, corpus.X)),
    "t.npz": written(lambda file: np.savez(file, x=corpus.X, y=np.arange(40) % 3)),
    "compressed.npz": written(lambda file: np.savez_compressed(file, x=corpus.X, y=np.arange(40) % 3)),
    "i.png": image("png"),
    "palette.png": image("png", "P"),
    "i.jpg": image("jpeg"),
    "progressive.jpg": image("jpeg", progressive=True),
    "i.gif": image("gif", "P"),
    "i.webp": image("webp"),
    "i.bmp": image("bmp"),
    "i.tiff": image("tiff", compression="tiff_lzw"),
    "plain.tiff": image("tiff"),
    "s.wav": sound("WAV"),
    "adpcm.wav": sound("WAV", "MS_ADPCM"),
    "s.flac": sound("FLAC"),
    "s.ogg": sound("OGG", "VORBIS"),
    "s.opus": sound("OGG", "OPUS"),
    "s.mp3": sound("MP3"),
    "s.aiff": sound("AIFF"),
    "s.au": sound("AU"),
    "s.caf": sound("CAF"),
    "images.tar": shard("png", [image("png")] * 4),
    "gnu.tar": shard("png", [image("png")] * 4, format=tarfile.GNU_FORMAT),
    "audio.tar": shard("wav", [sound("WAV")] * 4),
    "cached clips": b"",
    "cache index": b"",
}


def mutate(content: bytes, rng: np.random.Generator) -> bytes:
    """Change, insert, remove or repeat some bytes, mostly near the start or the end, where headers are."""
    for _ in range(rng.integers(1, 5)):
        n = len(content)
        where = rng.choice([rng.integers(n + 1), rng.integers(min(n, 100) + 1), n - rng.integers(min(n, 100) + 1)])
        removed = rng.choice([0, 1, 1, 1, 2, 4, 8, 100])
        repeated = content[where : where + 50] * 2
        inserted = [rng.bytes(removed), rng.bytes(removed), INTERESTING[rng.integers(len(INTERESTING))], repeated, b""]
        content = content[:where] + inserted[rng.integers(5)] + content[where + removed :]
    return content[: rng.integers(len(content) + 1)] if rng.random() < 0.1 else content


def check_table(path: Path) -> None:
    data = load(path)
    x, labels = data.train.inputs, data.train.labels
    assert x.isfinite().all() and len(x)
    assert labels is None or (len(labels) == len(x) and labels.max() < len(data.class_names))


def check_image(path: Path) -> None:
    for channels in (1, 3, 4):
        image = images.decode(path, ImageFormat(16, channels, deep=channels == 1))
        assert image.shape == (channels, 16, 16)
        assert np.isfinite(image).all()


def check_audio(path: Path) -> None:
    assert audio.decode(path, 8000, 4000).shape == (4000,)
    assert np.isfinite(audio.decode(path, 8000)).all()


def check_cache(path: Path, name: str, rng: np.random.Generator) -> None:
    """Damage a file of the cache; the same clips must be read, with the same files."""
    folder = path.parent / "clips of two"
    if not folder.exists():
        folder.mkdir()
        for i in range(3):
            corpus.write_audio(folder / f"{i}.wav", 1000 * (i + 1))
        (folder / "1.wav").write_bytes(b"broken")
    files = sorted(folder.iterdir())
    expected, kept = audio.read_clips(MediaFiles("clips", files), CLIP)
    (damaged,) = cache_folder().rglob("*.npy" if name == "cached clips" else "*.json")
    damaged.write_bytes(mutate(damaged.read_bytes(), rng))
    source, read = audio.read_clips(MediaFiles("clips", files), CLIP)
    assert read == kept and torch.equal(source.inputs, expected.inputs)


def fuzz(name: str, folder: Path, n: int) -> tuple[Counter[str], list[str]]:
    """Read n damaged files; return the numbers of files that were read and refused, and the failures."""
    suffix = Path(name).suffix
    check = check_image if suffix in IMAGE_SUFFIXES else check_audio if suffix in AUDIO_SUFFIXES else check_table
    path, counts, failures = folder / name, Counter[str](), list[str]()
    os.environ["IMIX_CACHE"] = str(folder / "cache")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for i in range(n):
        rng = np.random.default_rng([i, *name.encode()])
        started = time.monotonic()
        try:
            with redirect_stderr(io.StringIO()):
                if name.startswith("cache"):
                    check_cache(path, name, rng)
                else:
                    path.write_bytes(mutate(VALID[name], rng) if i else VALID[name])
                    check(path)
            counts["read"] += 1
        except BaseException as error:  # a panic of polars is not an Exception
            # One bad image or audio file is skipped, whatever its decoder raises.
            is_refused = isinstance(error, InputError if check is check_table else Exception)
            counts["refused"] += is_refused and not isinstance(error, AssertionError)
            if not is_refused or isinstance(error, AssertionError):
                failures.append(f"{name} {i}: {type(error).__name__}: {error}"[:300])
        if time.monotonic() - started > MAX_SECONDS:
            failures.append(f"{name} {i}: {time.monotonic() - started:.0f} s")
    growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    return counts, failures + ([f"{name}: {growth / 1e9:.1f} GB"] if growth > MAX_GROWTH else [])


@pytest.mark.parametrize("n", [20, pytest.param(3000, marks=pytest.mark.full)])
@pytest.mark.parametrize("name", VALID)
def test_damaged_files_are_read_or_refused(tmp_path, record_property, name, n):
    with ProcessPoolExecutor(1, mp_context=FORKSERVER) as pool:
        counts, failures = pool.submit(fuzz, name, tmp_path, n).result(timeout=900)
    for key in ("read", "refused"):
        record_property(key, counts[key])
    assert not failures
    assert counts.total() == n
    assert counts["read"] > 0, "the first file is not damaged"


@pytest.mark.parametrize("n", [3000, pytest.param(200_000, marks=pytest.mark.full)])
def test_many_images_are_streamed_in_constant_memory(monkeypatch, n):
    """Decoding is simulated, so that everything around it is measured."""
    monkeypatch.setattr(images, "decode", lambda path, format: np.full(format.shape, int(path.stem) % 251, np.uint8))
    paths = [Path(f"{i}.png") for i in range(n)]
    source = ImageFiles(paths, ImageFormat(16), torch.device("cpu"), torch.arange(n))
    seen = 0
    for batch, labels in source.batches(torch.randperm(n).split(256)):
        if not seen:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert torch.equal(batch[:, 0, 0, 0].long(), labels % 251)
        seen += len(batch)
    assert seen == n
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 100 << 20
