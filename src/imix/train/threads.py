"""The number of threads for training on a CPU.

After each operation, threads wait for the slowest one. If another process takes the core of one of them, even briefly,
all wait, and a step of many short operations becomes many times slower than with a single thread. So the number of
threads depends on the work per layer, and small networks are trained with one thread.
"""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from imix.batch import Batch, size
from imix.encoders import eval_mode

WORK_PER_THREAD = 5e9  # floating-point operations of an average layer in a step; 0.05 to 0.1 s
VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")  # set by users to choose the number of threads


def pick_threads(model: nn.Module, samples: Batch, views: int) -> int:
    """Return the number of threads for training on a CPU, at most as many as torch uses now.

    It depends on the work of an average layer in a step, that is, on the model and the batch size. So a run that is
    resumed on the same machine uses the same number of threads, and its results are identical.

    Parameters
    ----------
    model : nn.Module
        Run once, in evaluation mode, to count its operations.
    samples : Tensor of shape (N, ...), or a tuple or dict of such tensors
        A few samples.
    views : int
        Number of samples that the model encodes in each training step.

    Examples
    --------
    >>> from imix.train.threads import pick_threads
    >>> pick_threads(torch.nn.Linear(10, 4), torch.randn(2, 10), views=512)
    1
    """
    if torch.get_num_threads() == 1:
        return 1
    with torch.no_grad(), eval_mode(model), warnings.catch_warnings(), FlopCounterMode(display=False) as counter:
        warnings.filterwarnings("ignore", r"Using `torch\.compile\(module\)` when there are global hooks")
        model(samples)
    work = 3 * counter.get_total_flops() / size(samples) * views  # backward takes twice as much as forward
    layers = sum(parameter.dim() > 1 for parameter in model.parameters())
    return at_most(max(1, int(work / max(1, layers) / WORK_PER_THREAD)))


def at_most(n: int) -> int:
    """Return n, or torch's number of threads if that is smaller or set by an environment variable."""
    available = torch.get_num_threads()
    return available if any(os.environ.get(name) for name in VARIABLES) else min(n, available)


@contextmanager
def torch_threads(n: int) -> Iterator[None]:
    """Set torch's number of threads inside a block, and restore it afterwards."""
    previous = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(previous)
