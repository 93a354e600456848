"""Broken, unusual and malicious files for the tests: tables, arrays, images and audio."""

import gzip
import io
import os
import struct
import wave
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

Create = Callable[[Path], None]  # creates a file at a path


def _rows(n: int = 40) -> str:
    return "".join(f"{i * 0.37 % 5},{'abc'[i % 3]},{i % 4}\n" for i in range(n))


VALID_CSV = "size,kind,label\n" + _rows()


def file_with(content: str | bytes) -> Create:
    """Return a function that writes this content."""
    return lambda path: path.write_bytes(content.encode() if isinstance(content, str) else content) and None


TABLES: dict[str, Create] = {
    "empty.csv": file_with(""),
    "blank lines.csv": file_with("\n\n\n\r\n"),
    "header only.csv": file_with("a,b,c\n"),
    "one row.csv": file_with("a,b\n1.5,x\n"),
    "two rows.csv": file_with("a,b\n1.5,2\n3,4\n"),
    "rows too long.csv": file_with("a,b\n1,2\n3,4,5\n6,7\n"),
    "rows too short.csv": file_with("a,b,c\n1,2,3\n4,5\n6,7,8\n"),
    "unclosed quote.csv": file_with('a,b\n1,"never ends\n' + "2,3\n" * 50),
    "escaped quotes.csv": file_with('a,b\n1,"say ""hi""\n"\n' + "2,x\n" * 20),
    "latin-1.csv": file_with((VALID_CSV + "1,caf\xe9,2\n").encode("latin-1")),
    "utf-16.csv": file_with(VALID_CSV.encode("utf-16")),
    "utf-16 without bom.csv": file_with(VALID_CSV.encode("utf-16-le")),
    "utf-8 with bom.csv": file_with(VALID_CSV.encode("utf-8-sig")),
    "null bytes at the end.csv": file_with(VALID_CSV.encode() + b"\0" * 4096),
    "null bytes in cells.csv": file_with(VALID_CSV.replace("a", "a\0")),
    "random bytes.csv": lambda path: path.write_bytes(np.random.default_rng(0).bytes(20_000)) and None,
    "huge field.csv": file_with("a,b\n1,2\n3," + "x" * 3_000_000 + "\n" + "5,6\n" * 20),
    "huge column name.csv": file_with("x" * 300_000 + ",b\n" + "1.5,2\n" * 20),
    "infinite.csv": file_with("a,b\n" + "1.5,2\n" * 20 + "inf,3\n-Infinity,4\n"),
    "nan.csv": file_with("a,b\n" + "1.5,2.5\n" * 20 + "NaN,nan\n"),
    "too large.csv": file_with("a,b\n" + "1.5,2.5\n" * 20 + "1e308,1e-308\n-1e308,1e999\n"),
    "constant.csv": file_with("a,b\n" + "7,x\n" * 40),
    "all missing.csv": file_with("a,b\n" + ",\n" * 40),
    "duplicate names.csv": file_with("a,b,a\n" + "1,2,3\n" * 20),
    "empty names.csv": file_with(",,\n" + "1,2,3\n" * 20),
    "one class.csv": file_with("v,label\n" + "".join(f"{i * 0.7 % 3},only\n" for i in range(40))),
    "one class per row.csv": file_with("v,label\n" + "".join(f"{i * 0.7 % 3},c{i}\n" for i in range(2000))),
    "missing labels.csv": file_with("v,label\n" + "".join(f"{i * 0.7 % 3},\n" for i in range(40))),
    "fractional labels.csv": file_with("v,label\n" + "".join(f"{i * 0.7 % 3},{i * 0.1}\n" for i in range(40))),
    "mixed types.csv": file_with("a,b\n" + "1.5,2020-01-01\nx,true\n,0x1F\n1e5,12:30\n" * 10),
    "extreme dates.csv": file_with("a,b\n" + "1.5,0001-01-01\n2.5,9999-12-31 23:59:59\n3,292278025-01-01\n" * 10),
    "tabs and commas.csv": file_with("a\tb,c\n" + "1\t2,3\n4,5\t6\n" * 20),
    "one column.csv": file_with("a\n" + "".join(f"{i * 0.31 % 7}\n" for i in range(40))),
    "wide.csv": file_with(",".join(f"c{i}" for i in range(600)) + "\n" + (",".join(["0.5"] * 600) + "\n") * 12),
    "carriage returns.csv": file_with(VALID_CSV.replace("\n", "\r")),
    "terminal escapes.csv": file_with("\x1b[31ma\x1b[0m,b\n" + "1.5,\x1b]0;x\x07\n2.5,y\n" * 20),
    "formulas.csv": file_with("=cmd|' /C calc'!A0,b\n" + "1.5,=1+1\n2.5,@sum\n" * 20),
    "truncated.csv.gz": lambda path: path.write_bytes(gzip.compress(VALID_CSV.encode() * 400)[:300]) and None,
    "not gzip.csv.gz": file_with(VALID_CSV),
    "wrong checksum.csv.gz": lambda path: path.write_bytes(gzip.compress(VALID_CSV.encode())[:-8] + b"\1" * 8) and None,
    "not parquet.parquet": file_with("PAR1 and then nothing PAR1"),
    "truncated.parquet": lambda path: write_parquet(path, lambda content: content[:-20]),
    "flipped bits.parquet": lambda path: write_parquet(path, _flip_bits),
    "empty.parquet": file_with(b""),
    "nested.parquet": lambda path: write_parquet(
        path, s=[{"a": [1, 2], "b": {"c": 3}}] * 200, lists=[[[1], [2]]] * 200
    ),
    "deeply nested.parquet": lambda path: write_parquet(path, deep=_deep_column()),
    "huge dictionary.parquet": lambda path: write_parquet(path, d=_dictionary_column(500_000)),
    "extreme types.parquet": lambda path: write_parquet(path, **_extreme_columns()),
    "claims more rows.parquet": lambda path: write_parquet(path, _replace_rows),
    "claims more rows in its groups.parquet": lambda path: write_parquet(path, _replace_last_rows),
    "claims an endless footer.parquet": lambda path: write_parquet(
        path, lambda content: content[:-8] + b"\xff\xff\xff\x7fPAR1"
    ),
    "claims no footer.parquet": lambda path: write_parquet(path, lambda content: content[:-8] + b"\0\0\0\0PAR1"),
    "cut footer.parquet": lambda path: write_parquet(path, lambda content: content[:-60] + content[-8:]),
    "wrong statistics.parquet": lambda path: write_parquet(path, _damage_statistics),
    "names not utf-8.parquet": lambda path: write_parquet(
        path, lambda content: content.replace(b"kind", b"\xff\xfend")
    ),
    "folder.csv": lambda path: path.mkdir(),
    "pipe.csv": lambda path: os.mkfifo(path),
    "link to itself.csv": lambda path: path.symlink_to(path.name),
    "broken link.csv": lambda path: path.symlink_to("nowhere"),
    "spaces 'quotes' \"and\" more.csv": file_with(VALID_CSV),
    "two\nlines.csv": file_with(VALID_CSV + "1,2\n"),
    os.fsdecode(b"not utf-8 \xff\xfe.csv"): file_with(VALID_CSV),
    os.fsdecode(b"bad and not utf-8 \xff\xfe.csv"): file_with(VALID_CSV + "1,2\n"),
}


