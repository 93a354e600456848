"""What a GPU does in kernels of our own, written in Triton, which comes with torch on Linux.

Each agrees with a plain form in torch, which is taken where there is no GPU or no Triton. Through Triton's interpreter
(TRITON_INTERPRET=1) they run on a CPU, where they are tested.
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
    """Whether kernels run there: on a GPU, with Triton and the C compiler that it needs; said once if not."""
    if not TRITON or device.type != "cuda":
        return False
    try:
        from imix.kernels import probe

        return probe.works(device)
    except Exception as error:  # of Triton, the compiler or the driver
        warnings.warn(f"no kernels of our own, so plain torch: {first_line(error)}", stacklevel=2)
        return False


def on_device_of(x: Tensor) -> AbstractContextManager[Any]:
    """Where kernels are to be launched: Triton takes the current device, whatever it is given."""
    return torch.cuda.device(x.device) if x.is_cuda else nullcontext()
