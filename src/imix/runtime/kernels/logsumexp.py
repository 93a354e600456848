"""`log_sum_exp` as Triton kernels: similarities are computed tile by tile in both passes, and never stored.

Tensor cores multiply half-precision numbers. Each float32 number is stored as the sum of two of them, the rounded value
and the remainder. A product takes three half-precision products; the fourth is below the precision of float32.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.runtime.errors import OutOfResources

from imix.runtime.kernels import on_device_of

MAX_WIDTH = 256  # embedding dimension
MIN_PROGRAMS = 512  # minimum number of parallel programs, reached by splitting the reduction if there are few rows
PROBABILITY_SCALE = tl.constexpr(4096.0)  # keeps small probabilities within the range of half precision

# (rows and columns of a tile, warps, stages): the fastest first, then fallbacks for GPUs with less shared memory.
FORWARD = BACKWARD_ROWS = ((128, 64, 8, 3), (64, 64, 4, 2), (64, 32, 4, 1), (32, 32, 4, 1))
BACKWARD_COLUMNS = ((64, 64, 4, 2), (64, 64, 4, 1), (32, 64, 4, 1), (32, 32, 4, 1))
Tiles = tuple[tuple[int, int, int, int], ...]


@triton.jit
def _load_halves(x, index, n, WIDTH: tl.constexpr):
    """Load the embeddings with these row indices: rounded values and remainders."""
    offset = index[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    valid = (index < n)[:, None]
    return tl.load(x + offset, mask=valid, other=0.0), tl.load(x + n * WIDTH + offset, mask=valid, other=0.0)


@triton.jit
def _product(a, a_rest, b, b_rest):
    return tl.dot(a, b, tl.dot(a, b_rest, tl.dot(a_rest, b)))


@triton.jit
def _similarities(
    anchors, anchors_rest, keys, keys_rest, scale, self_index, row, column, n, columns, HAS_SELF: tl.constexpr
):
    """Compute a tile of q . k, with -inf outside of the matrix and at self_index."""
    logits = scale * _product(anchors, anchors_rest, tl.trans(keys), tl.trans(keys_rest))
    valid = (column < columns)[None, :] & (row < n)[:, None]
    if HAS_SELF:
        valid &= tl.load(self_index + row, mask=row < n, other=-1)[:, None] != column[None, :]
    return tl.where(valid, logits, float("-inf"))


@triton.jit
def _forward(
    q,
    k,
    scale,
    self_index,
    output,
    n,
    columns,
    chunk,
    WIDTH: tl.constexpr,
    HAS_SELF: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Compute the log-sum-exp of a block of rows over one chunk of the columns."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    start = tl.program_id(1) * chunk
    factor = tl.load(scale)
    anchors, anchors_rest = _load_halves(q, row, n, WIDTH)
    maximum = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    for first in range(start, tl.minimum(start + chunk, columns), COLUMNS):
        column = first + tl.arange(0, COLUMNS)
        keys, rest = _load_halves(k, column, columns, WIDTH)
        logits = _similarities(anchors, anchors_rest, keys, rest, factor, self_index, row, column, n, columns, HAS_SELF)
        new_maximum = tl.maximum(maximum, tl.max(logits, 1))
        base = tl.where(new_maximum == float("-inf"), 0.0, new_maximum)
        total = total * tl.exp(maximum - base) + tl.sum(tl.exp(logits - base[:, None]), 1)
        maximum = new_maximum
    tl.store(output + tl.program_id(1) * n + row, maximum + tl.log(total), mask=row < n)


@triton.jit
def _backward_rows(
    q,
    k,
    scale,
    self_index,
    value,
    weight,
    output,
    n,
    columns,
    chunk,
    WIDTH: tl.constexpr,
    HAS_SELF: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Compute sum_j p_ij k_j for a block of rows i over one chunk of the columns j."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    start = tl.program_id(1) * chunk
    factor = tl.load(scale)
    anchors, anchors_rest = _load_halves(q, row, n, WIDTH)
    values = tl.load(value + row, mask=row < n, other=0.0)
    weights = tl.load(weight + row, mask=row < n, other=0.0) * PROBABILITY_SCALE
    total = tl.zeros((ROWS, WIDTH), tl.float32)
    for first in range(start, tl.minimum(start + chunk, columns), COLUMNS):
        column = first + tl.arange(0, COLUMNS)
        keys, rest = _load_halves(k, column, columns, WIDTH)
        logits = _similarities(anchors, anchors_rest, keys, rest, factor, self_index, row, column, n, columns, HAS_SELF)
        p = tl.exp(logits - values[:, None]) * weights[:, None]
        rounded = p.to(tl.float16)
        total += _product(rounded, (p - rounded.to(tl.float32)).to(tl.float16), keys, rest)
    offset = (tl.program_id(1) * n + row)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    tl.store(output + offset, total / PROBABILITY_SCALE, mask=(row < n)[:, None])


@triton.jit
def _backward_columns(
    q,
    k,
    scale,
    self_index,
    value,
    weight,
    output,
    n,
    columns,
    chunk,
    WIDTH: tl.constexpr,
    HAS_SELF: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Compute sum_i p_ij q_i for a block of columns j over one chunk of the rows i."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    start = tl.program_id(1) * chunk
    factor = tl.load(scale)
    keys, keys_rest = _load_halves(k, column, columns, WIDTH)
    total = tl.zeros((COLUMNS, WIDTH), tl.float32)
    for first in range(start, tl.minimum(start + chunk, n), ROWS):
        row = first + tl.arange(0, ROWS)
        anchors, rest = _load_halves(q, row, n, WIDTH)
        logits = _similarities(anchors, rest, keys, keys_rest, factor, self_index, row, column, n, columns, HAS_SELF)
        values = tl.load(value + row, mask=row < n, other=0.0)
        weights = tl.load(weight + row, mask=row < n, other=0.0) * PROBABILITY_SCALE
        p = tl.trans(tl.exp(logits - values[:, None]) * weights[:, None])
        rounded = p.to(tl.float16)
        total += _product(rounded, (p - rounded.to(tl.float32)).to(tl.float16), anchors, rest)
    offset = (tl.program_id(1) * columns + column)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    tl.store(output + offset, total / PROBABILITY_SCALE, mask=(column < columns)[:, None])


class LogSumExp(torch.autograd.Function):
    """log sum_j exp(q_i . k_j), (n,), over all columns j except self_index[i]; q (n, D) and k (N, D) in float32."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, self_index: Tensor | None) -> Tensor:
        """Each program handles a block of rows and a chunk of the columns; the chunks are combined afterwards."""
        (halves_q, max_q), (halves_k, max_k) = _split_halves(q), _split_halves(k)
        inputs = halves_q, halves_k, max_q * max_k, self_index
        value = _launch(_forward, FORWARD, inputs, shape=()).logsumexp(0)
        ctx.save_for_backward(*inputs, value, max_q, max_k)
        ctx.width = q.shape[1]
        return value

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        """Recompute the similarities, for rows of q over chunks of k and for rows of k over chunks of q."""
        q, k, scale, self_index, value, max_q, max_k = ctx.saved_tensors
        max_grad = _max_abs(grad)
        inputs, shape = (q, k, scale, self_index, value, grad / max_grad), (q.shape[2],)
        grad_q = grad_k = None
        if ctx.needs_input_grad[0]:
            weighted_keys = _launch(_backward_rows, BACKWARD_ROWS, inputs, shape).sum(0)
            grad_q = weighted_keys[:, : ctx.width] * (max_k * max_grad)
        if ctx.needs_input_grad[1]:
            weighted_anchors = _launch(_backward_columns, BACKWARD_COLUMNS, inputs, shape).sum(0)
            grad_k = weighted_anchors[:, : ctx.width] * (max_q * max_grad)
        return grad_q, grad_k, None


