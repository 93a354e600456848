"""A minimal kernel to check whether Triton kernels can be built and run."""

import torch
import triton
import triton.language as tl

from imix.runtime.kernels import on_device_of


@triton.jit
def _set_to_one(x):
    tl.store(x, 1.0)


def works(device: torch.device) -> bool:
    """Run the kernel and check its result; raises various exceptions if it cannot be built."""
    x = torch.zeros(1, device=device)
    with on_device_of(x):
        _set_to_one[(1,)](x)
    return bool(x == 1)
