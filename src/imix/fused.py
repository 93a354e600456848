"""`log_sum_exp` as Triton kernels: similarities are made, used and forgotten tile by tile, forward and backward.

They need a GPU, or Triton's interpreter (TRITON_INTERPRET=1), by which they are tested on a CPU.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

WIDEST = 256  # numbers of an embedding
ROWS, COLUMNS = 64, 64  # of a tile
PROGRAMS = 512  # at least that many at a time, where rows are few


@triton.jit
def _similarities(q, k, own, row, column, n, columns, WIDTH: tl.constexpr, OWN: tl.constexpr):
    """A tile of q . k, with -inf where there is nothing or a row's own column; and its rows of q and k."""
    feature = tl.arange(0, WIDTH)
    anchors = tl.load(q + row[:, None] * WIDTH + feature[None, :], mask=(row < n)[:, None], other=0.0)
    keys = tl.load(k + column[:, None] * WIDTH + feature[None, :], mask=(column < columns)[:, None], other=0.0)
    logits = tl.dot(anchors, tl.trans(keys), input_precision="tf32x3")
    there = (column < columns)[None, :] & (row < n)[:, None]
    if OWN:
        there &= tl.load(own + row, mask=row < n, other=-1)[:, None] != column[None, :]
    return tl.where(there, logits, float("-inf")), anchors, keys


@triton.jit
def _forward(
    q,
    k,
    own,
    found,
    n,
    columns,
    share,
    WIDTH: tl.constexpr,
    OWN: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """log sum exp of a block of rows over a share of the columns."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    start = tl.program_id(1) * share
    highest = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    for at in range(start, tl.minimum(start + share, columns), COLUMNS):
        logits, _, _ = _similarities(q, k, own, row, at + tl.arange(0, COLUMNS), n, columns, WIDTH, OWN)
        higher = tl.maximum(highest, tl.max(logits, 1))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp(highest - base) + tl.sum(tl.exp(logits - base[:, None]), 1)
        highest = higher
    tl.store(found + tl.program_id(1) * n + row, highest + tl.log(total), mask=row < n)


@triton.jit
def _backward_rows(
    q,
    k,
    own,
    value,
    grad,
    found,
    n,
    columns,
    share,
    WIDTH: tl.constexpr,
    OWN: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """The gradient of a block of rows, of a share of the columns."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    start = tl.program_id(1) * share
    values = tl.load(value + row, mask=row < n, other=0.0)
    weights = tl.load(grad + row, mask=row < n, other=0.0)
    total = tl.zeros((ROWS, WIDTH), tl.float32)
    for at in range(start, tl.minimum(start + share, columns), COLUMNS):
        logits, _, keys = _similarities(q, k, own, row, at + tl.arange(0, COLUMNS), n, columns, WIDTH, OWN)
        softmax = tl.exp(logits - values[:, None]) * weights[:, None]
        total += tl.dot(softmax, keys, input_precision="tf32x3")
    place = (tl.program_id(1) * n + row)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    tl.store(found + place, total, mask=(row < n)[:, None])


@triton.jit
def _backward_columns(
    q,
    k,
    own,
    value,
    grad,
    found,
    n,
    columns,
    share,
    WIDTH: tl.constexpr,
    OWN: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """The gradient of a block of columns, of a share of the rows."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    start = tl.program_id(1) * share
    total = tl.zeros((COLUMNS, WIDTH), tl.float32)
    for at in range(start, tl.minimum(start + share, n), ROWS):
        row = at + tl.arange(0, ROWS)
        logits, anchors, _ = _similarities(q, k, own, row, column, n, columns, WIDTH, OWN)
        values = tl.load(value + row, mask=row < n, other=0.0)
        weights = tl.load(grad + row, mask=row < n, other=0.0)
        softmax = tl.exp(logits - values[:, None]) * weights[:, None]
        total += tl.dot(tl.trans(softmax), anchors, input_precision="tf32x3")
    place = (tl.program_id(1) * columns + column)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    tl.store(found + place, total, mask=(column < columns)[:, None])


class LogSumExp(torch.autograd.Function):
    """log sum_j exp(q_i . k_j), (n,), over all columns j but own[i]; q (n, D) and k (N, D) in float32."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, own: Tensor | None) -> Tensor:
        """Each program takes a block of rows and a share of the columns; the shares are put together after."""
        wide_q, wide_k = _widened(q), _widened(k)
        shares, share = _shares(len(q), ROWS, len(k), COLUMNS)
        found = q.new_empty(shares, len(q))
        grid = triton.cdiv(len(q), ROWS), shares
        _forward[grid](wide_q, wide_k, own, found, len(q), len(k), share, *_shape(wide_q, own))
        value = found.logsumexp(0)
        ctx.save_for_backward(wide_q, wide_k, own, value)
        ctx.width = q.shape[1]
        return value

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        """The same for rows of q over shares of k, and for rows of k over shares of q, with similarities made anew."""
        q, k, own, value = ctx.saved_tensors
        given = q, k, own, value, grad.contiguous()
        grads: list[Tensor | None] = [None, None]
        for at, (kernel, kept, size, others, other) in enumerate(
            ((_backward_rows, q, ROWS, k, COLUMNS), (_backward_columns, k, COLUMNS, q, ROWS))
        ):
            if ctx.needs_input_grad[at]:
                shares, share = _shares(len(kept), size, len(others), other)
                found = q.new_empty(shares, *kept.shape)
                grid = triton.cdiv(len(kept), size), shares
                kernel[grid](*given, found, len(q), len(k), share, *_shape(q, own))
                grads[at] = found.sum(0)[:, : ctx.width]
        return grads[0], grads[1], None


def _widened(x: Tensor) -> Tensor:
    """With zeros up to a power of two from 16 on, which is what tiles take; they change no similarity."""
    width = max(16, triton.next_power_of_2(x.shape[1]))
    return torch.nn.functional.pad(x.float(), (0, width - x.shape[1])).contiguous()


def _shape(q: Tensor, own: Tensor | None) -> tuple[int, bool, int, int]:
    return q.shape[1], own is not None, ROWS, COLUMNS


def _shares(kept: int, size: int, others: int, tile: int) -> tuple[int, int]:
    """In how many shares the others are gone through side by side, and how long one is: a number of whole tiles."""
    tiles = triton.cdiv(others, tile)
    wanted = min(tiles, triton.cdiv(PROGRAMS, triton.cdiv(kept, size)))
    share = triton.cdiv(tiles, wanted)
    return triton.cdiv(tiles, share), share * tile
