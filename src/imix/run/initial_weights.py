"""The weights that a run starts from (`init`): those of another run, of a file, or of torchvision."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from imix.data import Table
from imix.errors import InputError, first_line
from imix.run.config import Architecture, RunConfig, read_config
from imix.run.stored_encoder import read_encoder
from imix.run.torch_file import load_torch_file
from imix.settings import Settings

CLASSIFIERS = ("fc", "head", "heads", "classifier")  # names of the last layer, whose weights are not loaded
FILE_SUFFIXES = (".safetensors", ".pt", ".pth")


@dataclass(frozen=True)
class InitialWeights:
    """Weights by name, and the architecture and table of the run that they come from, if it is one."""

    source: str
    state: Mapping[str, Tensor]
    architecture: Architecture | None = None
    table: Table | None = None

    def load_into(self, encoder: nn.Module, name: str) -> None:
        """Load the weights into an encoder called `name`; raise InputError if any are missing or do not fit."""
        expected = encoder.state_dict()
        state = self._without_prefix(expected)
        missing = [name for name in expected if name not in state and not name.endswith("num_batches_tracked")]
        unexpected = [name for name in state if name not in expected and name.split(".")[0] not in CLASSIFIERS]
        wrong = [
            f"{name} is {_describe(state[name])} instead of {_describe(value)}"
            for name, value in expected.items()
            if name in state and not _fits(state[name], value)
        ]
        problems = {"missing: ": missing, "unexpected: ": unexpected, "": wrong}
        if found := [label + _shorten(names) for label, names in problems.items() if names]:
            raise InputError(f"the weights in {self.source!r} do not match encoder {name!r}; {'; '.join(found)}")
        encoder.load_state_dict({name: state.get(name, value) for name, value in expected.items()})

    def _without_prefix(self, expected: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return the weights under the prefix, such as "module." or "encoder.", for which most weights match."""
        names = [name for name in expected if not name.endswith("num_batches_tracked")]
        prefixes = {key.removesuffix(names[0]) for key in self.state if key.endswith(f".{names[0]}")} if names else ()

        def score(prefix: str) -> int:
            found = [(self.state[prefix + name], expected[name]) for name in names if prefix + name in self.state]
            return len(found) + sum(_fits(value, other) for value, other in found)

        scores = {prefix: score(prefix) for prefix in ("", *sorted(prefixes))}
        best, *others = [prefix for prefix, value in scores.items() if value == max(scores.values())]
        if best and others:
            raise InputError(
                f"{self.source!r} has several encoders: {_shorten([best, *others])}; save the weights of one"
            )
        return {key.removeprefix(best): value for key, value in self.state.items() if key.startswith(best)}


def find_initial_weights(
    settings: Settings, stored: RunConfig | None = None, *, has_checkpoint: bool = False, custom_encoder: bool = False
) -> tuple[Settings, InitialWeights | None]:
    """Return the weights that a run starts from, and its settings (with the encoder of the run in `init`, if any).

    A resumed run, whose config is `stored`, ignores `init`; if it has a checkpoint, no weights are read.
    """
    if stored is not None:
        settings = replace(settings, init=stored.settings.init)
    if has_checkpoint and stored is not None:
        weights = InitialWeights("the checkpoint", {})
        if settings.init:
            weights = replace(weights, architecture=stored.architecture, table=stored.data.table)
    elif settings.init is None:
        return settings, None
    else:
        weights = read_initial_weights(settings.init)
        if Path(settings.init).exists():  # the run may be continued from another working directory
            settings = replace(settings, init=str(Path(settings.init).absolute()))
    if settings.init and weights.architecture and not custom_encoder:
        if weights.architecture.is_custom:
            raise InputError(f"the run in {weights.source!r} has a user-supplied encoder; pass the module as `encoder`")
        if settings.encoder == Settings().encoder:
            settings = replace(settings, encoder=weights.architecture.encoder)
    return settings, weights


def read_initial_weights(init: str) -> InitialWeights:
    """Read weights from a run folder, a file, or torchvision's cache or server."""
    path = Path(init)
    if path.is_dir() or _is_encoder_file(path):
        architecture, state, _ = read_encoder(path)
        folder = path if path.is_dir() else path.parent
        if architecture.groups and not (folder / "config.json").exists():
            raise InputError(f"`init={init!r}` is the encoder of a table; pass its run folder, which has the table too")
        table = read_config(folder).data.table if architecture.groups else None
        return InitialWeights(init, state, architecture, table)
    if path.suffix in FILE_SUFFIXES and path.is_file():
        return InitialWeights(init, _read_file(path))
    if re.fullmatch(r"\w+_Weights\.\w+", init):
        return InitialWeights(init, _read_torchvision(init))
    raise InputError(
        f"`init={init!r}` must be a run folder, a file ({', '.join(FILE_SUFFIXES)}) or the name of torchvision weights "
        "such as ResNet18_Weights.IMAGENET1K_V1"
    )


def _is_encoder_file(path: Path) -> bool:
    """Whether this is an encoder written by imix, such as best_encoder.safetensors, and not only weights."""
    from safetensors import SafetensorError, safe_open

    if path.suffix != ".safetensors" or not path.is_file():
        return False
    try:
        with safe_open(path, "pt") as file:
            return "imix" in (file.metadata() or {})
    except (SafetensorError, OSError):
        return False  # reading the weights gives the message


def _read_file(path: Path) -> dict[str, Tensor]:
    """Read a state dict, or a checkpoint with the key `state_dict`. Loading cannot execute code."""
    from safetensors.torch import load_file

    try:
        content: Any = load_file(path) if path.suffix == ".safetensors" else load_torch_file(path)
    except Exception as error:  # a damaged file can raise almost any exception
        raise InputError(f"cannot read the weights in {str(path)!r}: {first_line(error)}") from error
    state = content.get("state_dict", content) if isinstance(content, dict) else None
    if not state or not all(isinstance(value, Tensor) for value in state.values()):
        raise InputError(f"{str(path)!r} is not a state dict: a dict from names to tensors")
    return state


def _read_torchvision(name: str) -> Mapping[str, Tensor]:
    from torchvision.models import get_weight

    try:
        state: Mapping[str, Tensor] = get_weight(name).get_state_dict(
            progress=False, check_hash=True, map_location="cpu", weights_only=True
        )
    except Exception as error:  # unknown name, no network, disk full, damaged file
        raise InputError(f"cannot load the torchvision weights {name!r}: {first_line(error)}") from error
    return state


def _fits(value: Tensor, expected: Tensor) -> bool:
    return value.shape == expected.shape and value.is_floating_point() == expected.is_floating_point()


def _describe(value: Tensor) -> str:
    return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"


def _shorten(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
