"""Samples that are stored in blocks, such as the row groups of a Parquet file: their order, and a cache of blocks."""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from typing import Generic, TypeVar

import torch
from torch import Tensor

from imix.runtime.rng import epoch_generator, epoch_order

Block = TypeVar("Block")


def block_order(blocks: Tensor, window: int, seed: int, epoch: int, rows: Tensor | None = None) -> Tensor:
    """Return the order in which an epoch visits rows that are stored in blocks.

    Blocks are visited in random order, about `window` at a time: the rows of a block are spread at random over the time
    in which the next `window` blocks begin. If there are no more blocks than that, all rows are shuffled.

    Parameters
    ----------
    blocks : Tensor of shape (N,), int
        The block of each row.
    window : int
        Number of blocks that are in use at a time.
    seed, epoch : int
        They determine the order.
    rows : Tensor of shape (M,), optional
        The rows to visit. Default: all.

    Returns
    -------
    Tensor of shape (N,) or (M,)
        Every row once.
    """
    if rows is not None:
        return rows[block_order(blocks[rows], window, seed, epoch)]
    n_blocks = int(blocks.max()) + 1
    if n_blocks <= window:
        return epoch_order(seed, epoch, len(blocks))
    generator = epoch_generator(seed, epoch)
    start = torch.randperm(n_blocks, generator=generator).float()
    time = torch.rand(len(blocks), generator=generator).mul_(window).add_(start[blocks])
    # Only a few blocks are in use in the first and last half window, so their rows are reflected.
    first, last = window / 2, n_blocks - 1 + window / 2
    time.sub_(first).abs_().add_(first - last).abs_()
    return time.argsort(descending=True, stable=True)


class BlockCache(Generic[Block]):
    """A cache of the most recently used blocks, which threads load in advance.

    Parameters
    ----------
    load : function
        Loads a block by its number.
    capacity : int
        Number of blocks to keep.
    """

    def __init__(self, load: Callable[[int], Block], capacity: int) -> None:
        self.load, self.capacity = load, capacity
        self.blocks: OrderedDict[int, Future[Block]] = OrderedDict()

    def request(self, numbers: Iterable[int], pool: Executor) -> dict[int, Future[Block]]:
        """Start loading the blocks that are not in the cache, and return the requested blocks."""
        requested = {}
        for number in numbers:
            if number not in self.blocks or _has_failed(self.blocks[number]):
                self.blocks[number] = pool.submit(self.load, number)
            self.blocks.move_to_end(number)
            requested[number] = self.blocks[number]
        while len(self.blocks) > self.capacity:
            self.blocks.popitem(last=False)
        return requested


def _has_failed(block: Future[Block]) -> bool:
    return block.cancelled() or (block.done() and block.exception() is not None)
