"""How fast something is made."""

import time
from collections.abc import Callable

import torch


def rate(make: Callable[[], int], device: torch.device, seconds: float = 4.0) -> float:
    """Views per second of a function that makes some and says how many."""

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    for _ in range(3):
        make()
    wait()
    started, made = time.monotonic(), 0
    while time.monotonic() - started < seconds:
        made += make()
        wait()
    return made / (time.monotonic() - started)
