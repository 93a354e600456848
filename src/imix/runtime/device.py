"""Choice of device and precision, and of the optimizations that suit the device."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch
from torch import nn

from imix.batch import to_channels_last
from imix.errors import InputError
from imix.runtime import distributed
from imix.settings import ResolvedSettings, Settings

# Steps from which compiling pays off. It takes 30 s and saves 0.7 ms per step; with a ResNet-18, 60 s and 4 ms.
MIN_STEPS_TO_COMPILE, MIN_STEPS_TO_COMPILE_CONVNETS = 20_000, 10_000


def pick_device(name: str) -> torch.device:
    """Return the named device; "auto" is the GPU of this rank if there is one, otherwise the CPU."""
    if name == "auto":
        return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"unknown device {name!r}; choose auto, cpu, cuda or cuda:N") from error
    if device.type not in ("cpu", "cuda"):
        raise InputError(f"unknown device {name!r}; choose auto, cpu, cuda or cuda:N")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InputError(f"device {name!r} is not available; torch finds {torch.cuda.device_count()} GPUs")
    return device


def uses_bf16(settings: Settings, device: torch.device) -> bool:
    """Whether the forward pass is autocast to bfloat16."""
    if settings.precision == "auto":
        return device.type == "cuda" and torch.cuda.is_bf16_supported()
    return settings.precision == "bf16"


def should_compile(settings: ResolvedSettings, device: torch.device, steps_per_epoch: int) -> bool:
    """Whether to compile the training step; by default on a GPU if the run is long enough to benefit."""
    if settings.compile is None:
        is_convnet = settings.encoder.startswith(("resnet", "timm"))
        min_steps = MIN_STEPS_TO_COMPILE_CONVNETS if is_convnet else MIN_STEPS_TO_COMPILE
        return device.type == "cuda" and steps_per_epoch * settings.epochs > min_steps
    return settings.compile


def start_compiler() -> None:
    """Start the compiler's worker processes in the background, since this takes seconds."""
    with suppress(ImportError, AttributeError):  # private torch API; without it they start with the first kernel
        from torch._inductor.async_compile import maybe_warm_pool

        maybe_warm_pool()


def should_use_cuda_graph(settings: Settings, device: torch.device, only_builtin_components: bool) -> bool:
    """Whether to capture training steps as a CUDA graph; by default only if all components are built in."""
    if device.type != "cuda" or distributed.world_size() > 1:
        return False
    return only_builtin_components if settings.cuda_graph is None else settings.cuda_graph


def channels_last(network: nn.Module) -> nn.Module:
    """Convert the convolution weights of a network in place to the memory format of `to_channels_last`."""
    for parameter in network.parameters():
        parameter.data = to_channels_last(parameter.data)
    return network


@contextmanager
def cudnn_benchmark() -> Iterator[None]:
    """Let cuDNN benchmark its algorithms and use the fastest, unless it is set to be deterministic."""
    previous = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = not torch.backends.cudnn.deterministic
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = previous
