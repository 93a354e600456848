"""The folder of downloaded and decoded files."""

import importlib
import os
from pathlib import Path

import pytest

from imix import InputError
from imix.data import cache


def test_without_a_home_directory_only_what_needs_the_folder_is_an_error(monkeypatch):
    def fail(self):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("IMIX_CACHE", raising=False)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "expanduser", fail)
        folder = importlib.reload(cache).CACHE
    importlib.reload(cache)
    for use in (os.fspath, Path, lambda folder: folder / "clips"):
        with pytest.raises(InputError, match="there is no home directory; set the environment variable IMIX_CACHE"):
            use(folder)
