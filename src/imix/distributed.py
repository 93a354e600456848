"""Many ranks: who am I, what do the others have, and batch statistics over all of them.

Gradients are those of the global loss. Each rank's loss is a mean over its own anchors and DistributedDataParallel
averages gradients over ranks, so a collective's backward pass *sums* what all ranks send to a tensor: no 1/W is lost.
"""

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from imix.batch import Batch, map_fields
from imix.errors import InputError

AGREE_EVERY = 8  # steps at most between which ranks ask each other whether one was told to stop,
AGREE_SECONDS = 1.0  # and about how long that may take where steps are slow


def world_size() -> int:
    """Number of ranks; 1 where nothing is distributed."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Which of them this process is."""
    return dist.get_rank() if world_size() > 1 else 0


def wait() -> None:
    """Until every rank is here."""
    if world_size() > 1:
        dist.barrier()


@contextmanager
def rank_0_first() -> Iterator[None]:
    """What is done inside, rank 0 does before the others: they find what it left."""
    if rank() != 0:
        wait()
    try:
        yield
    finally:
        if rank() == 0:
            wait()


def largest(*values: float) -> list[float]:
    """The largest of each value over all ranks."""
    if world_size() == 1:
        return list(values)
    found = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return found.tolist()


class Rounds:
    """When ranks ask each other: at the same steps, every few, and more often where steps are slow."""

    def __init__(self) -> None:
        self.next = self.last = 0
        self.since = time.monotonic()

    def ask(self, step: int, *flags: bool) -> tuple[bool, ...]:
        """Whether each flag is set on any rank; none is between rounds. One rank need not wait for any."""
        if world_size() == 1:
            return flags
        if step < self.next:
            return (False,) * len(flags)
        seconds = (time.monotonic() - self.since) / max(1, step - self.last)
        *found, slowest = largest(*map(float, flags), seconds)
        self.next = step + max(1, min(AGREE_EVERY, int(AGREE_SECONDS / max(slowest, 1e-9))))
        self.last, self.since = step, time.monotonic()
        return tuple(map(bool, found))


def joined(module: nn.Module) -> nn.Module:
    """The module with gradients averaged over ranks; itself where there is one rank."""
    if world_size() == 1:
        return module
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # its new name is not known to older torch
        return DistributedDataParallel(module, broadcast_buffers=False)


@torch.no_grad()
def mean_over_ranks(x: Tensor) -> Tensor:
    """Mean over ranks, without gradient."""
    if world_size() == 1:
        return x
    total = x.contiguous().clone()
    dist.all_reduce(total)
    return total / world_size()


def all_ranks(x: Tensor) -> Tensor:
    """The tensors of all ranks one after the other, (W * n, ...), with gradient; x itself where there is one rank.

    Every rank must bring the same n.
    """
    if world_size() == 1:
        return x
    return _Gather.apply(x)


def own_offset(n: int) -> int:
    """Where this rank's n rows begin in what `all_ranks` gives."""
    return rank() * n


def shuffled(n: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """A permutation of the W * n rows of all ranks, the same on each, and its inverse."""
    order = torch.randperm(world_size() * n, device=device)
    if world_size() > 1:
        dist.broadcast(order, 0)
    return order, order.argsort()


def rows_of_this_rank(gathered: Batch, order: Tensor) -> Batch:
    """This rank's share of gathered rows taken in that order."""
    share = order.chunk(world_size())[rank()]
    return map_fields(lambda x: x[share.to(x.device)], gathered)


class _Gather(torch.autograd.Function):
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


class SyncBatchNorm(nn.modules.batchnorm._BatchNorm):
    """Batch normalisation with the statistics of the global batch, on any device (torch's own needs a GPU)."""

    @classmethod
    def convert(cls, module: nn.Module) -> nn.Module:
        """Make every batch normalisation in `module` a synced one, in place; its parameters and buffers stay."""
        for part in module.modules():
            if type(part) in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm):
                part.__class__ = cls
            elif isinstance(part, nn.modules.batchnorm._BatchNorm) and not isinstance(part, cls):
                raise InputError(
                    f"{type(part).__name__} is more than a batch normalisation and cannot be synced over ranks; "
                    "give --no-sync-bn (sync_bn=False)"
                )
        return module

    def _check_input_dim(self, input: Tensor) -> None:
        """Any rank from (N, C) on."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalise (N, C, ...) over all samples of all ranks while training; as usual otherwise."""
        if not self.training or world_size() == 1:
            return super().forward(input)
        shape = [1, -1] + [1] * (input.dim() - 2)
        x = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
        normal, mean, variance, count = _Normalise.apply(x, self.eps)
        if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
            with torch.no_grad():
                self.num_batches_tracked.add_(1)
                step = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
                self.running_mean.lerp_(mean.to(self.running_mean), step)
                self.running_var.lerp_((variance * count / (count - 1)).to(self.running_var), step)
        if self.affine:
            normal = normal * self.weight.view(shape) + self.bias.view(shape)
        return normal.to(input.dtype)


class _Normalise(torch.autograd.Function):
    """(N, C, ...) to mean 0 and variance 1 over all samples of all ranks, which tell each other once each way.

    Gives the mean, variance and number of positions too, without gradient.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        axes = [axis for axis in range(x.dim()) if axis != 1]
        shape = [1, -1] + [1] * (x.dim() - 2)
        here = x.mean(axes)
        scatter = (x - here.view(shape)).square().sum(axes)
        own = torch.cat([here, scatter, x.new_tensor([x.numel() / x.shape[1]])])  # ranks may bring different numbers
        told = [torch.empty_like(own) for _ in range(world_size())]
        dist.all_gather(told, own)
        means, scatters, counts = torch.stack(told).split([len(here), len(here), 1], 1)
        count = counts.sum()
        mean = (counts * means).sum(0) / count
        variance = (scatters + counts * (means - mean).square()).sum(0) / count
        scale = torch.rsqrt(variance + eps).view(shape)
        normal = (x - mean.view(shape)) * scale
        ctx.save_for_backward(normal, scale, count)
        ctx.mark_non_differentiable(mean, variance, count)
        return normal, mean, variance, count

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor, *unused: Tensor) -> tuple[Tensor, None]:
        normal, scale, count = ctx.saved_tensors
        axes = [axis for axis in range(grad.dim()) if axis != 1]
        sums = torch.cat([grad.sum(axes), (grad * normal).sum(axes)])
        dist.all_reduce(sums)
        along, across = (part.view_as(scale) / count for part in sums.chunk(2))
        return scale * (grad - along - normal * across), None