def write_parquet(path: Path, edit: Callable[[bytes], bytes] = bytes, **columns: Any) -> None:
    """Write a Parquet file of 200 rows, with more columns, after editing its bytes."""
    import pyarrow as pa
    from pyarrow import parquet

    buffer = io.BytesIO()
    base = {"a": np.arange(200) * 0.37, "kind": ["x", "y"] * 100, "when": np.arange(200).astype("M8[s]")}
    table = pa.table(base | columns)
    parquet.write_table(table, buffer)
    path.write_bytes(edit(buffer.getvalue()))


ROWS = b"\x16\x90\x03"  # 200 rows in the footer of a Parquet file; \x16\xfe\x7f are 8191


def _replace_rows(content: bytes) -> bytes:
    return content.replace(ROWS, b"\x16\xfe\x7f")


def _replace_last_rows(content: bytes) -> bytes:
    start, _, end = content.rpartition(ROWS)
    return start + b"\x16\xfe\x7f" + end


def _damage_statistics(content: bytes) -> bytes:
    """Replace the largest value of column a in the footer by the smallest float."""
    start = content.rindex(struct.pack("<d", 199 * 0.37))
    return content[:start] + struct.pack("<d", -1e308) + content[start + 8 :]


def _deep_column() -> Any:
    import pyarrow as pa

    deep = pa.int64()
    for _ in range(90):
        deep = pa.struct([("f", deep)])
    return pa.nulls(200, deep)


def _dictionary_column(size: int) -> Any:
    import pyarrow as pa

    return pa.DictionaryArray.from_arrays(pa.array(np.arange(200) % 3), pa.array([f"value {i}" for i in range(size)]))


