"""A batch is a tensor, or a tuple, list or dict of tensors (its fields), whose first axis counts samples.

Everything that touches inputs (mixing, views, encoders' calls, devices) goes through the few functions here, so that
a sample with several fields is always treated as one sample.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from imix.errors import InputError

WHOLE = {torch.uint8: 255, torch.int16: 32768}  # what stands for 1
Batch = Any  # Tensor | tuple[Batch, ...] | list[Batch] | dict[str, Batch]


def map_fields(fn: Callable[..., Tensor], *batches: Batch) -> Batch:
    """Apply `fn` field by field to batches of one structure; the structure is kept."""
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
    """The tensors of a batch, in order."""
    found: list[Tensor] = []

    def collect(field: Tensor) -> Tensor:
        found.append(field)
        return field

    map_fields(collect, batch)
    return found


def size(batch: Batch) -> int:
    """Number of samples; every field must have the same."""
    sizes = [len(field) for field in fields(batch)]
    if not sizes or min(sizes) != max(sizes):
        raise InputError(f"the fields of a batch must have the same number of samples; got {sizes}")
    return sizes[0]


def same_size(*batches: Batch) -> int:
    """Number of samples of each of these batches, which must agree."""
    sizes = [size(batch) for batch in batches]
    if min(sizes) != max(sizes):
        raise InputError(f"views of one batch must have the same number of samples; got {sizes}")
    return sizes[0]


def as_floats(batch: Batch) -> Batch:
    """Bytes as floats in 0..1, the 16 bits of sounds in -1..1; everything else as it is."""
    return map_fields(lambda x: x.float() / WHOLE[x.dtype] if x.dtype in WHOLE else x, batch)


def laid_out(x: Tensor) -> Tensor:
    """A field as networks on a GPU like it: images with their channels last."""
    return x.contiguous(memory_format=torch.channels_last) if x.is_cuda and x.dim() == 4 else x


def concatenate(batches: Sequence[Batch]) -> Batch:
    """Batches one after the other, as one batch."""
    return map_fields(lambda *parts: torch.cat(parts), *batches)


def split(batch: Batch, n: int) -> list[Batch]:
    """A batch as batches of n samples each, one after the other."""
    return [map_fields(lambda x, at=at: x[at : at + n], batch) for at in range(0, size(batch), n)]
