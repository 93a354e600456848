"""The normaliser of the contrastive softmax, log sum_k exp(q . k), dense when small and streamed when large."""

from typing import Any

import torch
from torch import Tensor

from imix.kernels import TRITON

# An (anchors x columns) matrix with more entries than this is never held; blocks of at most this many are.
LARGEST_BLOCK = 2**24


def log_sum_exp(q: Tensor, k: Tensor, own: Tensor | None = None) -> Tensor:
    """log sum_j exp(q_i . k_j), (n,), over all columns j but own[i].

    q (n, D), k (N, D), own (n,) long. Streamed, with recomputation in the backward pass, once n * N is large; value and
    gradient are those of the dense form.
    """
    if len(q) * len(k) <= LARGEST_BLOCK:
        return _logits(q, k, own).logsumexp(1)
    if TRITON and q.is_cuda and q.dtype == k.dtype == torch.float32:
        from imix.kernels import log_sum_exp as kernel

        if q.shape[1] <= kernel.WIDEST:
            return kernel.log_sum_exp(q, k, own)
    return _Streamed.apply(q, k, own)


def _logits(q: Tensor, k: Tensor, own: Tensor | None) -> Tensor:
    logits = q @ k.T
    return logits if own is None else logits.scatter(1, own[:, None], float("-inf"))


class _Streamed(torch.autograd.Function):
    """`log_sum_exp` a block of anchors at a time; the backward pass makes each block's softmax anew."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, own: Tensor | None) -> Tensor:
        value = torch.cat([_logits(q[rows], k, _at(own, rows)).logsumexp(1) for rows in _blocks(q, k)])
        ctx.save_for_backward(q, k, own, value)
        return value

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:
        q, k, own, value = ctx.saved_tensors
        grad_q = torch.empty_like(q)
        grad_k = torch.zeros_like(k) if ctx.needs_input_grad[1] else None
        with torch.autocast(q.device.type, enabled=False):
            for rows in _blocks(q, k):
                softmax = _logits(q[rows], k, _at(own, rows)).sub_(value[rows, None]).exp_().mul_(grad[rows, None])
                grad_q[rows] = softmax @ k
                if grad_k is not None:
                    grad_k.addmm_(softmax.T, q[rows])
        return grad_q, grad_k, None


def _blocks(q: Tensor, k: Tensor) -> list[slice]:
    """The anchors in blocks of at most LARGEST_BLOCK logits each."""
    height = max(1, LARGEST_BLOCK // len(k))
    return [slice(start, start + height) for start in range(0, len(q), height)]


def _at(own: Tensor | None, rows: slice) -> Tensor | None:
    return None if own is None else own[rows]
