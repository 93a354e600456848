"""Encoders by name; any `nn.Module` that gives (N, F) serves as well."""

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain

import torch
from torch import nn

from imix.encoders.heads import head
from imix.encoders.mlp import MLP, PAPER_WIDTHS
from imix.encoders.resnet import DEPTHS, resnet
from imix.encoders.small import Convolutions, small_mlp
from imix.errors import InputError, first_line
from imix.settings import SMALL_SIDE

__all__ = ["MLP", "build", "evaluating", "head", "lent_to", "resnet", "width_of"]

NAMES = (
    "small, mlp (or mlp:256-256-1024, with :bn at the end for an activated embedding), "
    + ", ".join(f"resnet{depth}" for depth in DEPTHS)
    + " (with :small or :standard for the stem), timm:NAME"
)


def build(name: str, shape: Sequence[int], groups: Sequence[int] = ()) -> nn.Module:
    """The encoder of that name for samples of that shape (without the batch axis).

    "small" suits the shape: an MLP for rows (F,), convolutions for sequences (C, L) and images (C, H, W). "mlp" is the
    paper's tabular network, "mlp:256-256-1024" the same with those widths (the last one before maxout). All of them
    embed the column `groups` of a table first ("mlp:bn": with batch normalisation and ReLU). "resnet18" to "resnet152"
    take the small stem up to 64 pixels and the standard one above, unless ":small" or ":standard" says. "timm:NAME" is
    that model of timm, without its classifier.
    """
    if name == "small":
        if len(shape) in (2, 3):
            return Convolutions(shape[0], axes=len(shape) - 1)
        return small_mlp(math.prod(shape), groups)
    if match := re.fullmatch(r"mlp(?::([1-9]\d*(?:-[1-9]\d*)*))?(:bn)?", name):
        widths = [int(width) for width in match[1].split("-")] if match[1] else PAPER_WIDTHS
        return MLP(math.prod(shape), widths, groups=groups, activated=bool(match[2]))
    if match := re.fullmatch(r"resnet(\d+)(?::(small|standard))?", name):
        if len(shape) != 3 and int(match[1]) in DEPTHS:
            raise InputError(f"encoder {name!r} takes images (C, H, W); got samples of shape {tuple(shape)}")
        stem = match[2] or ("small" if max(shape[1:], default=0) <= SMALL_SIDE else "standard")
        return resnet(int(match[1]), channels=shape[0], stem="small" if stem == "small" else "standard")
    if name.startswith("timm:"):
        return _from_timm(name.removeprefix("timm:"), shape)
    raise InputError(f"unknown encoder {name!r}; choose from {NAMES}")


def _from_timm(name: str, shape: Sequence[int]) -> nn.Module:
    """A model of timm, untrained, without its classifier."""
    if len(shape) != 3:
        raise InputError(f"encoders of timm take images (C, H, W); got samples of shape {tuple(shape)}")
    try:
        import timm
    except ImportError as error:
        raise InputError(f"encoder 'timm:{name}' needs the extra: pip install 'imix-ssl[timm]'") from error
    try:
        model = timm.create_model(name, pretrained=False, num_classes=0, in_chans=shape[0])
        model.width = getattr(model, "head_hidden_size", None) or model.num_features
        return model
    except (RuntimeError, TypeError) as error:
        raise InputError(f"timm cannot make {name!r}: {first_line(error)}") from error


def width_of(encoder: nn.Module) -> int | None:
    """How many features an encoder gives, where the module says so itself; None where it does not."""
    for name in ("width", "head_hidden_size", "num_features", "out_features"):  # timm's two in the order of their truth
        if isinstance(width := getattr(encoder, name, None), int):
            return width
    if isinstance(encoder, nn.Sequential) and len(encoder):
        return width_of(encoder[-1])
    return None


@contextmanager
def lent_to(device: torch.device, module: nn.Module) -> Iterator[nn.Module]:
    """The module on that device, and where it was afterwards: it is somebody's, who may use it next."""
    home = next((part.device for part in chain(module.parameters(), module.buffers())), device)
    try:
        yield module.to(device)
    finally:
        module.to(home)


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """The module in evaluation mode, each part back in its own mode afterwards."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode
