"""A batch is a tensor, or a nested tuple, list or dict of tensors (its fields). The first axis is the sample axis.

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
    if isinstance(batch, Tensor):
        return [batch]
    if not isinstance(batch, dict | tuple | list):
        raise InputError(f"a batch must be a tensor, or a tuple, list or dict of tensors; got {type(batch).__name__}")
    children = batch.values() if isinstance(batch, dict) else batch
    return [field for child in children for field in fields(child)]


def first_field(batch: Batch) -> Tensor:
    """Return the first tensor of a valid batch."""
    while not isinstance(batch, Tensor):
        batch = next(iter(batch.values() if isinstance(batch, dict) else batch))
    return batch


def size(batch: Batch) -> int:
    """Return the number of samples of a valid batch."""
    return len(first_field(batch))


def checked_size(*batches: Batch) -> int:
    """Return the number of samples after checking that it is the same for all fields of all batches."""
    sizes = [[len(field) for field in fields(batch)] for batch in batches]
    for batch_sizes in sizes:
        if not batch_sizes or min(batch_sizes) != max(batch_sizes):
            raise InputError(f"the fields of a batch must have the same number of samples; got {batch_sizes}")
    first = [batch_sizes[0] for batch_sizes in sizes]
    if min(first) != max(first):
        raise InputError(f"views of one batch must have the same number of samples; got {first}")
    return first[0]


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
