"""checkpoint.pt: everything that is needed to resume a run."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from imix.errors import InputError, first_line
from imix.files import write_atomically

REQUIRED_TYPES = {"learner": dict, "optimizer": dict, "epoch": int, "step": int, "losses": Tensor}


def save(path: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint."""
    write_atomically(path, lambda file: torch.save(state, file), _nbytes(state))


def load(path: Path) -> dict[str, Any]:
    """Read a checkpoint. Loading cannot execute code (weights_only=True)."""
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file can raise almost any exception
        raise InputError(
            f"checkpoint {path} is damaged or not a checkpoint ({first_line(error)}); start over with `overwrite=True`"
        ) from error
    if not isinstance(state, dict) or not all(isinstance(state.get(k), t) for k, t in REQUIRED_TYPES.items()):
        raise InputError(f"{path} is not a checkpoint written by imix; start over with `overwrite=True`")
    return state


def _nbytes(value: Any) -> int:
    """Total size of the tensors in nested dicts and lists."""
    if isinstance(value, Tensor):
        return value.nbytes
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return sum(map(_nbytes, items))
