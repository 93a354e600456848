"""Random numbers. All are derived from (seed, epoch, step, rank), so the generator state is never saved."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

RNG_LOCK = threading.RLock()  # torch's generators are shared by all threads
BEFORE_TRAINING = 2**32 - 1  # used as the epoch in the seed of the weight initialization


def seed_all(*key: int) -> None:
    """Seed torch's generators on all devices from a tuple of integers."""
    seed = _seed(*key)
    torch.default_generator.manual_seed(seed)  # torch.manual_seed looks for devices, which is slower than a small step
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)


def epoch_generator(seed: int, epoch: int) -> torch.Generator:
    """Return the generator that draws the order of an epoch."""
    return torch.Generator().manual_seed(_seed(seed, epoch))


def epoch_order(seed: int, epoch: int, n: int) -> Tensor:
    """Return the order in which an epoch visits n samples."""
    return torch.randperm(n, generator=epoch_generator(seed, epoch))


@contextmanager
def isolated_rng(device: torch.device) -> Iterator[None]:
    """Restore the state of torch's generators on exit; blocks other threads that use this function meanwhile."""
    devices = range(torch.cuda.device_count()) if device.type == "cuda" else []
    with RNG_LOCK, torch.random.fork_rng(devices):
        yield


@contextmanager
def isolated_python_rng() -> Iterator[None]:
    """Restore the state of the generators of Python and NumPy on exit."""
    python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)  # noqa: NPY002


def _seed(*key: int) -> int:
    return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> np.uint64(1))
