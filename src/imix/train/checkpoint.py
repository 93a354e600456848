"""Files that are either whole or not there: checkpoints, and JSON beside them."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from imix.errors import InputError


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` make the file under another name, then put it in its place in one step."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    write(unfinished)
    with open(unfinished, "rb+") as file:
        os.fsync(file.fileno())
    os.replace(unfinished, path)


def save(path: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint."""
    write_atomically(path, lambda unfinished: torch.save(state, unfinished))


def load(path: Path) -> dict[str, Any]:
    """Read a checkpoint; nothing in it can execute code."""
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file fails in many ways, all of them the file's fault
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"checkpoint {path} is damaged or not a checkpoint ({reason}); start anew with --overwrite"
        ) from error
    if not isinstance(state, dict) or not {"learner", "optimizer", "epoch", "step", "losses"} <= state.keys():
        raise InputError(f"{path} is not a checkpoint of imix; start anew with --overwrite")
    return state


def write_text(path: Path, text: str) -> None:
    """Write a text file."""

    def write(unfinished: Path) -> None:
        unfinished.write_text(text, encoding="utf-8")

    write_atomically(path, write)


def write_json(path: Path, value: Any) -> None:
    """Write JSON that people can read."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def write_lines(path: Path, records: list[dict[str, Any]]) -> None:
    """Write one JSON record a line."""
    write_text(path, "".join(json.dumps(record) + "\n" for record in records))


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read one JSON record a line; a last line that was cut short does not count."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines[:-1]]
