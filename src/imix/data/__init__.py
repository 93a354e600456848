"""Data: names, files and arrays in; training and test samples out."""

from pathlib import Path
from typing import Any

from imix.batch import Batch
from imix.data.arrays import from_arrays, read_npy, read_npz
from imix.data.digits import digits
from imix.data.source import Data, Source, Tensors
from imix.errors import InputError

__all__ = ["Data", "Source", "Tensors", "load"]

NAMED = {"digits": digits}
READERS = {".npy": read_npy, ".npz": read_npz}


def load(data: "str | Path | Data | Source | Batch | Any", labels: Any = None) -> Data:
    """Any data as `Data`: a name, a path, arrays or tensors (with `labels` (N,) if there are any), or a `Source`.

    >>> load("digits").train.shape
    (1, 8, 8)
    """
    if isinstance(data, Data):
        return data
    if isinstance(data, Source):
        return Data("given", data)
    if not isinstance(data, str | Path):
        return Data("given", from_arrays(data, labels))
    if labels is not None:
        raise InputError(f"labels belong to arrays; {str(data)!r} brings its own if it has any")
    if str(data) in NAMED:
        return NAMED[str(data)]()
    path = Path(data).absolute()  # a run remembers it
    known = f"known names: {', '.join(NAMED)}; files: {', '.join(READERS)}"
    if not path.exists():
        raise InputError(f"no data set or file {str(data)!r} ({known})")
    if path.suffix not in READERS:
        raise InputError(f"cannot read {str(data)!r} as data ({known})")
    return READERS[path.suffix](path)
