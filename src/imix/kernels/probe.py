"""A kernel that does next to nothing, by which is found out whether kernels can be built and run."""

import torch
import triton
import triton.language as tl

from imix.kernels import on_device_of


@triton.jit
def _set(x):
    tl.store(x, 1.0)


def works(device: torch.device) -> bool:
    """Whether what a kernel writes is there; fails in many ways where it cannot be built."""
    x = torch.zeros(1, device=device)
    with on_device_of(x):
        _set[(1,)](x)
    return bool(x == 1)
