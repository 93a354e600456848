"""Broken, odd and hostile files, made by the tests: tables, arrays, images and sounds."""

import gzip
import io
import os
import struct
import wave
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

Make = Callable[[Path], None]


def _rows(n: int = 40) -> str:
    return "".join(f"{i * 0.37 % 5},{'abc'[i % 3]},{i % 4}\n" for i in range(n))


GOOD = "size,kind,label\n" + _rows()


def text(content: str | bytes) -> Make:
    """A file of that content."""
    return lambda path: path.write_bytes(content.encode() if isinstance(content, str) else content) and None


TABLES: dict[str, Make] = {
    "empty.csv": text(""),
    "blank lines.csv": text("\n\n\n\r\n"),
    "header alone.csv": text("a,b,c\n"),
    "one row.csv": text("a,b\n1.5,x\n"),
    "two rows.csv": text("a,b\n1.5,2\n3,4\n"),
    "rows too long.csv": text("a,b\n1,2\n3,4,5\n6,7\n"),
    "rows too short.csv": text("a,b,c\n1,2,3\n4,5\n6,7,8\n"),
    "quote not closed.csv": text('a,b\n1,"never ends\n' + "2,3\n" * 50),
    "quotes within.csv": text('a,b\n1,"say ""hi""\n"\n' + "2,x\n" * 20),
    "latin-1.csv": text((GOOD + "1,caf\xe9,2\n").encode("latin-1")),
    "utf-16.csv": text(GOOD.encode("utf-16")),
    "utf-16 without mark.csv": text(GOOD.encode("utf-16-le")),
    "with mark.csv": text(GOOD.encode("utf-8-sig")),
    "bytes of zero.csv": text(GOOD.encode() + b"\0" * 4096),
    "zeros within.csv": text(GOOD.replace("a", "a\0")),
    "random bytes.csv": lambda path: path.write_bytes(np.random.default_rng(0).bytes(20_000)) and None,
    "a huge field.csv": text("a,b\n1,2\n3," + "x" * 3_000_000 + "\n" + "5,6\n" * 20),
    "a huge name.csv": text("x" * 300_000 + ",b\n" + "1.5,2\n" * 20),
    "infinite.csv": text("a,b\n" + "1.5,2\n" * 20 + "inf,3\n-Infinity,4\n"),
    "nan.csv": text("a,b\n" + "1.5,2.5\n" * 20 + "NaN,nan\n"),
    "too large.csv": text("a,b\n" + "1.5,2.5\n" * 20 + "1e308,1e-308\n-1e308,1e999\n"),
    "constant.csv": text("a,b\n" + "7,x\n" * 40),
    "all missing.csv": text("a,b\n" + ",\n" * 40),
    "twice the same name.csv": text("a,b,a\n" + "1,2,3\n" * 20),
    "names without names.csv": text(",,\n" + "1,2,3\n" * 20),
    "one class.csv": text("v,label\n" + "".join(f"{i * 0.7 % 3},only\n" for i in range(40))),
    "a class for each row.csv": text("v,label\n" + "".join(f"{i * 0.7 % 3},c{i}\n" for i in range(2000))),
    "no label.csv": text("v,label\n" + "".join(f"{i * 0.7 % 3},\n" for i in range(40))),
    "label of fractions.csv": text("v,label\n" + "".join(f"{i * 0.7 % 3},{i * 0.1}\n" for i in range(40))),
    "mixed.csv": text("a,b\n" + "1.5,2020-01-01\nx,true\n,0x1F\n1e5,12:30\n" * 10),
    "dates beyond.csv": text("a,b\n" + "1.5,0001-01-01\n2.5,9999-12-31 23:59:59\n3,292278025-01-01\n" * 10),
    "tabs and commas.csv": text("a\tb,c\n" + "1\t2,3\n4,5\t6\n" * 20),
    "one column.csv": text("a\n" + "".join(f"{i * 0.31 % 7}\n" for i in range(40))),
    "wide.csv": text(",".join(f"c{i}" for i in range(600)) + "\n" + (",".join(["0.5"] * 600) + "\n") * 12),
    "mac line ends.csv": text(GOOD.replace("\n", "\r")),
    "escapes.csv": text("\x1b[31ma\x1b[0m,b\n" + "1.5,\x1b]0;x\x07\n2.5,y\n" * 20),
    "formulas.csv": text("=cmd|' /C calc'!A0,b\n" + "1.5,=1+1\n2.5,@sum\n" * 20),
    "cut short.csv.gz": lambda path: path.write_bytes(gzip.compress(GOOD.encode() * 400)[:300]) and None,
    "no gzip.csv.gz": text(GOOD),
    "wrong checksum.csv.gz": lambda path: path.write_bytes(gzip.compress(GOOD.encode())[:-8] + b"\1" * 8) and None,
    "no parquet.parquet": text("PAR1 and then nothing PAR1"),
    "cut short.parquet": lambda path: _parquet(path, lambda content: content[:-20]),
    "bits turned.parquet": lambda path: _parquet(path, _turned),
    "empty.parquet": text(b""),
    "a folder.csv": lambda path: path.mkdir(),
    "a pipe.csv": lambda path: os.mkfifo(path),
    "a circle.csv": lambda path: path.symlink_to(path.name),
    "leads nowhere.csv": lambda path: path.symlink_to("nowhere"),
    "spaces 'quotes' \"and\" more.csv": text(GOOD),
    "two\nlines.csv": text(GOOD + "1,2\n"),
    os.fsdecode(b"no text \xff\xfe.csv"): text(GOOD),
    os.fsdecode(b"bad no text \xff\xfe.csv"): text(GOOD + "1,2\n"),
}


