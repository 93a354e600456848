"""The normalizer of the contrastive softmax, log sum_k exp(q . k): dense if it is small, streamed if it is large."""

from typing import Any

import torch
from torch import Tensor

from imix.runtime.kernels import TRITON

# Maximum number of entries of an (anchors x keys) matrix that is held in memory at a time.
LARGEST_BLOCK = 2**24


def log_sum_exp(q: Tensor, k: Tensor, self_index: Tensor | None = None) -> Tensor:
    """Compute log sum_j exp(q_i . k_j) over all keys j except self_index[i].

    If n * N is large, the sum is streamed and recomputed in the backward pass. Values and gradients are the same.

    Parameters
    ----------
    q : Tensor of shape (n, D)
        Anchors.
    k : Tensor of shape (N, D)
        Keys.
    self_index : Tensor of shape (n,), optional
        For each anchor, the index of the key to exclude.

    Returns
    -------
    Tensor of shape (n,)
    """
    if len(q) * len(k) <= LARGEST_BLOCK:
        return _logits(q, k, self_index).logsumexp(1)
    if TRITON and q.is_cuda and q.dtype == k.dtype == torch.float32:
        from imix.runtime.kernels import logsumexp as kernel

        if q.shape[1] <= kernel.MAX_WIDTH:
            return kernel.log_sum_exp(q, k, self_index)
    return _Streamed.apply(q, k, self_index)


def _logits(q: Tensor, k: Tensor, self_index: Tensor | None) -> Tensor:
    logits = q @ k.T
    return logits if self_index is None else logits.scatter(1, self_index[:, None], float("-inf"))


class _Streamed(torch.autograd.Function):
    """`log_sum_exp` for one block of anchors at a time; the backward pass recomputes the softmax of each block."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, self_index: Tensor | None) -> Tensor:
        blocks = _blocks(q, k)
        value = torch.cat([_logits(q[rows], k, _slice(self_index, rows)).logsumexp(1) for rows in blocks])
        ctx.save_for_backward(q, k, self_index, value)
        return value

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:
        q, k, self_index, value = ctx.saved_tensors
        grad_q = torch.empty_like(q)
        grad_k = torch.zeros_like(k) if ctx.needs_input_grad[1] else None
        with torch.autocast(q.device.type, enabled=False):
            for rows in _blocks(q, k):
                logits = _logits(q[rows], k, _slice(self_index, rows))
                softmax = logits.sub_(value[rows, None]).exp_().mul_(grad[rows, None])
                grad_q[rows] = softmax @ k
                if grad_k is not None:
                    grad_k.addmm_(softmax.T, q[rows])
        return grad_q, grad_k, None


def _blocks(q: Tensor, k: Tensor) -> list[slice]:
    """Divide the anchors into blocks of at most LARGEST_BLOCK logits."""
    height = max(1, LARGEST_BLOCK // len(k))
    return [slice(start, start + height) for start in range(0, len(q), height)]


def _slice(self_index: Tensor | None, rows: slice) -> Tensor | None:
    return None if self_index is None else self_index[rows]
