"""The samples of tar shards; tests/chaos has shards that are damaged or hostile."""

import os
import pickle
import tarfile

import pytest

from imix import InputError
from imix.data.media.tar_index import read_index
from tests.data.media.shards import png, write_shards, write_tar

SUFFIXES = (".png", ".jpg", ".wav")


def test_files_with_the_same_key_are_a_sample(tmp_path):
    files = [
        ("dir/a.png", b"1"),
        ("dir/a.cls", b"3\n"),
        ("dir/b.2.PNG", b"22"),
        ("b.png", b"333"),
        ("b.json", b'{"label": "cat"}'),
        ("c.left.jpg", b"4"),
        ("c.json", b"7"),
        ("dir/b.txt", b"no label"),
        ("statistics.json", b"[]"),
        ("README", b""),
        (".hidden.png", b"not a sample"),
        ("dir/._a.png", b"not a sample"),
    ]
    index = read_index(write_tar(tmp_path / "s.tar", files), SUFFIXES)
    assert [(member.name, label, member.open().read()) for member, label in index] == [
        ("dir/a.png", "3", b"1"),
        ("dir/b.2.PNG", "", b"22"),
        ("b.png", "cat", b"333"),
        ("c.left.jpg", 7, b"4"),
    ]


def test_samples_are_those_of_webdataset(tmp_path):
    wds = pytest.importorskip("webdataset", reason="needs webdataset")
    folder = write_shards(tmp_path / "shards")
    files = [("dir/x.y.png", png(1)), ("dir/x.cls", b"5"), ("z.png", png(2)), ("z.json", b'{"label": 3}')]
    write_tar(folder / "003.tar", files)
    url = f"{folder}/{{000..003}}.tar"
    expected = []
    for sample in wds.WebDataset(url, shardshuffle=False):
        content = next(value for name, value in sample.items() if name.endswith("png"))
        label = sample.get("cls", b"3")
        expected.append((content, label.decode()))
    index = [each for path in sorted(folder.iterdir()) for each in read_index(path, SUFFIXES)]
    assert [(member.open().read(), str(label)) for member, label in index] == expected
    assert len(expected) == 62


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_format_of_tar_with_long_names(tmp_path, format):
    name = "folder/" * 12 + "é" * 30 + ".png"
    index = read_index(write_tar(tmp_path / "s.tar", [(name, b"1" * 1000)], format=format), SUFFIXES)
    assert [(member.name, member.size) for member, _ in index] == [(name, 1000)]


def test_folders_in_a_shard_are_ignored(tmp_path):
    with tarfile.open(tmp_path / "s.tar", "w") as tar:
        folder = tarfile.TarInfo("folder.png")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        tar.addfile(tarfile.TarInfo("folder.png/a.png"))
    assert [member.name for member, _ in read_index(tmp_path / "s.tar", SUFFIXES)] == ["folder.png/a.png"]


def test_members_are_hashable_and_can_be_pickled(tmp_path):
    (member, _), *_ = read_index(write_tar(tmp_path / "s.tar", [("a\x1b.png", b"1")]), SUFFIXES)
    assert pickle.loads(pickle.dumps(member)) == member and hash(member)
    assert str(member) == f"{tmp_path}/s.tar/a\\x1b.png"


def test_a_shard_that_becomes_shorter_is_named(tmp_path):
    index = read_index(write_tar(tmp_path / "s.tar", [("a.png", bytes(2000))]), SUFFIXES)
    os.truncate(tmp_path / "s.tar", 1000)
    with pytest.raises(InputError, match=r"s\.tar has changed: it ends within 'a\.png'"):
        index[0][0].open()


def test_a_truncated_shard_is_named(tmp_path):
    shard = write_tar(tmp_path / "s.tar", [("a.png", bytes(1820))])
    os.truncate(shard, 1000)
    with pytest.raises(InputError, match=r"a\.png is truncated: it should have 1,820 bytes, and the shard has 488"):
        read_index(shard, SUFFIXES)


def test_a_missing_shard_is_named(tmp_path):
    with pytest.raises(InputError, match=r"cannot read .*missing\.tar': No such file"):
        read_index(tmp_path / "missing.tar", SUFFIXES)
