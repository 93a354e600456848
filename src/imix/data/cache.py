"""Where data sets that were fetched, and clips that were decoded, are kept."""

import os
from pathlib import Path

CACHE = Path(os.environ.get("IMIX_CACHE") or "~/.cache/imix").expanduser()
