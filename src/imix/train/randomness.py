"""Every random number of a run follows from (seed, epoch, step, rank): no generator state is ever saved."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

ONE_AT_A_TIME = threading.RLock()  # torch's generators are one for all threads
BEFORE_TRAINING = 2**32 - 1  # the "epoch" in which weights are initialised


def seed_all(*key: int) -> None:
    """Seed torch's generators, on every device, from a tuple of numbers."""
    seed = _seed(*key)
    torch.default_generator.manual_seed(seed)  # torch.manual_seed takes longer to look for devices than a small step
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)


def epoch_order(seed: int, epoch: int, n: int) -> Tensor:
    """The permutation of n samples in which an epoch visits them."""
    return torch.randperm(n, generator=torch.Generator().manual_seed(_seed(seed, epoch)))


@contextmanager
def own_randomness(device: torch.device) -> Iterator[None]:
    """Leave the caller's random numbers as they were; other threads that want their own wait meanwhile."""
    devices = range(torch.cuda.device_count()) if device.type == "cuda" else []
    with ONE_AT_A_TIME, torch.random.fork_rng(devices):
        yield


def _seed(*key: int) -> int:
    return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> np.uint64(1))