@torch.compiler.disable  # the tile size is found by trial and error, which cannot be compiled
def log_sum_exp(q: Tensor, k: Tensor, self_index: Tensor | None) -> Tensor:
    """`LogSumExp`, excluded from torch.compile."""
    return LogSumExp.apply(q, k, self_index)


def _launch(kernel: Any, tiles: Tiles, inputs: tuple[Any, ...], shape: tuple[int, ...]) -> Tensor:
    """Run a kernel with the first tile size that fits; returns partial results (chunks, rows or columns, *shape)."""
    q, k, scale, self_index = inputs[:4]
    n, m, width = q.shape[1], k.shape[1], q.shape[2]
    for i, (rows, columns, warps, stages) in enumerate(tiles):
        per_column = kernel is _backward_columns
        kept, kept_tile, reduced, reduced_tile = (m, columns, n, rows) if per_column else (n, rows, m, columns)
        n_chunks, chunk = _chunks(kept, kept_tile, reduced, reduced_tile)
        output = scale.new_empty(n_chunks, kept, *shape)
        grid, constants = (triton.cdiv(kept, kept_tile), n_chunks), (width, self_index is not None, rows, columns)
        try:
            with on_device_of(q):
                kernel[grid](*inputs, output, n, m, chunk, *constants, num_warps=warps, num_stages=stages)
            break
        except OutOfResources:
            if i == len(tiles) - 1:
                raise
    return output


def _split_halves(x: Tensor) -> tuple[Tensor, Tensor]:
    """Divide x by its largest absolute value; returns rounded values and remainders (2, n, width), and that value.

    The width is padded with zeros to a power of two of at least 16, as tiles require; this changes no similarity.
    """
    largest = _max_abs(x)
    width = max(16, triton.next_power_of_2(x.shape[1]))
    x = torch.nn.functional.pad(x / largest, (0, width - x.shape[1]))
    rounded = x.half()
    return torch.stack([rounded, (x - rounded).half()]), largest


def _max_abs(x: Tensor) -> Tensor:
    return x.abs().amax().clamp(min=torch.finfo(x.dtype).tiny)


def _chunks(kept: int, kept_tile: int, reduced: int, reduced_tile: int) -> tuple[int, int]:
    """Split the reduced axis so that enough programs run in parallel; returns the number of chunks and their length."""
    tiles = triton.cdiv(reduced, reduced_tile)
    n_chunks = min(tiles, triton.cdiv(MIN_PROGRAMS, triton.cdiv(kept, kept_tile)))
    tiles_per_chunk = triton.cdiv(tiles, n_chunks)
    return triton.cdiv(tiles, tiles_per_chunk), tiles_per_chunk * reduced_tile
