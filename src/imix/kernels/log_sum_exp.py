"""`log_sum_exp` as Triton kernels: similarities are made, used and forgotten tile by tile, forward and backward.

Tensor cores multiply half-precision numbers. A float32 number is kept as two of them, itself rounded and the rest, and
a product is three of theirs, which leaves out what float32 has no digits for either.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.runtime.errors import OutOfResources

from imix.kernels import on_device_of

WIDEST = 256  # numbers of an embedding
PROGRAMS = 512  # at least that many at a time, where rows are few
RAISED = tl.constexpr(4096.0)  # by which probabilities are multiplied, to keep small ones in the range of halves

# Rows and columns of a tile, warps, stages: the fastest first, the others for GPUs (or widths) with less room for it.
FORWARD = BACKWARD_ROWS = ((128, 64, 8, 3), (64, 64, 4, 2), (64, 32, 4, 1), (32, 32, 4, 1))
BACKWARD_COLUMNS = ((64, 64, 4, 2), (64, 64, 4, 1), (32, 64, 4, 1), (32, 32, 4, 1))
Tiles = tuple[tuple[int, int, int, int], ...]


@triton.jit
def _halves(x, at, n, WIDTH: tl.constexpr):
    """Rows `at` of embeddings: rounded, and the rest."""
    place = at[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    there = (at < n)[:, None]
    return tl.load(x + place, mask=there, other=0.0), tl.load(x + n * WIDTH + place, mask=there, other=0.0)


@triton.jit
def _product(a, a_rest, b, b_rest):
    return tl.dot(a, b, tl.dot(a, b_rest, tl.dot(a_rest, b)))


@triton.jit
def _similarities(anchors, anchors_rest, keys, keys_rest, scale, own, row, column, n, columns, OWN: tl.constexpr):
    """A tile of q . k, with -inf where there is nothing or a row's own column."""
    logits = scale * _product(anchors, anchors_rest, tl.trans(keys), tl.trans(keys_rest))
    there = (column < columns)[None, :] & (row < n)[:, None]
    if OWN:
        there &= tl.load(own + row, mask=row < n, other=-1)[:, None] != column[None, :]
    return tl.where(there, logits, float("-inf"))


