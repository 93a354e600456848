"""Data sets, files, data frames and arrays as training and test samples.

Names are imported on first use, so that `imix.data.named` can be imported without torch.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from imix.data.loading import load
    from imix.data.source import Data, Source, TensorSource
    from imix.data.tables.table import Table

__all__ = ["Data", "Source", "Table", "TensorSource", "load"]

_MODULE_OF = {
    "Data": "source",
    "Source": "source",
    "Table": "tables.table",
    "TensorSource": "source",
    "load": "loading",
}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    import importlib

    if name not in _MODULE_OF:
        raise AttributeError(f"module 'imix.data' has no attribute {name!r}")
    return getattr(importlib.import_module(f"imix.data.{_MODULE_OF[name]}"), name)
