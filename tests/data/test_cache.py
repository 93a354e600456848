"""The folder of downloaded and decoded files."""

from pathlib import Path

import pytest

from imix import InputError
from imix.data.cache import cache_folder


def test_a_variable_names_the_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("IMIX_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.setenv("IMIX_CACHE", "")
    assert cache_folder() == Path.home() / ".cache" / "imix"


def test_without_a_home_directory_the_variable_is_needed(monkeypatch):
    def fail(self):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("IMIX_CACHE", raising=False)
    monkeypatch.setattr(Path, "expanduser", fail)
    with pytest.raises(InputError, match="there is no home directory; set the environment variable IMIX_CACHE"):
        cache_folder()
