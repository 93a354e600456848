"""checkpoint.pt: everything that is needed to resume a run."""

import reprlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from imix.errors import InputError, first_line
from imix.files import write_atomically
from imix.run.torch_file import load_torch_file

REQUIRED_TYPES = {"learner": dict, "optimizer": dict, "epoch": int, "step": int, "losses": Tensor}
OPTIMIZER_STATE = {torch.optim.SGD: ("momentum_buffer",), torch.optim.AdamW: ("step", "exp_avg", "exp_avg_sq")}


def create_optimizer_state(optimizer: torch.optim.Optimizer) -> None:
    """Create the state of all parameters, as torch does when a parameter has its first gradient.

    torch's fused SGD fails if that happens in different steps. And a checkpoint then has the state of all parameters.
    """
    for parameter in _parameters(optimizer):
        for name in OPTIMIZER_STATE[type(optimizer)]:
            scalar = torch.empty((), dtype=torch.float32, device=parameter.device)
            optimizer.state[parameter][name] = torch.zeros_like(scalar if name == "step" else parameter)


def snapshot(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return the part of a checkpoint that `restore` loads."""
    state = optimizer.state_dict()
    entries = {i: _compact_values(entry) for i, entry in state["state"].items()}
    return {"learner": _compact_values(model.state_dict()), "optimizer": state | {"state": entries}}


def save(path: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint."""
    write_atomically(path, lambda file: torch.save(state, file), _nbytes(state))


def load(path: Path) -> dict[str, Any]:
    """Read a checkpoint. Loading cannot execute code."""
    try:
        state: dict[str, Any] = load_torch_file(path)
    except PermissionError as error:
        raise InputError(f"cannot read checkpoint {path}: {error.strerror}") from error
    except Exception as error:  # a damaged file can raise almost any exception
        raise InputError(
            f"checkpoint {path} is damaged or not a checkpoint ({first_line(error)}); start over with `overwrite=True`"
        ) from error
    if not isinstance(state, dict) or not all(isinstance(state.get(k), t) for k, t in REQUIRED_TYPES.items()):
        raise InputError(f"{path} is not a checkpoint written by imix; start over with `overwrite=True`")
    return state


def restore(state: dict[str, Any], model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Load the weights and the optimizer state of a checkpoint into a model and an optimizer with created state.

    Every tensor is compared with the one it replaces and then copied, because torch's fused optimizers check nothing:
    a tensor of another size would corrupt memory. The optimizer's options follow from the settings, so those in the
    checkpoint are not used.
    """
    weights, saved = model.state_dict(), state["learner"]
    check_names("weights", saved, weights)
    for name, weight in weights.items():
        if isinstance(weight, Tensor):  # not the extra state of a user-supplied module
            check_tensor(name, saved[name], weight)
        weights[name] = saved[name]
    try:
        model.load_state_dict(weights)
    except (RuntimeError, ValueError, TypeError, AttributeError, KeyError) as error:  # from user-supplied modules
        raise _mismatch(str(error).splitlines()[-1].strip() if str(error) else type(error).__name__) from error

    entries = state["optimizer"].get("state")
    parameters = _parameters(optimizer)
    check_names("optimizer state", entries, dict.fromkeys(range(len(parameters))))
    for i, parameter in enumerate(parameters):
        expected = optimizer.state[parameter]
        check_names(f"optimizer state of parameter {i}", entries[i], expected)
        for name, value in expected.items():
            check_tensor(f"{name} of parameter {i}", entries[i][name], value)
            value.copy_(entries[i][name].detach())


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def check_names(content: str, values: Any, expected: dict[Any, Any]) -> None:
    """Raise InputError unless `values` is a dict with the expected keys."""
    if not isinstance(values, dict):
        raise _mismatch(f"its {content} must be a dict")
    if values.keys() != expected.keys():
        missing = [name for name in expected if name not in values]
        unknown = [name for name in values if name not in expected]
        differences = [f"no {name!r}" for name in missing[:1]] + [
            f"unknown {reprlib.repr(name)}" for name in unknown[:1]
        ]
        raise _mismatch(f"its {content} have {', '.join(differences)}")


def check_tensor(name: str, value: Any, like: Tensor) -> None:
    """Raise InputError unless `value` is a plain tensor of this shape and dtype that uses all of its memory once."""
    if not (
        type(value) in (Tensor, nn.Parameter)
        and (value.layout, value.device.type, value.is_nested) == (torch.strided, "cpu", False)
        and (value.shape, value.dtype) == (like.shape, like.dtype)
        and _is_compact(value)
    ):
        dtype = str(like.dtype).removeprefix("torch.")
        raise _mismatch(f"{name} must be a contiguous {dtype} tensor of shape {tuple(like.shape)}")


def _mismatch(reason: str) -> InputError:
    return InputError(f"the checkpoint does not match the encoder: {reason}")


def _is_compact(value: Tensor) -> bool:
    """Whether a tensor is contiguous and its storage contains nothing else."""
    is_contiguous = value.is_contiguous() or value.is_contiguous(memory_format=torch.channels_last)
    return is_contiguous and value.untyped_storage().nbytes() == value.nbytes


def _compact_values(values: dict[str, Any]) -> dict[str, Any]:
    """Copy tensors that are views of larger ones or not contiguous, e.g. the weights of an LSTM on a GPU."""
    return {
        name: value.contiguous().clone() if isinstance(value, Tensor) and not _is_compact(value) else value
        for name, value in values.items()
    }


def _nbytes(value: Any) -> int:
    """Total size of the tensors in nested dicts and lists."""
    if isinstance(value, Tensor):
        return value.nbytes
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return sum(map(_nbytes, items))