def _parquet(path: Path, change: Callable[[bytes], bytes]) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    whole = io.BytesIO()
    table = pa.table({"a": np.arange(200) * 0.37, "kind": ["x", "y"] * 100, "when": np.arange(200).astype("M8[s]")})
    parquet.write_table(table, whole)
    path.write_bytes(change(whole.getvalue()))


def _turned(content: bytes) -> bytes:
    changed = bytearray(content)
    for at in range(40, len(changed) - 200, 97):
        changed[at] ^= 0xFF
    return bytes(changed)


def npy(shape: tuple[int, ...], content: bytes = b"", kind: str = "<f4") -> bytes:
    """A .npy file that says it has that shape, whatever it holds."""
    header = repr({"descr": kind, "fortran_order": False, "shape": shape}).encode()
    header += b" " * (63 - (10 + len(header)) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + content


def _npz(**arrays: np.ndarray) -> Make:
    return lambda path: np.savez(path, **arrays)


def _npz_of(members: dict[str, bytes]) -> Make:
    def make(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in members.items():
                archive.writestr(name, content)

    return make


X = np.random.default_rng(0).normal(size=(40, 5)).astype(np.float32)
ARRAYS: dict[str, Make] = {
    "empty.npy": text(b""),
    "no array.npy": text(b"this is no array"),
    "cut short.npy": text(npy((40, 5), X.tobytes()[:100])),
    "more than memory.npy": text(npy((10**13, 5))),
    "negative.npy": text(npy((-1, 5))),
    "too many axes.npy": text(npy((1,) * 70)),
    "a bad header.npy": text(b"\x93NUMPY\x01\x00\x10\x00{'descr': os.system}\n"),
    "objects.npy": lambda path: np.save(path, np.array([{"a": 1}] * 4, dtype=object), allow_pickle=True),
    "text.npy": lambda path: np.save(path, np.array([["a", "b"]] * 4)),
    "complex.npy": lambda path: np.save(path, X + 1j),
    "one number.npy": lambda path: np.save(path, np.float32(3)),
    "one axis.npy": lambda path: np.save(path, X[0]),
    "no samples.npy": lambda path: np.save(path, X[:0]),
    "no columns.npy": lambda path: np.save(path, X[:, :0]),
    "one sample.npy": lambda path: np.save(path, X[:1]),
    "infinite.npy": lambda path: np.save(path, np.where(X > 1, np.inf, X)),
    "nothing but nan.npy": lambda path: np.save(path, np.full((40, 5), np.nan)),
    "too large.npy": lambda path: np.save(path, np.full((40, 5), 1e300)),
    "constant.npy": lambda path: np.save(path, np.ones((40, 5))),
    "large.npy": lambda path: np.save(path, X * 1e30),
    "half precision.npy": lambda path: np.save(path, X.astype(np.float16)),
    "other byte order.npy": lambda path: np.save(path, X.astype(">f8")),
    "no zip.npz": text(b"PK\x03\x04 and nothing"),
    "without x.npz": _npz(data=X),
    "labels too few.npz": _npz(x=X, y=np.zeros(3)),
    "labels of two axes.npz": _npz(x=X, y=np.zeros((40, 2))),
    "labels of nan.npz": _npz(x=X, y=np.full(40, np.nan)),
    "one class.npz": _npz(x=X, y=np.zeros(40, int)),
    "negative labels.npz": _npz(x=X, y=-np.arange(40)),
    "test of another shape.npz": _npz(x=X, x_test=X[:, :3]),
    "unknown test labels.npz": _npz(x=X, y=np.arange(40) % 2, x_test=X, y_test=np.arange(40) % 3),
    "more than memory.npz": _npz_of({"x.npy": npy((10**13, 5))}),
    "wrong checksum.npz": lambda path: path.write_bytes(_spoiled_zip()) and None,
    "a way out.npz": _npz_of({"../x.npy": npy((40, 5), X.tobytes()), "x.npy": npy((40, 5), X.tobytes())}),
    "a folder.npy": lambda path: path.mkdir(),
    "a pipe.npy": lambda path: os.mkfifo(path),
}


def _spoiled_zip() -> bytes:
    whole = io.BytesIO()
    np.savez_compressed(whole, x=X)
    changed = bytearray(whole.getvalue())
    for at in range(60, len(changed) - 120, 31):
        changed[at] ^= 0x55
    return bytes(changed)


def picture(path: Path, size: tuple[int, int] = (40, 40), seed: int = 0, **how: object) -> None:
    """An image of noise."""
    noise = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(noise).save(path, **how)


def _cut(suffix: str, share: float) -> Make:
    def make(path: Path) -> None:
        picture(path.with_suffix(suffix), (64, 64))
        content = path.with_suffix(suffix).read_bytes()
        path.with_suffix(suffix).unlink()
        path.write_bytes(content[: int(len(content) * share)])

    return make


def _png(width: int, height: int) -> bytes:
    """A PNG that says it has that size."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    )


# Files that are broken are left out by name; the others are images, however odd.
BROKEN_PICTURES: dict[str, Make] = {
    "cut short.jpg": _cut(".jpg", 0.5),
    "cut very short.jpg": _cut(".jpg", 0.05),
    "cut short.png": _cut(".png", 0.6),
    "empty.jpg": text(b""),
    "a page.jpg": text("<html><script>alert(1)</script></html>"),
    "a drawing.png": text("<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>"),
    "larger than memory.png": text(_png(2**31 - 1, 2**31 - 1)),
    "larger than a hall.png": text(_png(60_000, 60_000)),
    "of no size.png": text(_png(0, 0)),
    "zeros.gif": text(b"GIF89a" + bytes(40)),
    "no tiff.tif": text(b"II*\0" + b"\xff" * 60),
    "no webp.webp": text(b"RIFF\xff\xff\xff\xffWEBPVP8 "),
}
ODD_PICTURES: dict[str, Make] = {
    "one pixel.png": lambda path: picture(path, (1, 1)),
    "wide.png": lambda path: picture(path, (20_000, 3)),
    "tall.jpg": lambda path: picture(path, (3, 20_000)),
    "four colours.jpg": lambda path: Image.new("CMYK", (30, 30)).save(path),
    "sixteen bits.png": lambda path: Image.fromarray(np.arange(900, dtype=np.uint16).reshape(30, 30)).save(path),
    "few colours.gif": lambda path: Image.new("P", (30, 30)).save(path),
    "spaces 'quotes' \"and\" more.png": lambda path: picture(path),
    "two\nlines.png": lambda path: picture(path),
    "<img src=x onerror=alert(1)>.png": lambda path: picture(path),
    os.fsdecode(b"no text \xff\xfe.png"): lambda path: picture(path),
}


def sound(path: Path, samples: int = 4000, rate: int = 8000, channels: int = 1) -> None:
    """A wav of noise."""
    with wave.open(str(path), "wb") as file:
        file.setparams((channels, 2, rate, samples, "NONE", ""))
        noise = np.random.default_rng(samples).integers(-9999, 9999, samples * channels)
        file.writeframes(noise.astype("<i2").tobytes())


def _wav_of(values: np.ndarray) -> Make:
    def make(path: Path) -> None:
        import soundfile

        soundfile.write(path, values, 8000, subtype="FLOAT")

    return make


def _changed(change: Callable[[bytes], bytes]) -> Make:
    def make(path: Path) -> None:
        sound(path)
        path.write_bytes(change(path.read_bytes()))

    return make


BROKEN_SOUNDS: dict[str, Make] = {
    "empty.wav": text(b""),
    "a page.wav": text("<html></html>"),
    "of no length.wav": lambda path: sound(path, 0),
    "no numbers.wav": _wav_of(np.full(4000, np.nan, np.float32)),
    "infinite.wav": _wav_of(np.full(4000, np.inf, np.float32)),
    "a head alone.wav": _changed(lambda content: content[:20]),
    "no flac.flac": text(b"fLaC" + bytes(60)),
    "no ogg.ogg": text(b"OggS" + b"\xff" * 60),
    "no mp3.mp3": text(b"ID3" + b"\xff" * 60),
}
ODD_SOUNDS: dict[str, Make] = {
    "cut short.wav": _changed(lambda content: content[: len(content) // 2]),
    "says it is longer.wav": _changed(lambda content: content[:40] + b"\xff\xff\xff\x7f" + content[44:]),
    "one sample.wav": lambda path: sound(path, 1),
    "slow.wav": lambda path: sound(path, 40, 1),
    "fast.wav": lambda path: sound(path, 4000, 384_000),
    "of many channels.wav": lambda path: sound(path, 400, 8000, 8),
    "silent.wav": _wav_of(np.zeros(4000, np.float32)),
    "loud.wav": _wav_of(np.full(4000, 1e30, np.float32)),
    "two\nlines.wav": lambda path: sound(path),
}
