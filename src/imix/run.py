"""A run folder, and the encoder in it.

    config.json           what was run, on what, with which versions; how columns of a table become numbers
    metrics.jsonl         one record every few steps
    checkpoint.pt         everything needed to go on, atomically replaced
    encoder.safetensors   the result: standardisation and encoder, with their architecture in the header
    evaluations.jsonl     what `imix evaluate` found

Nothing is ever unpickled from it.
"""

import json
import shutil
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from imix import encoders
from imix.data import Table
from imix.data.mel import Clip, LogMel
from imix.data.standardise import Standardise
from imix.errors import InputError
from imix.settings import Reading, Settings
from imix.train.checkpoint import read_lines, write_atomically


@dataclass
class Run:
    """A finished run: its encoder, its configuration, its metrics, and its folder if it has one."""

    encoder: nn.Sequential
    config: dict[str, Any]
    metrics: list[dict[str, Any]] = field(default_factory=list)
    path: Path | None = None

    @property
    def settings(self) -> Settings:
        """How it was trained."""
        return Settings(**self.config["settings"])

    @property
    def reading(self) -> Reading:
        """How the run's data was read."""
        return Reading(**self.config["data"].get("reading", {}))

    @property
    def table(self) -> Table | None:
        """How the columns of the run's table became numbers, if it was one."""
        table = self.config["data"].get("table")
        return None if table is None else Table.from_json(table)

    @classmethod
    def load(cls, path: str | Path, encoder: nn.Module | None = None) -> "Run":
        """Read a run folder; `encoder` is the module to fill where a run was made with one of your own."""
        path = Path(path)
        config = read_config(path)
        return cls(load_encoder(path, encoder), config, read_lines(path / "metrics.jsonl"), path)


def read_config(path: Path) -> dict[str, Any]:
    """The configuration of the run in a folder."""
    if not path.is_dir():
        raise InputError(f"no run folder {str(path)!r}")
    try:
        config = json.loads((path / "config.json").read_text())
        config["settings"], config["data"], config["architecture"], config["machine"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{str(path)!r} is not a run folder: it has no config.json of imix") from error
    return config


def clear(path: Path) -> None:
    """Remove the run from a folder; other files in it stay."""
    files = (
        "metrics.jsonl",
        "checkpoint.pt",
        "encoder.safetensors",
        "evaluations.jsonl",
        "detection.pt",
        "config.json",
    )
    for name in files:
        (path / name).unlink(missing_ok=True)
        (path / f".{name}.unfinished").unlink(missing_ok=True)
    shutil.rmtree(path / "tensorboard", ignore_errors=True)


def assemble(architecture: dict[str, Any], encoder: nn.Module | None = None) -> nn.Sequential:
    """What a run makes: standardisation, mel pictures of sounds, or nothing; and the encoder, by name or as given."""
    shape = architecture["shape"]
    clip = Clip(**architecture["clip"]) if architecture.get("clip") else None
    if encoder is None:
        if shape is None:
            raise InputError("samples with several fields need an encoder of your own; give encoder=...")
        encoder = encoders.build(architecture["encoder"], clip.shape if clip else shape, architecture["groups"])
    if clip is not None:
        first: nn.Module = LogMel(clip)
    else:
        first = Standardise(shape[0]) if architecture["standardise"] and shape else nn.Identity()
    return nn.Sequential(OrderedDict(standardise=first, encoder=encoder))


def save_encoder(path: Path, encoder: nn.Sequential, architecture: dict[str, Any]) -> None:
    """Write the encoder with its architecture, so that the file alone is enough to load it."""
    from safetensors.torch import save

    # Copies, since weights that are shared within an encoder are refused.
    state = {name: value.detach().cpu().clone().contiguous() for name, value in encoder.state_dict().items()}
    content = save(state, {"imix": json.dumps(architecture)})

    def write(unfinished: Path) -> None:
        unfinished.write_bytes(content)

    write_atomically(path, write)


def load_encoder(path: str | Path, encoder: nn.Module | None = None) -> nn.Sequential:
    """The encoder of a run, (N, ...) raw inputs to (N, F) features, in evaluation mode.

    `path` is a run folder or an encoder.safetensors. The result is `Sequential(standardise, encoder)`; its last part,
    `load_encoder(path)[-1]`, is the plain backbone. `encoder` is the module to fill where a run was made with one of
    your own.
    """
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    if path.is_dir():
        read_config(path)
        path = path / "encoder.safetensors"
    if not path.is_file():
        raise InputError(f"no encoder at {str(path)!r}: the run is not finished, or this is not a run")
    try:
        with safe_open(path, "pt") as file:
            architecture = json.loads((file.metadata() or {})["imix"])
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, KeyError, ValueError, OSError) as error:
        raise InputError(f"{str(path)!r} is not an encoder written by imix: {error}") from error
    if architecture["encoder"] == "custom" and encoder is None:
        raise InputError(f"{str(path)!r} holds weights of an encoder of your own; give that module as encoder=...")
    whole = assemble(architecture, encoder)
    try:
        whole.load_state_dict(state)
    except RuntimeError as error:
        raise InputError(
            f"the weights in {str(path)!r} do not fit the encoder: {str(error).splitlines()[-1]}"
        ) from error
    return whole.eval()