def _extreme_columns() -> dict[str, Any]:
    import pyarrow as pa

    return {
        "decimal": pa.array([10**70] * 200, pa.decimal256(76, 0)),
        "bytes": [b"\xff"] * 200,
        "nanoseconds": pa.array([2**62] * 200, pa.timestamp("ns")),
        "seconds": pa.array([2**53] * 200, pa.timestamp("s")),
        "duration": pa.array([2**62] * 200, pa.duration("s")),
        "day": pa.array([2**31 - 1] * 200, pa.date32()),
        "half": np.ones(200, np.float16),
        "largest": np.full(200, 2**64 - 1, np.uint64),
    }


def _flip_bits(content: bytes) -> bytes:
    flipped = bytearray(content)
    for i in range(40, len(flipped) - 200, 97):
        flipped[i] ^= 0xFF
    return bytes(flipped)


def npy(shape: tuple[int, ...], content: bytes = b"", dtype: str = "<f4") -> bytes:
    """Return a .npy file whose header claims this shape, whatever its content is."""
    header = repr({"descr": dtype, "fortran_order": False, "shape": shape}).encode()
    header += b" " * (63 - (10 + len(header)) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + content


def _npz(**arrays: np.ndarray) -> Create:
    return lambda path: np.savez(path, **arrays)


def _zip(members: dict[str, bytes]) -> Create:
    def create(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in members.items():
                archive.writestr(name, content)

    return create


X = np.random.default_rng(0).normal(size=(40, 5)).astype(np.float32)
ARRAYS: dict[str, Create] = {
    "empty.npy": file_with(b""),
    "not an array.npy": file_with(b"this is not an array"),
    "truncated.npy": file_with(npy((40, 5), X.tobytes()[:100])),
    "more than memory.npy": file_with(npy((10**13, 5))),
    "negative shape.npy": file_with(npy((-1, 5))),
    "too many dimensions.npy": file_with(npy((1,) * 70)),
    "bad header.npy": file_with(b"\x93NUMPY\x01\x00\x10\x00{'descr': os.system}\n"),
    "objects.npy": lambda path: np.save(path, np.array([{"a": 1}] * 4, dtype=object), allow_pickle=True),
    "text.npy": lambda path: np.save(path, np.array([["a", "b"]] * 4)),
    "complex.npy": lambda path: np.save(path, X + 1j),
    "scalar.npy": lambda path: np.save(path, np.float32(3)),
    "one dimension.npy": lambda path: np.save(path, X[0]),
    "no samples.npy": lambda path: np.save(path, X[:0]),
    "no columns.npy": lambda path: np.save(path, X[:, :0]),
    "one sample.npy": lambda path: np.save(path, X[:1]),
    "infinite.npy": lambda path: np.save(path, np.where(X > 1, np.inf, X)),
    "all nan.npy": lambda path: np.save(path, np.full((40, 5), np.nan)),
    "too large.npy": lambda path: np.save(path, np.full((40, 5), 1e300)),
    "constant.npy": lambda path: np.save(path, np.ones((40, 5))),
    "large.npy": lambda path: np.save(path, X * 1e30),
    "half precision.npy": lambda path: np.save(path, X.astype(np.float16)),
    "big endian.npy": lambda path: np.save(path, X.astype(">f8")),
    "not zip.npz": file_with(b"PK\x03\x04 and nothing"),
    "without x.npz": _npz(data=X),
    "too few labels.npz": _npz(x=X, y=np.zeros(3)),
    "two-dimensional labels.npz": _npz(x=X, y=np.zeros((40, 2))),
    "nan labels.npz": _npz(x=X, y=np.full(40, np.nan)),
    "one class.npz": _npz(x=X, y=np.zeros(40, int)),
    "negative labels.npz": _npz(x=X, y=-np.arange(40)),
    "test set of another shape.npz": _npz(x=X, x_test=X[:, :3]),
    "unknown test labels.npz": _npz(x=X, y=np.arange(40) % 2, x_test=X, y_test=np.arange(40) % 3),
    "more than memory.npz": _zip({"x.npy": npy((10**13, 5))}),
    "wrong checksum.npz": lambda path: path.write_bytes(_damaged_zip()) and None,
    "path traversal.npz": _zip({"../x.npy": npy((40, 5), X.tobytes()), "x.npy": npy((40, 5), X.tobytes())}),
    "folder.npy": lambda path: path.mkdir(),
    "pipe.npy": lambda path: os.mkfifo(path),
}


def _damaged_zip() -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, x=X)
    content = bytearray(buffer.getvalue())
    for i in range(60, len(content) - 120, 31):
        content[i] ^= 0x55
    return bytes(content)


def write_image(path: Path, size: tuple[int, int] = (40, 40), seed: int = 0) -> None:
    """Write an image of noise."""
    noise = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(noise).save(path)


def _truncated(suffix: str, fraction: float) -> Create:
    def create(path: Path) -> None:
        write_image(path.with_suffix(suffix), (64, 64))
        content = path.with_suffix(suffix).read_bytes()
        path.with_suffix(suffix).unlink()
        path.write_bytes(content[: int(len(content) * fraction)])

    return create


def _png(width: int, height: int) -> bytes:
    """Return a PNG whose header claims this size."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    )


# Broken files are reported and skipped. Unusual files can be decoded.
BROKEN_IMAGES: dict[str, Create] = {
    "truncated.jpg": _truncated(".jpg", 0.5),
    "header only.jpg": _truncated(".jpg", 0.05),
    "truncated.png": _truncated(".png", 0.6),
    "empty.jpg": file_with(b""),
    "html.jpg": file_with("<html><script>alert(1)</script></html>"),
    "svg.png": file_with("<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>"),
    "larger than memory.png": file_with(_png(2**31 - 1, 2**31 - 1)),
    "60000 x 60000.png": file_with(_png(60_000, 60_000)),
    "zero size.png": file_with(_png(0, 0)),
    "zeros.gif": file_with(b"GIF89a" + bytes(40)),
    "not tiff.tif": file_with(b"II*\0" + b"\xff" * 60),
    "not webp.webp": file_with(b"RIFF\xff\xff\xff\xffWEBPVP8 "),
}
UNUSUAL_IMAGES: dict[str, Create] = {
    "one pixel.png": lambda path: write_image(path, (1, 1)),
    "wide.png": lambda path: write_image(path, (20_000, 3)),
    "tall.jpg": lambda path: write_image(path, (3, 20_000)),
    "cmyk.jpg": lambda path: Image.new("CMYK", (30, 30)).save(path),
    "16 bits.png": lambda path: Image.fromarray(np.arange(900, dtype=np.uint16).reshape(30, 30)).save(path),
    "palette.gif": lambda path: Image.new("P", (30, 30)).save(path),
    "spaces 'quotes' \"and\" more.png": lambda path: write_image(path),
    "two\nlines.png": lambda path: write_image(path),
    "<img src=x onerror=alert(1)>.png": lambda path: write_image(path),
    os.fsdecode(b"not utf-8 \xff\xfe.png"): lambda path: write_image(path),
}


def write_audio(path: Path, samples: int = 4000, sample_rate: int = 8000, channels: int = 1) -> None:
    """Write a WAV file of noise."""
    with wave.open(str(path), "wb") as file:
        file.setparams((channels, 2, sample_rate, samples, "NONE", ""))
        noise = np.random.default_rng(samples).integers(-9999, 9999, samples * channels)
        file.writeframes(noise.astype("<i2").tobytes())


def _float_wav(values: np.ndarray) -> Create:
    def create(path: Path) -> None:
        import soundfile

        soundfile.write(path, values, 8000, subtype="FLOAT")

    return create


def _edited_wav(edit: Callable[[bytes], bytes]) -> Create:
    def create(path: Path) -> None:
        write_audio(path)
        path.write_bytes(edit(path.read_bytes()))

    return create


BROKEN_AUDIO: dict[str, Create] = {
    "empty.wav": file_with(b""),
    "html.wav": file_with("<html></html>"),
    "zero length.wav": lambda path: write_audio(path, 0),
    "nan.wav": _float_wav(np.full(4000, np.nan, np.float32)),
    "infinite.wav": _float_wav(np.full(4000, np.inf, np.float32)),
    "header only.wav": _edited_wav(lambda content: content[:20]),
    "not flac.flac": file_with(b"fLaC" + bytes(60)),
    "not ogg.ogg": file_with(b"OggS" + b"\xff" * 60),
    "not mp3.mp3": file_with(b"ID3" + b"\xff" * 60),
}
UNUSUAL_AUDIO: dict[str, Create] = {
    "truncated.wav": _edited_wav(lambda content: content[: len(content) // 2]),
    "wrong length in header.wav": _edited_wav(lambda content: content[:40] + b"\xff\xff\xff\x7f" + content[44:]),
    "one sample.wav": lambda path: write_audio(path, 1),
    "1 Hz.wav": lambda path: write_audio(path, 40, 1),
    "384 kHz.wav": lambda path: write_audio(path, 4000, 384_000),
    "eight channels.wav": lambda path: write_audio(path, 400, 8000, 8),
    "silent.wav": _float_wav(np.zeros(4000, np.float32)),
    "loud.wav": _float_wav(np.full(4000, 1e30, np.float32)),
    "two\nlines.wav": lambda path: write_audio(path),
}
