"""The folder of downloaded and decoded files."""

import os
from pathlib import Path

from imix.errors import InputError


def cache_folder() -> Path:
    """Return the folder that the environment variable IMIX_CACHE names, or ~/.cache/imix."""
    try:
        return Path(os.environ.get("IMIX_CACHE") or "~/.cache/imix").expanduser()
    except RuntimeError as error:
        raise InputError("there is no home directory; set the environment variable IMIX_CACHE to a folder") from error
