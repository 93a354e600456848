"""The folder for downloaded data sets and decoded audio clips."""

import os
from pathlib import Path

CACHE = Path(os.environ.get("IMIX_CACHE") or "~/.cache/imix").expanduser()
