"""GPU kernels in Triton, which comes with torch on Linux.

Each kernel has an equivalent in plain torch, used without a GPU or without Triton. The tests run the kernels on a CPU
with Triton's interpreter (TRITON_INTERPRET=1).
"""

import functools
import warnings
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from imix.errors import first_line

TRITON = find_spec("triton") is not None


@functools.cache
def usable(device: torch.device) -> bool:
    """Whether Triton kernels can be built and run on the device; warns once if they fail on a GPU."""
    if not TRITON or device.type != "cuda":
        return False
    try:
        from imix.runtime.kernels import probe

        return probe.works(device)
    except Exception as error:  # from Triton, the C compiler or the driver
        warnings.warn(f"Triton kernels do not work here; using plain torch: {first_line(error)}", stacklevel=2)
        return False


def on_device_of(x: Tensor) -> AbstractContextManager[Any]:
    """Make the device of x the current one, because Triton always launches on the current device."""
    return torch.cuda.device(x.device) if x.is_cuda else nullcontext()
