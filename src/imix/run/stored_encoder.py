"""encoder.safetensors: a run's encoder with its architecture in the header. No pickle is involved.

model.safetensors of an export is the same for other libraries: its weights have the names of the plain backbone, and
mean and std of the input layer are in the header.
"""

import json
import math
import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from imix import encoders
from imix.encoders.mel import LogMel
from imix.encoders.standardize import Standardize
from imix.errors import InputError, first_line
from imix.files import write_bytes
from imix.run.config import Architecture, read_config
from imix.typed_json import build

ENCODER_FILE, EXPORTED_FILE = "encoder.safetensors", "model.safetensors"
MAX_NAME_LENGTH = 300
PROGRESS = re.compile(r"epoch \d{1,18} of \d{1,18}, step \d{1,18} of \d{1,18}", re.ASCII)


@dataclass(frozen=True)
class _InputStatistics:
    """State of the input layer, in the header of an exported file; empty if it has none."""

    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()


def is_export(folder: Path) -> bool:
    """Whether a folder was written by `imix.export`."""
    return (folder / EXPORTED_FILE).is_file() and not (folder / ENCODER_FILE).is_file()


def encoder_file(folder: Path) -> Path:
    """Return the path of the encoder in a run folder or an export."""
    return folder / (EXPORTED_FILE if is_export(folder) else ENCODER_FILE)


def assemble(architecture: Architecture, encoder: nn.Module | None = None, pretrained: bool = False) -> nn.Sequential:
    """Build a run's model, `Sequential(preprocess, encoder)`, with a user-supplied encoder if one is passed.

    `preprocess` is a log-mel spectrogram for audio, standardization if enabled, and otherwise the identity.
    With `pretrained`, a timm model gets the weights that its name refers to.
    """
    shape, clip = architecture.shape, architecture.clip
    if encoder is None:
        if shape is None:
            raise InputError("samples with several fields need a user-supplied encoder; pass `encoder=MODULE`")
        input_shape = clip.shape if clip else shape
        encoder = encoders.build(architecture.encoder, input_shape, architecture.groups, pretrained=pretrained)
    preprocess: nn.Module
    if clip is not None:
        preprocess = LogMel(clip)
    else:
        preprocess = Standardize(shape[0]) if architecture.standardize and shape else nn.Identity()
    return nn.Sequential(OrderedDict(preprocess=preprocess, encoder=encoder))


def format_progress(done: int, epochs: int, steps_per_epoch: int) -> str:
    """Describe how far a run is after `done` steps, with the epoch of the last step."""
    return f"epoch {math.ceil(done / steps_per_epoch)} of {epochs}, step {done} of {epochs * steps_per_epoch}"


def save_encoder(
    path: Path, state: Mapping[str, Tensor], architecture: Architecture, progress: str | None = None
) -> None:
    """Write an encoder's weights and architecture, so that it can be loaded from this file alone.

    `progress` says how far the training is, for example "epoch 12 of 200"; None if it is finished.
    """
    from safetensors.torch import save

    header = asdict(architecture) | ({"progress": progress} if progress else {})
    write_bytes(path, save(_copied(state), {"imix": json.dumps(header)}))  # one entry, because their order is random


def save_exported_encoder(
    path: Path, encoder: nn.Sequential, architecture: Architecture, progress: str | None = None
) -> None:
    """Write a run's encoder with the names of its plain backbone, so that other libraries can load it too."""
    from safetensors.torch import save

    statistics = {name: value.tolist() for name, value in encoder[0].state_dict().items()}
    header = asdict(architecture) | {"input_statistics": statistics} | ({"progress": progress} if progress else {})
    metadata = {"format": "pt", "imix": json.dumps(header)}  # some libraries require the format
    write_bytes(path, save(_copied(encoder[1].state_dict()), metadata))


