"""Checkpoints: all that a run needs to go on."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from imix.errors import InputError, first_line
from imix.files import write_atomically


def save(path: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint."""
    write_atomically(path, lambda file: torch.save(state, file), _size(state))


def load(path: Path) -> dict[str, Any]:
    """Read a checkpoint; nothing in it can execute code."""
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file fails in many ways, all of them the file's fault
        raise InputError(
            f"checkpoint {path} is damaged or not a checkpoint ({first_line(error)}); start anew with --overwrite"
        ) from error
    kinds = {"learner": dict, "optimizer": dict, "epoch": int, "step": int, "losses": Tensor}
    if not isinstance(state, dict) or not all(isinstance(state.get(name), kind) for name, kind in kinds.items()):
        raise InputError(f"{path} is not a checkpoint of imix; start anew with --overwrite")
    return state


def _size(value: Any) -> int:
    """Bytes of all tensors in nested dicts and lists."""
    if isinstance(value, Tensor):
        return value.nbytes
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return sum(map(_size, inside))
