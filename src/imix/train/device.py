"""Where a run computes, in which precision, and what it asks of the device to be fast there."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch
from torch import nn

from imix import distributed
from imix.batch import laid_out
from imix.errors import InputError
from imix.settings import Settings

# Steps after which compiling pays: it takes half a minute and saves 0.7 ms a step, a minute and 4 ms with a ResNet-18.
LONG, LONG_WITH_CONVOLUTIONS = 20_000, 10_000


def pick_device(name: str) -> torch.device:
    """The device of that name; "auto" is this rank's GPU where there is one."""
    if name == "auto":
        return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"unknown device {name!r}; choose auto, cpu, cuda or cuda:N") from error
    if device.type not in ("cpu", "cuda"):
        raise InputError(f"unknown device {name!r}; choose auto, cpu, cuda or cuda:N")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InputError(f"device {name!r} was asked for, but torch sees {torch.cuda.device_count()} GPUs here")
    return device


def uses_bf16(settings: Settings, device: torch.device) -> bool:
    """Whether the forward pass is autocast to bfloat16."""
    if settings.precision == "auto":
        return device.type == "cuda" and torch.cuda.is_bf16_supported()
    return settings.precision == "bf16"


def compiles(settings: Settings, device: torch.device, steps: int) -> bool:
    """Whether the step is compiled: as set, or on a GPU for runs that are long enough to make up for it."""
    if settings.compile is None:
        long = LONG_WITH_CONVOLUTIONS if settings.encoder.startswith(("resnet", "timm")) else LONG
        return device.type == "cuda" and steps * settings.epochs > long
    return settings.compile


def start_compiler() -> None:
    """Start the processes that will compile kernels, which takes seconds, while other things are made ready."""
    with suppress(ImportError, AttributeError):  # of torch's own; without it they start with the first kernel
        from torch._inductor.async_compile import maybe_warm_pool

        maybe_warm_pool()


def records(settings: Settings, device: torch.device, ours: bool) -> bool:
    """Whether steps are recorded as a CUDA graph: as set, or where all it is made of is `ours`."""
    if device.type != "cuda" or distributed.world_size() > 1:
        return False
    return ours if settings.cuda_graph is None else settings.cuda_graph


def channels_last(network: nn.Module) -> nn.Module:
    """The network with the weights of its convolutions laid out as `laid_out` does their inputs."""
    for parameter in network.parameters():
        parameter.data = laid_out(parameter.data)
    return network


@contextmanager
def fastest_algorithms() -> Iterator[None]:
    """Let cuDNN try its algorithms in the first steps and keep the fastest, unless it was told to be deterministic."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = not torch.backends.cudnn.deterministic
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before
