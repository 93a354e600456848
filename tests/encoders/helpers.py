"""Helpers for tests of encoders."""

from collections.abc import Callable

import torch
from torch import nn


def on_meta(build: Callable[[], nn.Module]) -> nn.Module:
    """Build a module without memory for its weights: shapes can be checked quickly."""
    with torch.device("meta"):
        return build()


def layer_names(module: nn.Sequential) -> list[str]:
    return [type(layer).__name__ for layer in module]
