"""matplotlib figures as SVG or PNG files. Neither pyplot nor global settings are touched."""

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from imix.errors import InputError
from imix.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def require_matplotlib() -> None:
    """InputError with the pip command if matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise InputError("figures need an extra: pip install 'imix-ssl[figures]'")


@contextmanager
def figure_file(path: Path, width: float, height: float) -> Iterator["Figure"]:
    """Yield an empty figure, with its size in inches, and write it to `path` afterwards."""
    require_matplotlib()
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(
        {
            "svg.fonttype": "none",  # text stays text
            "svg.hashsalt": "imix",  # not random
            "savefig.bbox": "tight",
            "text.parse_math": False,  # names may contain dollar signs
        }
    ):
        figure = Figure((width, height), dpi=100)
        yield figure
        kind, metadata = path.suffix[1:], {"Date": None}  # without a date, the same figure gives the same file
        write_atomically(path, lambda file: figure.savefig(file, format=kind, metadata=metadata))
