"""The named data sets, one file per family. Nothing here imports torch, so that listing them is fast."""

from importlib import import_module
from pkgutil import iter_modules

from imix.data.named.record import NamedDataset, PaperRecipe

__all__ = ["DATASETS", "NamedDataset", "PaperRecipe", "list_datasets"]

_modules = [module.name for module in iter_modules(__path__) if module.name != "record" and module.name[0] != "_"]
_records: list[NamedDataset] = [
    record for name in _modules for record in import_module(f"imix.data.named.{name}").DATASETS
]
DATASETS = {record.name: record for record in _records}


def list_datasets() -> str:
    """Return a text with one line per named data set."""
    width = max(map(len, DATASETS)) + 2
    return "\n".join(f"{name:<{width}}{data.summary} ({data.availability})" for name, data in DATASETS.items())
