"""Batch normalization with statistics over all ranks: torch's on GPUs, and an equivalent for CPU tensors."""

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from imix.errors import InputError
from imix.runtime import distributed


class CPUSyncBatchNorm(_BatchNorm):
    """Batch normalization with the statistics of the global batch; torch's version refuses CPU tensors."""

    def _check_input_dim(self, input: Tensor) -> None:
        """Accept inputs (N, C, ...) with any number of dimensions."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalize (N, C, ...), in training over the samples of all ranks."""
        if not self.training or distributed.world_size() == 1:
            return super().forward(input)
        shape = [1, -1] + [1] * (input.dim() - 2)
        mean, variance, count = _global_moments(input.float() if input.dtype.itemsize < 4 else input)
        if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
            with torch.no_grad():
                self.num_batches_tracked.add_(1)
                weight = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
                self.running_mean.lerp_(mean.to(self.running_mean), weight)
                self.running_var.lerp_((variance * count / (count - 1)).to(self.running_var), weight)
        normalized = (input - mean.view(shape)) * torch.rsqrt(variance + self.eps).view(shape)
        if self.affine:
            normalized = normalized * self.weight.view(shape) + self.bias.view(shape)
        return normalized.to(input.dtype)


def _global_moments(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean (C), variance (C) and number of values per channel over all ranks, with one collective per direction."""
    axes = [axis for axis in range(x.dim()) if axis != 1]
    channels = x.shape[1]
    local_variance, local_mean = torch.var_mean(x, axes, correction=0)
    local_count = x.new_tensor([x.numel() / channels])  # ranks may have batches of different sizes
    stats = distributed.gather_rows(torch.cat([local_mean, local_variance, local_count]))
    means, variances, counts = stats.view(distributed.world_size(), -1).split([channels, channels, 1], 1)
    count = counts.sum()
    mean = (counts * means).sum(0) / count
    variance = (counts * (variances + (means - mean).square())).sum(0) / count
    return mean, variance, count


def convert_sync_bn(module: nn.Module, device: torch.device) -> nn.Module:
    """Turn the batch normalization layers of `module` in place into synchronized ones for `device`; returns `module`.

    Only the class of a layer changes, so parameters, buffers, modes and layers that are shared stay as they are.
    """
    sync_class = nn.SyncBatchNorm if device.type == "cuda" else CPUSyncBatchNorm
    for layer in module.modules():
        if not isinstance(layer, _BatchNorm) or isinstance(layer, sync_class):
            continue
        if type(layer) not in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm, CPUSyncBatchNorm):
            raise InputError(
                f"{type(layer).__name__} is a custom subclass of batch normalization and cannot be synchronized over "
                "ranks; use `sync_bn=False`"
            )
        layer.__class__ = sync_class
        layer.process_group = None  # type: ignore[assignment]  # all ranks; an attribute of the class of torch
    return module
