"""encoder.safetensors: what a run makes, with its architecture in the header. Nothing is ever unpickled."""

import json
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from imix import encoders
from imix.config import read_config
from imix.data.mel import Clip, LogMel
from imix.data.standardise import Standardise
from imix.errors import InputError, first_line
from imix.files import write_bytes


def assemble(architecture: dict[str, Any], encoder: nn.Module | None = None) -> nn.Sequential:
    """What a run makes: standardisation, mel pictures of sounds, or nothing; and the encoder, by name or as given."""
    shape = architecture["shape"]
    clip = Clip(**architecture["clip"]) if architecture.get("clip") else None
    if encoder is None:
        if shape is None:
            raise InputError("samples with several fields need an encoder of your own; give encoder=...")
        encoder = encoders.build(architecture["encoder"], clip.shape if clip else shape, architecture["groups"])
    if clip is not None:
        front: nn.Module = LogMel(clip)
    else:
        front = Standardise(shape[0]) if architecture["standardise"] and shape else nn.Identity()
    return nn.Sequential(OrderedDict(standardise=front, encoder=encoder))


def save_encoder(path: Path, encoder: nn.Sequential, architecture: dict[str, Any]) -> None:
    """Write the encoder with its architecture, so that the file alone is enough to load it."""
    from safetensors.torch import save

    # Copies, since weights that are shared within an encoder are refused.
    state = {name: value.detach().cpu().clone().contiguous() for name, value in encoder.state_dict().items()}
    write_bytes(path, save(state, {"imix": json.dumps(architecture)}))


def load_encoder(path: str | Path, encoder: nn.Module | None = None) -> nn.Sequential:
    """The encoder of a run, (N, ...) raw inputs to (N, F) features, in evaluation mode.

    Raw inputs are images (N, C, H, W) of the run's size, as bytes or floats in 0..1; waveforms (N, 1, L) in -1..1 of
    its rate and length; arrays as they were given. Of a table they are what its columns become: see `embed`.

    `path` is a run folder or an encoder.safetensors. The result is `Sequential(standardise, encoder)`; its last part,
    `load_encoder(path)[-1]`, is the plain backbone. `encoder` is the module to fill where a run was made with one of
    your own.
    """
    if not isinstance(path, str | Path):
        raise InputError(f"load_encoder takes a run folder or a file, and a Run has its encoder; got {path!r}")
    architecture, state = read_encoder(path)
    if architecture["encoder"] == "custom" and encoder is None:
        raise InputError(
            f"{str(path)!r} holds weights of an encoder of your own, which only Python can fill: "
            f"imix.load_encoder(path, module), or imix.Run.load(folder, module) for evaluate, embed and report"
        )
    if encoder is None:
        _check_fit(path, architecture, state)
    whole = assemble(architecture, encoder)
    try:
        whole.load_state_dict(state)
    except RuntimeError as error:
        raise InputError(
            f"the weights in {str(path)!r} do not fit the encoder: {str(error).splitlines()[-1].strip()}"
        ) from error
    return whole.eval()


def read_encoder(path: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The architecture and the weights in a run folder or an encoder.safetensors."""
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    if path.is_dir():
        read_config(path)
        path = path / "encoder.safetensors"
    if not path.is_file():
        raise InputError(f"no encoder at {str(path)!r}: the run is not finished, or this is not a run")
    try:
        with open(path, "rb") as held, safe_open(_called(path, held.fileno()), "pt") as file:
            architecture = json.loads((file.metadata() or {})["imix"])
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, KeyError, ValueError, OSError) as error:
        raise InputError(f"{str(path)!r} is not an encoder written by imix: {error}") from error
    if not isinstance(architecture, dict) or not {"encoder", "shape", "groups", "standardise"} <= architecture.keys():
        raise InputError(f"{str(path)!r} is not an encoder written by imix: its architecture is not known")
    return architecture, state


def _called(path: Path, number: int) -> str:
    """A path that safetensors takes: by its name, or where that is no UTF-8, by the number under which it is open."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return f"/dev/fd/{number}"
    return str(path)


def _check_fit(path: str | Path, architecture: dict[str, Any], state: Mapping[str, Tensor]) -> None:
    """Refuse a file whose weights are not those of the encoder it names, before that takes any memory."""
    if str(architecture["encoder"]).startswith("timm:"):  # its models are as large as they are
        return
    try:
        with torch.device("meta"):
            expected = assemble(architecture).state_dict()
    except InputError:
        raise
    except Exception as error:  # what a file says may be anything
        raise InputError(f"{str(path)!r} names no encoder that can be made: {first_line(error)}") from error
    for name in (*expected, *state):
        wanted, found = (tuple(at[name].shape) if name in at else None for at in (expected, state))
        if wanted != found:
            raise InputError(
                f"the weights in {str(path)!r} do not fit the encoder: {name} has shape {found}, not {wanted}"
            )
