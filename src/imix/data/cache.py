"""The folder of downloaded and decoded files: the environment variable IMIX_CACHE, or ~/.cache/imix."""

import os
from pathlib import Path
from typing import Any, NoReturn

from imix.errors import InputError


class _NoHome:
    """Replaces the folder if there is no home directory; raises InputError when it is used as a path."""

    def __fspath__(self) -> NoReturn:
        raise InputError("there is no home directory; set the environment variable IMIX_CACHE to a folder")

    def __truediv__(self, name: str) -> NoReturn:
        self.__fspath__()


def _find_cache() -> Any:
    try:
        return Path(os.environ.get("IMIX_CACHE") or "~/.cache/imix").expanduser()
    except RuntimeError:
        return _NoHome()


CACHE: Path = _find_cache()
