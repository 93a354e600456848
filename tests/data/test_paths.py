"""Patterns that name several files."""

import pytest

from imix import InputError
from imix.data.paths import expand_pattern, is_pattern


@pytest.fixture
def folder(tmp_path):
    for name in ("s-008.tar", "s-009.tar", "s-010.tar", "train-a.csv", "train-b.csv"):
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("s-{008..010}.tar", ["s-008.tar", "s-009.tar", "s-010.tar"]),
        ("s-{8..9}.tar", None),
        ("s-00[89].tar", ["s-008.tar", "s-009.tar"]),
        ("train-{b,a}.csv", ["train-b.csv", "train-a.csv"]),
        ("{s-0{08..09},train-?}.*", ["s-008.tar", "train-a.csv", "train-b.csv", "s-009.tar"]),
        ("*-a.csv", ["train-a.csv"]),
    ],
)
def test_patterns_name_files(folder, pattern, names):
    if names is None:
        with pytest.raises(InputError, match=r"not a file|no file matches"):
            expand_pattern(str(folder / pattern))
    else:
        assert [path.name for path in expand_pattern(str(folder / pattern))] == names


def test_a_missing_file_is_named(folder):
    with pytest.raises(InputError, match=r"s-011.tar', which is not a file \(2 such files\)"):
        expand_pattern(str(folder / "s-{010..012}.tar"))


@pytest.mark.parametrize("pattern", ["s-{0..99999999999}.tar", "{0..999999}{0..999999}.tar", "{a,a}" * 40])
def test_huge_ranges_are_refused(folder, pattern):
    with pytest.raises(InputError, match="name more than 100,000 files"):
        expand_pattern(str(folder / pattern))


def test_existing_files_are_not_patterns(tmp_path):
    (tmp_path / "a[1].csv").touch()
    assert not is_pattern(tmp_path / "a[1].csv")
    assert is_pattern(tmp_path / "a[2].csv")
    assert is_pattern("shards/{000..099}.tar")
    assert not is_pattern("missing.csv")
