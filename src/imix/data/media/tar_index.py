"""Index of the samples in a tar shard (WebDataset's layout). Samples are read by offset; nothing is extracted.

The files of a sample have the same name up to the first dot: `0001.jpg` and `0001.cls`, or `0001.json` with a "label".
"""

import io
import json
import os
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from imix.errors import InputError, first_line, printable

MAX_READ = 1 << 20  # bytes of a header or label; malicious ones claim more
SAMPLE_FILE = re.compile(r"((?:.*/)?[^./][^/.]*)\.([^/]+)", re.DOTALL)  # key and extension
LABEL_KEYS = ("label", "cls", "class")  # in a .json file


class Member(NamedTuple):
    """A file in a shard. As with a `Path`, `open` reads it, `stat` returns its size and times, and `str` its name."""

    shard: Path
    name: str
    offset: int
    size: int

    def open(self, mode: str = "rb") -> BinaryIO:
        """Return the content as an open file."""
        with open(self.shard, "rb") as file:
            file.seek(self.offset)
            content = file.read(self.size)
        if len(content) < self.size:
            raise InputError(f"{self.shard} has changed: it ends within {printable(self.name)!r}")
        return io.BytesIO(content)

    def stat(self) -> os.stat_result:
        """Return the size and times of the shard."""
        return self.shard.stat()

    def __str__(self) -> str:
        return f"{self.shard}/{printable(self.name)}"


def read_index(shard: Path, suffixes: tuple[str, ...]) -> list[tuple[Member, Any]]:
    """Return the files with these suffixes and their labels, "" for files without one, in the order of the shard."""
    samples: dict[str, dict[str, Member]] = {}
    index = []
    try:
        with open(shard, "rb") as file:
            for member in _members(file, shard):
                if match := SAMPLE_FILE.fullmatch(member.name):
                    files = samples.setdefault(match[1], {})
                    if files.setdefault(match[2].lower(), member) is not member:
                        raise InputError(f"{member} is in the shard twice")
            for key, files in samples.items():
                media = [member for extension, member in files.items() if f".{extension}".endswith(suffixes)]
                if len(media) > 1:
                    raise InputError(f"sample {printable(key)!r} of {shard} has {len(media)} images or audio files")
                if media:
                    index.append((media[0], _read_label(file, files)))
                elif "cls" in files:
                    raise InputError(f"sample {printable(key)!r} of {shard} has a label, but no image or audio file")
    except OSError as error:
        raise InputError(f"cannot read {str(shard)!r}: {error.strerror or error}") from error
    if not index:
        raise InputError(f"{str(shard)!r} contains no samples (files named KEY.jpg, KEY.wav and so on)")
    return index


def _members(file: BinaryIO, shard: Path) -> Iterator[Member]:
    """Yield the regular files of a shard; raise InputError for anything else but folders, and for damaged shards."""
    end, position = os.fstat(file.fileno()).st_size, -1
    try:
        headers = _Headers(file)
        tar: Any = tarfile.TarFile(fileobj=headers)  # type: ignore[arg-type]
        while (info := tar.next()) is not None:
            tar.members.clear()
            headers.allowed = MAX_READ
            if info.isdir():
                continue
            member = Member(shard, info.name, info.offset_data, info.size)
            if not info.isreg() or info.issparse():
                raise InputError(f"{member} is not a regular file but a link, device or sparse file")
            if not (position < info.offset_data and info.size >= 0):
                raise InputError(f"{member} claims an impossible size of {info.size:,} bytes")
            if info.size > (left := max(0, end - info.offset_data)):
                raise InputError(
                    f"{member} is truncated: it should have {info.size:,} bytes, and the shard has {left:,}"
                )
            position = info.offset_data
            yield member
        file.seek(tar.offset)
        if file.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
            raise tarfile.ReadError(f"no valid header or end of the archive at byte {tar.offset:,}")
    except (tarfile.TarError, RecursionError, ValueError, OverflowError, EOFError) as error:
        if isinstance(error, InputError):
            raise
        packed = {b"\x1f\x8b": "gzip", b"BZ": "bzip2", b"\x28\xb5": "zstd", b"\xfd7": "xz"}
        file.seek(0)
        compression = packed.get(file.read(2))
        reason = f"it is compressed with {compression}; decompress it first" if compression else first_line(error)
        raise InputError(f"cannot read {str(shard)!r} as .tar; it may be truncated or damaged: {reason}") from error


class _Headers:
    """A shard from which `allowed` bytes of headers can be read, so that malicious ones cannot exhaust memory."""

    def __init__(self, file: BinaryIO) -> None:
        self.seek, self.tell, self._read = file.seek, file.tell, file.read
        self.allowed = MAX_READ

    def read(self, size: int) -> bytes:
        self.allowed -= size
        if size < 0 or self.allowed < 0:
            raise tarfile.ReadError(f"the headers of a file take more than {MAX_READ:,} bytes")
        return self._read(size)


def _read_label(file: BinaryIO, files: dict[str, Member]) -> Any:
    """Return the label in the .cls or .json file of a sample, "" if it has none."""
    member = files.get("cls") or files.get("json")
    if member is None:
        return ""
    if member.size > MAX_READ:
        raise InputError(f"{member} has {member.size:,} bytes, too many for a label")
    file.seek(member.offset)
    content = file.read(member.size)
    try:
        text = content.decode().strip()
        label = text if "cls" in files else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{member} is not a label: {first_line(error)}") from error
    if isinstance(label, dict):
        label = next((label[key] for key in LABEL_KEYS if key in label), "")
    if not isinstance(label, str | int | float | None):
        raise InputError(f"{member} is not a label, but a {type(label).__name__}")
    return "" if label is None else label
