"""Encoders by name. Any `nn.Module` that maps a batch to features (N, F) can be used as well."""

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch import nn

from imix.encoders.heads import build_head
from imix.encoders.mlp import MLP, PAPER_WIDTHS, SMALL_WIDTHS
from imix.encoders.resnet import DEPTHS, resnet
from imix.encoders.small import SmallConvNet
from imix.errors import InputError, first_line
from imix.settings import SMALL_IMAGE_SIZE

MAX_TIMM_CHANNELS = 1024  # the first layer of a timm model is built before its weights can be compared

__all__ = ["MLP", "build", "build_head", "eval_mode", "infer_width", "resnet", "temporarily_on"]

NAMES = (
    "small, mlp (or mlp:256-256-1024 for these widths; append :bn for batch normalization after the column embedding), "
    + ", ".join(f"resnet{depth}" for depth in DEPTHS)
    + " (append :small or :standard for the stem), timm:NAME (timm:NAME.TAG for pretrained weights)"
)


def build(name: str, shape: Sequence[int], groups: Sequence[int] = (), *, pretrained: bool = True) -> nn.Module:
    """Build an encoder by name.

    Parameters
    ----------
    name : str
        One of

        - "small": chosen by shape: an MLP for rows (F,), a CNN for sequences (C, L) and images (C, H, W).
        - "mlp": the paper's tabular network. "mlp:256-256-1024" sets the layer widths (the last one before maxout),
          "mlp:bn" adds batch normalization and ReLU after the column embedding.
        - "resnet18", "resnet34", "resnet50", "resnet101" or "resnet152": the stem is small for images up to 64 pixels
          and standard above. Append ":small" or ":standard" to choose it.
        - "timm:NAME": this model of timm, untrained and without its classifier.
        - "timm:NAME.TAG": the same with pretrained weights, such as "timm:resnet18.a1_in1k".
    shape : sequence of int
        Shape of one sample, without the batch axis.
    groups : sequence of int
        Sizes of the column groups of a table, which the MLPs embed separately.
    pretrained : bool
        Whether "timm:NAME.TAG" gets its pretrained weights. Pass False if other weights are loaded afterwards.

    Returns
    -------
    nn.Module
        Maps (N, *shape) to features (N, F). Its attribute `width` is F.

    Examples
    --------
    >>> encoder = imix.encoders.build("mlp:32-64", (20,))
    >>> encoder(torch.randn(8, 20)).shape
    torch.Size([8, 16])
    """
    if name == "small":
        if len(shape) in (2, 3):
            return SmallConvNet(shape[0], axes=len(shape) - 1)
        return MLP(math.prod(shape), SMALL_WIDTHS, groups=groups)
    if match := re.fullmatch(r"mlp(?::([1-9]\d{0,11}(?:-[1-9]\d{0,11})*))?(:bn)?", name):
        widths = [int(width) for width in match[1].split("-")] if match[1] else PAPER_WIDTHS
        return MLP(math.prod(shape), widths, groups=groups, activate_embedding=bool(match[2]))
    if match := re.fullmatch(r"resnet(\d{1,3})(?::(small|standard))?", name):
        if len(shape) != 3 and int(match[1]) in DEPTHS:
            raise InputError(f"encoder {name!r} takes images (C, H, W); got samples of shape {tuple(shape)}")
        stem = match[2] or ("small" if max(shape[1:], default=0) <= SMALL_IMAGE_SIZE else "standard")
        return resnet(int(match[1]), channels=shape[0], stem="small" if stem == "small" else "standard")
    if name.startswith("timm:"):
        return _build_timm(name.removeprefix("timm:"), shape, pretrained)
    raise InputError(f"unknown encoder {name!r}; choose from {NAMES}")


def _build_timm(name: str, shape: Sequence[int], pretrained: bool) -> nn.Module:
    """Build a timm model without its classifier."""
    if len(shape) != 3:
        raise InputError(f"encoder 'timm:{name}' takes images (C, H, W); got samples of shape {tuple(shape)}")
    if ":" in name:  # it would use the network, even to build a model without its weights
        raise InputError(f"encoder 'timm:{name}' must name a model of timm, without a source such as hf-hub:")
    if shape[0] > MAX_TIMM_CHANNELS:
        raise InputError(
            f"encoder 'timm:{name}' takes up to {MAX_TIMM_CHANNELS} channels; got samples of shape {tuple(shape)}"
        )
    try:
        import timm
    except ImportError as error:
        raise InputError(f"encoder 'timm:{name}' needs timm: pip install 'imix-ssl[timm]'") from error
    try:
        model = timm.create_model(name, pretrained=False, num_classes=0, in_chans=shape[0])
        model.width = getattr(model, "head_hidden_size", None) or model.num_features
    except (RuntimeError, TypeError) as error:
        raise InputError(f"timm cannot build {name!r}: {first_line(error)}") from error
    if not pretrained or "." not in name:  # only NAME.TAG has weights
        return model
    try:
        # With its classifier, because timm accepts missing weights if the classifier is left out.
        source: Any = timm.create_model(name, pretrained=True, in_chans=shape[0])
        if 3 not in (shape[0], channels := source.pretrained_cfg["input_size"][0]):
            raise ValueError(f"they are for {channels} channels, and the images have {shape[0]}")
        source.reset_classifier(0)
        model.load_state_dict(source.state_dict())
    except Exception as error:  # caused by the network, the disk or the file
        raise InputError(f"cannot load the weights of encoder 'timm:{name}': {first_line(error)}") from error
    return model


def infer_width(encoder: nn.Module) -> int | None:
    """Return the feature dimension of an encoder without running it.

    Parameters
    ----------
    encoder : nn.Module
        Searched for an attribute `width`, `head_hidden_size`, `num_features` or `out_features`; of an
        `nn.Sequential`, the last module is searched.

    Returns
    -------
    int or None
        None if there is no such attribute.

    Examples
    --------
    >>> imix.encoders.infer_width(torch.nn.Linear(20, 12))
    12
    """
    # Some timm models have both attributes; head_hidden_size is then the true output dimension.
    for name in ("width", "head_hidden_size", "num_features", "out_features"):
        if isinstance(width := getattr(encoder, name, None), int):
            return width
    if isinstance(encoder, nn.Sequential) and len(encoder):
        return infer_width(encoder[-1])
    return None


@contextmanager
def temporarily_on(device: torch.device, module: nn.Module) -> Iterator[nn.Module]:
    """Move the module to `device` and back to its previous device afterwards."""
    previous = next((tensor.device for tensor in chain(module.parameters(), module.buffers())), device)
    try:
        yield module.to(device)
    finally:
        module.to(previous)


@contextmanager
def eval_mode(module: nn.Module) -> Iterator[None]:
    """Switch the module to eval mode and restore the mode of each submodule afterwards."""
    modes = [(submodule, submodule.training) for submodule in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for submodule, mode in modes:
            submodule.training = mode
