"""Batch normalization with statistics over all ranks, on any device (torch's version needs a GPU)."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from imix.errors import InputError
from imix.runtime import distributed


class SyncBatchNorm(nn.modules.batchnorm._BatchNorm):
    """Batch normalization with the statistics of the global batch."""

    @classmethod
    def convert(cls, module: nn.Module) -> nn.Module:
        """Convert all batch normalization layers of `module` in place; parameters and buffers are kept."""
        for layer in module.modules():
            if type(layer) in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm):
                layer.__class__ = cls
            elif isinstance(layer, nn.modules.batchnorm._BatchNorm) and not isinstance(layer, cls):
                raise InputError(
                    f"{type(layer).__name__} is a custom subclass of batch normalization and cannot be synchronized "
                    "over ranks; use --no-sync-bn (sync_bn=False)"
                )
        return module

    def _check_input_dim(self, input: Tensor) -> None:
        """Accept inputs (N, C, ...) with any number of dimensions."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalize (N, C, ...), in training over the samples of all ranks."""
        if not self.training or distributed.world_size() == 1:
            return super().forward(input)
        shape = [1, -1] + [1] * (input.dim() - 2)
        x = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
        normalized, mean, variance, count = _Normalize.apply(x, self.eps)
        if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
            with torch.no_grad():
                self.num_batches_tracked.add_(1)
                weight = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
                self.running_mean.lerp_(mean.to(self.running_mean), weight)
                self.running_var.lerp_((variance * count / (count - 1)).to(self.running_var), weight)
        if self.affine:
            normalized = normalized * self.weight.view(shape) + self.bias.view(shape)
        return normalized.to(input.dtype)


class _Normalize(torch.autograd.Function):
    """Normalize (N, C, ...) to mean 0 and variance 1 over all ranks, with one collective in each direction.

    Also returns the mean, the variance and the number of values per channel, without gradient.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        axes = [axis for axis in range(x.dim()) if axis != 1]
        shape = [1, -1] + [1] * (x.dim() - 2)
        local_mean = x.mean(axes)
        local_scatter = (x - local_mean.view(shape)).square().sum(axes)
        local_count = x.new_tensor([x.numel() / x.shape[1]])  # ranks may have batches of different sizes
        local_stats = torch.cat([local_mean, local_scatter, local_count])
        all_stats = [torch.empty_like(local_stats) for _ in range(distributed.world_size())]
        dist.all_gather(all_stats, local_stats)
        channels = x.shape[1]
        means, scatters, counts = torch.stack(all_stats).split([channels, channels, 1], 1)
        count = counts.sum()
        mean = (counts * means).sum(0) / count
        variance = (scatters + counts * (means - mean).square()).sum(0) / count
        scale = torch.rsqrt(variance + eps).view(shape)
        normalized = (x - mean.view(shape)) * scale
        ctx.save_for_backward(normalized, scale, count)
        ctx.mark_non_differentiable(mean, variance, count)
        return normalized, mean, variance, count

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor, *unused: Tensor) -> tuple[Tensor, None]:
        normalized, scale, count = ctx.saved_tensors
        axes = [axis for axis in range(grad.dim()) if axis != 1]
        sums = torch.cat([grad.sum(axes), (grad * normalized).sum(axes)])
        dist.all_reduce(sums)
        mean_grad, mean_product = (part.view_as(scale) / count for part in sums.chunk(2))
        return scale * (grad - mean_grad - normalized * mean_product), None
