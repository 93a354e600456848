"""A batch is a tensor, or a nested tuple, list or dict of tensors (its fields). The first axis counts samples.

All code that handles inputs uses these functions, so the fields of a sample are always treated together.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from imix.errors import InputError

INTEGER_SCALE = {torch.uint8: 255, torch.int16: 32768}  # the integer that represents 1.0
Batch = Any  # Tensor | tuple[Batch, ...] | list[Batch] | dict[str, Batch]


def map_fields(fn: Callable[..., Tensor], *batches: Batch) -> Batch:
    """Apply `fn` to corresponding fields of batches with the same structure; returns that structure."""
    first = batches[0]
    if isinstance(first, Tensor):
        return fn(*batches)
    if isinstance(first, dict):
        return {key: map_fields(fn, *(batch[key] for batch in batches)) for key in first}
    if isinstance(first, tuple | list):
        mapped = [map_fields(fn, *parts) for parts in zip(*batches, strict=True)]
        return type(first)(*mapped) if hasattr(first, "_fields") else type(first)(mapped)
    raise InputError(f"a batch must be a tensor, or a tuple, list or dict of tensors; got {type(first).__name__}")


def fields(batch: Batch) -> list[Tensor]:
    """Return the tensors of a batch in order."""
    tensors: list[Tensor] = []

    def collect(field: Tensor) -> Tensor:
        tensors.append(field)
        return field

    map_fields(collect, batch)
    return tensors


def size(batch: Batch) -> int:
    """Return the number of samples, which must be the same for all fields."""
    sizes = [len(field) for field in fields(batch)]
    if not sizes or min(sizes) != max(sizes):
        raise InputError(f"the fields of a batch must have the same number of samples; got {sizes}")
    return sizes[0]


def common_size(*batches: Batch) -> int:
    """Return the number of samples, which must be the same for all batches."""
    sizes = [size(batch) for batch in batches]
    if min(sizes) != max(sizes):
        raise InputError(f"views of one batch must have the same number of samples; got {sizes}")
    return sizes[0]


def to_float(batch: Batch) -> Batch:
    """Convert uint8 fields to floats in [0, 1] and int16 fields (audio) to [-1, 1]; other fields are unchanged."""
    return map_fields(lambda x: x.float() / INTEGER_SCALE[x.dtype] if x.dtype in INTEGER_SCALE else x, batch)


def to_channels_last(x: Tensor) -> Tensor:
    """Convert images (N, C, H, W) on a GPU to the channels-last memory format; other tensors are unchanged."""
    return x.contiguous(memory_format=torch.channels_last) if x.is_cuda and x.dim() == 4 else x


def concatenate(batches: Sequence[Batch]) -> Batch:
    """Concatenate batches along the sample axis."""
    return map_fields(lambda *parts: torch.cat(parts), *batches)


def split(batch: Batch, n: int) -> list[Batch]:
    """Split a batch into consecutive batches of n samples; the last one may be smaller."""
    return [map_fields(lambda x, start=start: x[start : start + n], batch) for start in range(0, size(batch), n)]
