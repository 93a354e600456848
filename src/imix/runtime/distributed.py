"""Collectives for distributed training.

Gradients are those of the global loss. The loss of a rank is the mean over its anchors, and DistributedDataParallel
averages gradients over ranks. Therefore the backward pass of a collective sums over ranks, without dividing by their
number.
"""

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from imix.batch import Batch, map_fields
from imix.errors import InputError

MAX_STEPS_BETWEEN_POLLS = 8
MAX_SECONDS_BETWEEN_POLLS = 1.0  # approximately; at least one step


def world_size() -> int:
    """Return the number of ranks; 1 if the run is not distributed."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Return the rank of this process; 0 if the run is not distributed."""
    return dist.get_rank() if world_size() > 1 else 0


def barrier() -> None:
    """Wait until every rank reaches this point."""
    if world_size() > 1:
        dist.barrier()


@contextmanager
def rank_0_first() -> Iterator[None]:
    """Run a block on rank 0 before the other ranks, e.g. so that they can use files it wrote."""
    if rank() != 0:
        barrier()
    try:
        yield
    finally:
        if rank() == 0:
            barrier()


def on_rank_0(compute: Callable[[], Any]) -> Any:
    """Call a function on rank 0 only, and return its result on all ranks, or raise its InputError.

    The other ranks wait without a timeout.
    """
    group: Any = dist.new_group(backend="gloo", timeout=timedelta(days=30))
    outcome: list[Any] = [None]
    if rank() == 0:
        try:
            outcome = [compute()]
        except InputError as error:
            outcome = [error]
    dist.broadcast_object_list(outcome, 0, group=group)
    if isinstance(outcome[0], InputError):
        raise outcome[0]
    return outcome[0]


def gather_on_rank_0(part: Tensor, sizes: Sequence[int]) -> Tensor:
    """Concatenate the rows of all ranks on rank 0; the other ranks return their part. Rank r has sizes[r] rows."""
    if rank() > 0:
        if len(part):
            dist.send(part.contiguous().cpu(), 0)
        return part
    parts = [part]
    for other, n in enumerate(sizes[1:], 1):
        received = torch.empty(n, *part.shape[1:], dtype=part.dtype)
        if n:
            dist.recv(received, other)
        parts.append(received.to(part.device))
    return torch.cat(parts)


def max_over_ranks(*values: float) -> list[float]:
    """Return the maximum of each value over all ranks."""
    if world_size() == 1:
        return list(values)
    maxima = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(maxima, dist.ReduceOp.MAX)
    return maxima.tolist()


class RankPoll:
    """Combine flags over ranks every few steps. All ranks poll at the same steps, more often if steps are slow."""

    def __init__(self) -> None:
        self.next_step = self.last_step = 0
        self.last_time = time.monotonic()

    def any(self, step: int, *flags: bool) -> tuple[bool, ...]:
        """Return whether each flag is set on any rank; always False at steps without a poll."""
        if world_size() == 1:
            return flags
        if step < self.next_step:
            return (False,) * len(flags)
        seconds_per_step = (time.monotonic() - self.last_time) / max(1, step - self.last_step)
        *combined, slowest = max_over_ranks(*map(float, flags), seconds_per_step)
        interval = int(MAX_SECONDS_BETWEEN_POLLS / max(slowest, 1e-9))
        self.next_step = step + max(1, min(MAX_STEPS_BETWEEN_POLLS, interval))
        self.last_step, self.last_time = step, time.monotonic()
        return tuple(map(bool, combined))


def wrap_ddp(module: nn.Module) -> nn.Module:
    """Wrap a module in DistributedDataParallel if there are several ranks."""
    if world_size() == 1:
        return module
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # older torch versions do not have the new name
        return DistributedDataParallel(module, broadcast_buffers=False)


@torch.no_grad()
def mean_over_ranks(x: Tensor) -> Tensor:
    """Return the mean over ranks, without gradient."""
    if world_size() == 1:
        return x
    total = x.contiguous().clone()
    dist.all_reduce(total)
    return total / world_size()


def gather_rows(x: Tensor) -> Tensor:
    """Concatenate the rows of all ranks, with gradient.

    Parameters
    ----------
    x : Tensor of shape (n, ...)
        The rows of this rank; n must be the same on all ranks.

    Returns
    -------
    Tensor of shape (world_size * n, ...)
        The rows in rank order; x itself if there is one rank.

    Examples
    --------
    >>> from imix.runtime.distributed import gather_rows
    >>> gather_rows(torch.randn(4, 8)).shape  # with one rank, the input itself
    torch.Size([4, 8])
    """
    if world_size() == 1:
        return x
    return _GatherRows.apply(x)


def row_offset(n: int) -> int:
    """Return the index of this rank's first row in the result of `gather_rows`, for n rows per rank.

    Parameters
    ----------
    n : int
        Number of rows per rank.

    Examples
    --------
    >>> from imix.runtime.distributed import row_offset
    >>> row_offset(4)  # 4 * rank
    0
    """
    return rank() * n


def shared_permutation(n: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return a permutation of the world_size * n rows of all ranks, the same on every rank, and its inverse."""
    order = torch.randperm(world_size() * n, device=device)
    if world_size() > 1:
        dist.broadcast(order, 0)
    return order, order.argsort()


def local_rows(gathered: Batch, order: Tensor) -> Batch:
    """Return this rank's part of gathered rows that are permuted by `order`."""
    rows = order.chunk(world_size())[rank()]
    return map_fields(lambda x: x[rows.to(x.device)], gathered)


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.rows = slice(rank() * len(x), (rank() + 1) * len(x))
        parts = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(world_size())]
        dist.all_gather(parts, x.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        grad = grad.contiguous().clone()
        dist.all_reduce(grad)
        return grad[ctx.rows]
