"""Loads files written by torch.save. torch executes no code in them, but a small file could take hours or all memory.

So the pickle is first checked without calling anything in it. Dict keys must be strings or integers, because hashing
nested tuples can take days; storages of tensors must have a numeric key; and the copied values must not be longer than
the file.
"""

import io
import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

import torch

FUNCTIONS = {"torch.Size", "torch.device"} | {
    f"torch._utils._rebuild_{name}" for name in ("tensor", "tensor_v2", "tensor_v3", "parameter")
}
LEGACY_PICKLES = 5  # in a file that is not a zip archive: magic number, version, system, content, storages
MAX_KEY = 2**60  # integers from 2**61 - 1 on can all have the same hash
HASHING = (pickle.DICT, pickle.ADDITEMS, pickle.FROZENSET)  # torch does not support these either
PURE_PYTHON: Any = pickle._Unpickler  # whose methods can be replaced


def load_torch_file(path: Path) -> Any:
    """Return the content of a file, on the CPU. A damaged or malicious file can raise almost any exception."""
    if not path.is_file():  # opening a pipe would wait for a writer
        raise pickle.UnpicklingError("it is not a regular file")
    with path.open("rb") as file:
        is_zip = file.read(4) == b"PK\x03\x04"
        file.seek(0)
        if is_zip:
            archive = torch._C.PyTorchFileReader(file)
            if sum(map(archive.get_record_size, archive.get_all_records())) > path.stat().st_size:
                raise pickle.UnpicklingError("its records are longer than the file")
            content = archive.get_record("data.pkl")
            _Inspector(io.BytesIO(content), len(content)).load()
        else:
            _inspect_legacy(file, path.stat().st_size)
        file.seek(0)
        try:
            return torch.load(file, "cpu", weights_only=True)
        except (pickle.UnpicklingError, RuntimeError) as error:
            if "weights_only" not in str(error):
                raise
            raise pickle.UnpicklingError("torch cannot read it safely") from error  # omits torch's advice


def _inspect_legacy(file: BinaryIO, length: int) -> None:
    """Inspect the pickles at the start of a file that is not a zip archive."""
    magic, version, _, _, keys = (_Inspector(file, length).load() for _ in range(LEGACY_PICKLES))
    if not (type(magic) is int and type(version) is int and type(keys) is list and all(map(_is_number, keys))):
        raise pickle.UnpicklingError("it was not written by torch")


class _Dict(dict[Any, Any]):
    """A dict, OrderedDict or Counter with strings or integers as keys."""

    def __init__(self, items: Any = ()) -> None:
        pairs = map(list, items.items()) if isinstance(items, _Dict) else items
        for pair in pairs:
            if type(pair) is not list:  # a Counter would hash it
                raise pickle.UnpicklingError("it contains a dict that was not written by torch")
            key, value = pair
            self[key] = value

    def __setitem__(self, key: Any, value: Any) -> None:
        if type(key) is not str and not (type(key) is int and abs(key) < MAX_KEY):
            raise pickle.UnpicklingError(f"it contains a dict with a key of type {type(key).__name__}")
        super().__setitem__(key, value)

    def __setstate__(self, state: Any) -> None:
        if type(state) is not _Dict:
            raise pickle.UnpicklingError("it contains attributes that are not a dict")


class _Object:
    """The result of any function or class in a pickle."""

    def __init__(self, *args: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        pass


def _to_bytes(text: Any, encoding: Any) -> bytes:
    """Return bytes, which torch writes as text. Other encodings than latin1 can take hours."""
    if type(text) is not str or encoding != "latin1":
        raise pickle.UnpicklingError("it contains bytes that were not written by torch")
    return text.encode("latin1")


class _Inspector(PURE_PYTHON):  # type: ignore[misc]
    """Reads a pickle of tensors without calling its functions; raises an error if torch should not load it."""

    def __init__(self, file: BinaryIO, length: int) -> None:
        super().__init__(file, encoding="utf-8")
        self.length, self.copied = length, 0

    def find_class(self, module: str, name: str) -> Any:
        """Return a placeholder for a function, class or constant."""
        full_name = f"{module}.{name}"
        if full_name in ("collections.OrderedDict", "collections.Counter"):
            return _Dict
        if full_name in FUNCTIONS or full_name in _allowed_by_user():
            return _Object
        if full_name == "_codecs.encode":
            return _to_bytes
        is_storage = module in ("torch", "torch.cuda", "torch.storage") and name.endswith("Storage")
        if is_storage or (module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)):
            return object()
        raise pickle.UnpicklingError(f"it contains {full_name}, which is not part of a tensor")

    def persistent_load(self, pid: Any) -> Any:
        """Return a placeholder for the storage of a tensor."""
        _, _, key, _, _, *view = pid
        if type(pid) is not tuple or not _is_number(key) or view not in ([], [None]):
            raise pickle.UnpicklingError("it contains a storage that was not written by torch")
        return object()

    def load_empty_dict(self) -> None:
        self.append(_Dict())

    def load_reduce(self) -> None:
        self._count_copied(self.stack[-1])
        super().load_reduce()

    def load_build(self) -> None:
        self._count_copied([self.stack[-1]])
        super().load_build()

    def _count_copied(self, values: Iterable[Any]) -> None:
        self.copied += sum(len(value) for value in values if isinstance(value, str | list | tuple | dict))
        if self.copied > self.length:
            raise pickle.UnpicklingError("it contains values that are copied many times")

    dispatch = {  # noqa: RUF012
        **{code: load for code, load in PURE_PYTHON.dispatch.items() if bytes([code]) not in HASHING},
        pickle.EMPTY_DICT[0]: load_empty_dict,
        pickle.REDUCE[0]: load_reduce,
        pickle.BUILD[0]: load_build,
    }


def _is_number(key: Any) -> bool:
    return type(key) is str and key.isascii() and key.isdecimal()


def _allowed_by_user() -> set[str]:
    """Names that the user allows torch to load, for the extra state of custom modules."""
    allowed = torch.serialization.get_safe_globals()
    return {item[1] if isinstance(item, tuple) else f"{item.__module__}.{item.__qualname__}" for item in allowed}