def _copied(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copy every tensor, because safetensors rejects tensors that share memory."""
    return {name: value.detach().cpu().clone().contiguous() for name, value in state.items()}


def load_encoder(path: str | Path, encoder: nn.Module | None = None) -> nn.Sequential:
    """Load a run's encoder in evaluation mode.

    Parameters
    ----------
    path : str or Path
        A run folder, an encoder.safetensors file, or a folder that `imix.export` wrote for Hugging Face.
    encoder : nn.Module, optional
        The module to load the weights into. Required if the run was trained with a user-supplied encoder, because the
        file stores its weights but not its code.

    Returns
    -------
    nn.Sequential
        Maps raw inputs (N, ...) to features (N, F). Raw inputs are images (N, C, H, W) of the training size, as uint8
        or floats in [0, 1]; waveforms (N, 1, L) in [-1, 1] with the sample rate and length of the training data; or
        arrays as they were passed to `pretrain`. For tables they are the encoded columns; use `imix.embed` for those.
        The submodules are named `preprocess` and `encoder`, so `load_encoder(path)[-1]` is the plain backbone.

    Examples
    --------
    >>> import tempfile
    >>> settings = imix.Settings(epochs=1, device="cpu")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = imix.pretrain(torch.randn(64, 5), settings, out=folder, progress=False)
    ...     encoder = imix.load_encoder(folder)
    >>> encoder(torch.randn(8, 5)).shape
    torch.Size([8, 256])
    """
    if not isinstance(path, str | Path):
        raise InputError(f"path must be a run folder or an encoder file; got {path!r} (for a Run, use run.encoder)")
    return load_with_progress(path, encoder)[0]


def load_with_progress(path: str | Path, encoder: nn.Module | None = None) -> tuple[nn.Sequential, str | None]:
    """Load a run's encoder, and how far its training was; None if it was finished."""
    architecture, state, progress = read_encoder(path)
    if architecture.is_custom and encoder is None:
        raise InputError(
            f"{str(path)!r} contains the weights of a user-supplied encoder; pass the module to load them into: "
            f"imix.load_encoder(path, module), or imix.load_run(folder, module) for evaluate, embed and report"
        )
    if encoder is None and not architecture.encoder.startswith("timm:"):  # the name of a timm model determines its size
        _load_weights(path, _without_memory(path, architecture), state, assign=True)
    model = assemble(architecture, encoder)
    _load_weights(path, model, state)
    return model.eval(), progress


def _without_memory(path: str | Path, architecture: Architecture) -> nn.Sequential:
    """Build the model without its weights: the header of a damaged or malicious file can describe any size."""
    try:
        with torch.device("meta"):
            return assemble(architecture)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"cannot build the encoder described in {str(path)!r}: {first_line(error)}") from error


def _load_weights(path: str | Path, model: nn.Sequential, state: dict[str, Tensor], assign: bool = False) -> None:
    try:
        model.load_state_dict(state, assign=assign)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise InputError(f"the weights in {str(path)!r} do not match the encoder: {reason}") from error


def read_encoder(path: str | Path) -> tuple[Architecture, dict[str, Tensor], str | None]:
    """Read the architecture, the weights and the progress from a run folder or an encoder.safetensors file."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    path = Path(path)
    if path.is_dir():
        read_config(path)
        path = encoder_file(path)
    if not path.is_file():
        raise InputError(
            f"no encoder at {str(path)!r}: the run has written no checkpoint yet, or this is not a run folder"
        )
    try:
        content = path.read_bytes()  # not safe_open, which refuses names that are not valid UTF-8
        state = load(content)
        header_size = int.from_bytes(content[:8], "little")
        header = json.loads(json.loads(content[8 : 8 + header_size])["__metadata__"]["imix"])
        progress, statistics = header.pop("progress", None), header.pop("input_statistics", None)
        architecture = build(Architecture, header, "architecture")
        if max(len(architecture.groups), architecture.encoder.count("-")) > len(state):
            raise InputError("its header describes more layers than it contains")
        if len(architecture.encoder) > MAX_NAME_LENGTH:
            raise InputError(f"the name of the architecture has more than {MAX_NAME_LENGTH} characters")
        if progress is not None and not PROGRESS.fullmatch(progress):
            raise InputError("its progress is not of the form 'epoch 12 of 200, step 57 of 1000'")
        if statistics is not None:
            state = _with_statistics(state, build(_InputStatistics, statistics, "input_statistics"))
        return architecture, state, progress
    except (
        SafetensorError,
        KeyError,
        TypeError,
        AttributeError,
        ValueError,
        OSError,
        OverflowError,
        RecursionError,
    ) as error:
        raise InputError(f"{str(path)!r} is not an encoder written by imix: {first_line(error)}") from error


def _with_statistics(backbone: dict[str, Tensor], statistics: _InputStatistics) -> dict[str, Tensor]:
    """Return the state of a run's model from the contents of an exported file."""
    state = {
        f"preprocess.{name}": torch.tensor(value, dtype=torch.float32)
        for name, value in vars(statistics).items()
        if value
    }
    return state | {f"encoder.{name}": value for name, value in backbone.items()}