@triton.jit
def _forward(
    q,
    k,
    scale,
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
    factor = tl.load(scale)
    anchors, anchors_rest = _halves(q, row, n, WIDTH)
    highest = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    for at in range(start, tl.minimum(start + share, columns), COLUMNS):
        column = at + tl.arange(0, COLUMNS)
        keys, rest = _halves(k, column, columns, WIDTH)
        logits = _similarities(anchors, anchors_rest, keys, rest, factor, own, row, column, n, columns, OWN)
        higher = tl.maximum(highest, tl.max(logits, 1))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp(highest - base) + tl.sum(tl.exp(logits - base[:, None]), 1)
        highest = higher
    tl.store(found + tl.program_id(1) * n + row, highest + tl.log(total), mask=row < n)


@triton.jit
def _backward_rows(
    q,
    k,
    scale,
    own,
    value,
    weight,
    found,
    n,
    columns,
    share,
    WIDTH: tl.constexpr,
    OWN: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """sum_j p_ij k_j of a block of rows i over a share of the columns j."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    start = tl.program_id(1) * share
    factor = tl.load(scale)
    anchors, anchors_rest = _halves(q, row, n, WIDTH)
    values = tl.load(value + row, mask=row < n, other=0.0)
    weights = tl.load(weight + row, mask=row < n, other=0.0) * RAISED
    total = tl.zeros((ROWS, WIDTH), tl.float32)
    for at in range(start, tl.minimum(start + share, columns), COLUMNS):
        column = at + tl.arange(0, COLUMNS)
        keys, rest = _halves(k, column, columns, WIDTH)
        logits = _similarities(anchors, anchors_rest, keys, rest, factor, own, row, column, n, columns, OWN)
        p = tl.exp(logits - values[:, None]) * weights[:, None]
        rounded = p.to(tl.float16)
        total += _product(rounded, (p - rounded.to(tl.float32)).to(tl.float16), keys, rest)
    place = (tl.program_id(1) * n + row)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    tl.store(found + place, total / RAISED, mask=(row < n)[:, None])


@triton.jit
def _backward_columns(
    q,
    k,
    scale,
    own,
    value,
    weight,
    found,
    n,
    columns,
    share,
    WIDTH: tl.constexpr,
    OWN: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """sum_i p_ij q_i of a block of columns j over a share of the rows i."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    start = tl.program_id(1) * share
    factor = tl.load(scale)
    keys, keys_rest = _halves(k, column, columns, WIDTH)
    total = tl.zeros((COLUMNS, WIDTH), tl.float32)
    for at in range(start, tl.minimum(start + share, n), ROWS):
        row = at + tl.arange(0, ROWS)
        anchors, rest = _halves(q, row, n, WIDTH)
        logits = _similarities(anchors, rest, keys, keys_rest, factor, own, row, column, n, columns, OWN)
        values = tl.load(value + row, mask=row < n, other=0.0)
        weights = tl.load(weight + row, mask=row < n, other=0.0) * RAISED
        p = tl.trans(tl.exp(logits - values[:, None]) * weights[:, None])
        rounded = p.to(tl.float16)
        total += _product(rounded, (p - rounded.to(tl.float32)).to(tl.float16), anchors, rest)
    place = (tl.program_id(1) * columns + column)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    tl.store(found + place, total / RAISED, mask=(column < columns)[:, None])


class LogSumExp(torch.autograd.Function):
    """log sum_j exp(q_i . k_j), (n,), over all columns j but own[i]; q (n, D) and k (N, D) in float32."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, own: Tensor | None) -> Tensor:
        """Each program takes a block of rows and a share of the columns; the shares are put together after."""
        (halves_q, largest_q), (halves_k, largest_k) = _in_halves(q), _in_halves(k)
        given = halves_q, halves_k, largest_q * largest_k, own
        value = _launch(_forward, FORWARD, given, shape=()).logsumexp(0)
        ctx.save_for_backward(*given, value, largest_q, largest_k)
        ctx.width = q.shape[1]
        return value

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        """The same for rows of q over shares of k, and for rows of k over shares of q, with similarities made anew."""
        q, k, scale, own, value, largest_q, largest_k = ctx.saved_tensors
        largest = _largest(grad)
        given, shape = (q, k, scale, own, value, grad / largest), (q.shape[2],)
        grad_q = grad_k = None
        if ctx.needs_input_grad[0]:
            found = _launch(_backward_rows, BACKWARD_ROWS, given, shape).sum(0)
            grad_q = found[:, : ctx.width] * (largest_k * largest)
        if ctx.needs_input_grad[1]:
            found = _launch(_backward_columns, BACKWARD_COLUMNS, given, shape).sum(0)
            grad_k = found[:, : ctx.width] * (largest_q * largest)
        return grad_q, grad_k, None


@torch.compiler.disable  # which tiles fit is found by trying
def log_sum_exp(q: Tensor, k: Tensor, own: Tensor | None) -> Tensor:
    """`LogSumExp`, outside of what is compiled."""
    return LogSumExp.apply(q, k, own)


def _launch(kernel: Any, tiles: Tiles, given: tuple[Any, ...], shape: tuple[int, ...]) -> Tensor:
    """What each share gives for each row, or for each column: (shares, rows, *shape)."""
    q, k, scale, own = given[:4]
    n, m, width = q.shape[1], k.shape[1], q.shape[2]
    for at, (rows, columns, warps, stages) in enumerate(tiles):
        of_columns = kernel is _backward_columns
        kept, size, others, other = (m, columns, n, rows) if of_columns else (n, rows, m, columns)
        shares, share = _shares(kept, size, others, other)
        found = scale.new_empty(shares, kept, *shape)
        grid, how = (triton.cdiv(kept, size), shares), (width, own is not None, rows, columns)
        try:
            with on_device_of(q):
                kernel[grid](*given, found, n, m, share, *how, num_warps=warps, num_stages=stages)
            break
        except OutOfResources:
            if at == len(tiles) - 1:
                raise
    return found


def _in_halves(x: Tensor) -> tuple[Tensor, Tensor]:
    """x over its largest number, rounded to halves and the rest, (2, n, width), and that number.

    Tiles are a power of two wide, from 16 on; the zeros that fill them change no similarity.
    """
    largest = _largest(x)
    width = max(16, triton.next_power_of_2(x.shape[1]))
    x = torch.nn.functional.pad(x / largest, (0, width - x.shape[1]))
    rounded = x.half()
    return torch.stack([rounded, (x - rounded).half()]), largest


def _largest(x: Tensor) -> Tensor:
    return x.abs().amax().clamp(min=torch.finfo(x.dtype).tiny)


def _shares(kept: int, size: int, others: int, tile: int) -> tuple[int, int]:
    """In how many shares the others are gone through side by side, and how long one is: a number of whole tiles."""
    tiles = triton.cdiv(others, tile)
    wanted = min(tiles, triton.cdiv(PROGRAMS, triton.cdiv(kept, size)))
    share = triton.cdiv(tiles, wanted)
    return triton.cdiv(tiles, share), share * tile
