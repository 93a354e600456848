"""Tar shards that are damaged or hostile: refused in one line, and nothing is extracted."""

import os
import random
import tarfile

import pytest

from imix import InputError
from imix.data import load
from imix.data.media.tar_index import read_index
from tests.chaos.processes import EXIT_BAD_INPUT, run_command
from tests.data.media.shards import png, write_tar

SUFFIXES = (".png",)


def entry(name="a.png", type=tarfile.REGTYPE, size=0, content=b"", link=""):
    """A header with this size, whatever the content is, and the content."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname = type, link
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[124:136] = b"\x80" + size.to_bytes(11, "big") if size >= 0 else b"\xff" + (2**88 + size).to_bytes(11, "big")
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + content + bytes(-len(content) % 512)


def pax(**headers):
    """A pax header with these records."""
    records = b""
    for key, value in headers.items():
        record = f" {key}={value}\n".encode()
        length = next(n for n in range(999) if n == len(str(n)) + len(record))
        records += str(length).encode() + record
    return entry("pax", tarfile.XHDTYPE, len(records), records)


END = bytes(1024)
GOOD = entry("a.png", size=3, content=b"abc")
HOSTILE = {
    "empty file": (b"", "empty"),
    "zeros": (END, "no samples"),
    "text": (b"this is not a tar file" * 100, "truncated or damaged"),
    "gzip": (b"\x1f\x8b" + bytes(2000), "compressed with gzip"),
    "without an end": (GOOD, "no valid header or end"),
    "cut in a header": (GOOD + GOOD[:100], "no valid header or end"),
    "damaged second header": (GOOD + b"x" * 1024 + END, "no valid header or end"),
    "larger than the file": (entry(size=2**40, content=b"abc") + END, "1,099,511,627,776 bytes"),
    "negative size": (GOOD + entry("b.png", size=-1024) + END, "impossible size"),
    "negative size in pax": (GOOD + pax(size=-4096) + entry("b.png") + END, "impossible size"),
    "symbolic link": (GOOD + entry("b.png", tarfile.SYMTYPE, link="/etc/passwd") + END, "b.png is not a regular file"),
    "hard link": (GOOD + entry("b.png", tarfile.LNKTYPE, link="a.png") + END, "b.png is not a regular file"),
    "device": (GOOD + entry("b.png", tarfile.CHRTYPE) + END, "b.png is not a regular file"),
    "pipe": (GOOD + entry("b.png", tarfile.FIFOTYPE) + END, "b.png is not a regular file"),
    "unknown type": (GOOD + entry("b.png", b"Z", size=-1536) + END, "b.png is not a regular file"),
    "sparse": (entry("a.png", tarfile.GNUTYPE_SPARSE, size=3, content=b"abc") + END, "a.png is not a regular file"),
    "sparse in pax": (
        pax(**{"GNU.sparse.size": 9, "GNU.sparse.numblocks": 1, "GNU.sparse.map": "0,9"}) + GOOD + END,
        "a.png is not a regular file",
    ),
    "long name larger than memory": (entry("L", tarfile.GNUTYPE_LONGNAME, size=2**50) + END, "more than 1,048,576"),
    "long name of negative size": (entry("L", tarfile.GNUTYPE_LONGNAME, size=-1) + END, "more than 1,048,576|damaged"),
    "pax header larger than memory": (entry("p", tarfile.XHDTYPE, size=2**50) + END, "more than 1,048,576"),
    "endless headers": (
        entry("L", tarfile.GNUTYPE_LONGNAME, 4, b"abc\0") * 5000 + GOOD + END,
        "may be truncated or damaged",
    ),
    "many long headers": (entry("p", tarfile.XHDTYPE, 0) * 5000 + GOOD + END, "more than 1,048,576|damaged"),
    "twice": (GOOD + GOOD + END, "a.png is in the shard twice"),
    "two images": (GOOD + entry("a.jpg") + END, "sample 'a' of .* has 2 images or audio files"),
    "label without an image": (GOOD + entry("b.cls") + END, "sample 'b' of .* has a label, but no image"),
    "no samples": (entry("b.txt") + END, "contains no samples"),
    "label is not text": (GOOD + entry("a.cls", size=2, content=b"\xff\xfe") + END, "a.cls is not a label"),
    "label is not json": (GOOD + entry("a.json", size=1, content=b"{") + END, "a.json is not a label"),
    "deep json": (GOOD + entry("a.json", size=300_000, content=b"[" * 300_000) + END, "a.json is not a label"),
    "label is a list": (GOOD + entry("a.json", size=2, content=b"[]") + END, "a.json is not a label, but a list"),
    "huge label": (GOOD + entry("a.cls", size=2**21, content=bytes(2**21)) + END, "2,097,152 bytes, too many"),
    "terminal escapes": (entry("\x1b[31m.png", tarfile.SYMTYPE) + END, r"\\x1b\[31m.png is not a regular file"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_damaged_and_hostile_shards_are_refused_in_one_line(tmp_path, name):
    content, message = HOSTILE[name]
    (tmp_path / "s.tar").write_bytes(content)
    with pytest.raises(InputError, match=message) as error:
        load(tmp_path / "s.tar")
    assert str(tmp_path / "s.tar") in str(error.value)
    assert str(error.value).isprintable()
    assert os.listdir(tmp_path) == ["s.tar"], "nothing is extracted"


@pytest.mark.parametrize("name", ["../../outside.png", "/tmp/outside.png", "a/../../b.png"])
def test_names_that_leave_the_folder_are_only_names(tmp_path, name):
    index = read_index(write_tar(tmp_path / "inner" / "s.tar", [(name, b"1")]), SUFFIXES)
    assert [member.open().read() for member, _ in index] == [b"1"]
    assert os.listdir(tmp_path) == ["inner"] and os.listdir(tmp_path / "inner") == ["s.tar"]


def test_a_truncated_shard_is_refused_wherever_it_ends(tmp_path):
    content = write_tar(tmp_path / "s.tar", [(f"{i}.png", bytes(700)) for i in range(3)]).read_bytes()
    data_end = 3 * (512 + 1024)
    for end in [*range(1, 2000, 173), *range(2000, data_end, 512), data_end]:
        (tmp_path / "s.tar").write_bytes(content[:end])
        with pytest.raises(InputError):
            read_index(tmp_path / "s.tar", SUFFIXES)


def test_a_shard_with_random_changes_is_refused_or_read(tmp_path):
    content = write_tar(tmp_path / "s.tar", [(f"{i}.png", b"x" * 700) for i in range(5)]).read_bytes()
    rng = random.Random(0)
    for _ in range(300):
        changed = bytearray(content)
        for _ in range(3):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        (tmp_path / "s.tar").write_bytes(changed)
        try:
            index = read_index(tmp_path / "s.tar", SUFFIXES)
        except InputError:
            continue
        assert all(len(member.open().read()) == member.size for member, _ in index)


def test_the_command_refuses_a_damaged_shard_and_writes_no_run(tmp_path):
    write_tar(tmp_path / "shards" / "0.tar", [(f"{i}.png", png(i)) for i in range(8)])
    (tmp_path / "shards" / "1.tar").write_bytes(HOSTILE["symbolic link"][0])
    result = run_command("pretrain", tmp_path / "shards", "--out", tmp_path / "run", folder=tmp_path)
    assert result.code == EXIT_BAD_INPUT
    assert result.last_line.startswith(f"imix: {tmp_path}/shards/1.tar/b.png is not a regular file"), result.stderr
    assert not (tmp_path / "run").exists()
