"""How many threads torch uses for training on a CPU.

After each operation, threads wait for the slowest one. If another process takes a core away from one of them, even for
a moment, all wait, and a step of many short operations becomes many times slower than with one thread. So small
networks are trained with one thread.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from imix.batch import Batch, size
from imix.encoders import eval_mode

WORK_PER_THREAD = 10e9  # floating-point operations of a training step; one thread takes 0.1 to 0.4 s for them
VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")  # with these, users choose the number of threads


def pick_threads(model: nn.Module, samples: Batch, views: int) -> int:
    """Return the number of threads for training on a CPU, at most as many as torch uses now.

    It follows from the size of the model and of the batch. So a run that is resumed on the same machine uses the same
    number, and its results are identical.

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
    available = torch.get_num_threads()
    if available == 1 or any(os.environ.get(name) for name in VARIABLES):
        return available
    with torch.no_grad(), eval_mode(model), FlopCounterMode(display=False) as counter:
        model(samples)
    work = 3 * counter.get_total_flops() / size(samples) * views  # backward takes twice as much as forward
    return max(1, min(available, int(work / WORK_PER_THREAD)))


@contextmanager
def torch_threads(n: int) -> Iterator[None]:
    """Set torch's number of threads inside a block, and restore it afterwards."""
    previous = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(previous)
