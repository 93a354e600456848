"""Standardisation that travels with the encoder: fitted on training data, stored with the weights."""

import torch
from torch import Tensor, nn

from imix.batch import as_floats


class Standardise(nn.Module):
    """Each channel (axis 1: a column of a table, a channel of an image) to mean 0 and deviation 1."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("deviation", torch.ones(channels))

    def fit(self, x: Tensor) -> "Standardise":
        """Take mean and deviation from samples (N, C, ...); a constant channel keeps deviation 1."""
        if x.dtype == torch.uint8:
            return self._fit_bytes(x)
        axes = [axis for axis in range(x.dim()) if axis != 1]
        mean = x.mean(axes, dtype=torch.float64)
        self.mean.copy_(mean)
        centred = x - self._along(self.mean, x)
        largest = centred.abs().amax(axes).clamp(min=1e-37)  # divided out, so that no square leaves float32
        deviation = (centred / self._along(largest, x)).square().mean(axes, dtype=torch.float64).sqrt() * largest
        self.deviation.copy_(torch.where(deviation > 1e-6 * mean.abs(), deviation, 1.0))
        return self

    def _fit_bytes(self, x: Tensor) -> "Standardise":
        """From how often each byte occurs: exact, and without a copy in floats."""
        value = torch.arange(256, device=x.device, dtype=torch.float64) / 255
        for channel, part in enumerate(x.unbind(1)):
            share = torch.bincount(part.flatten(), minlength=256) / part.numel()
            mean = (share * value).sum()
            deviation = (share * (value - mean) ** 2).sum().sqrt()
            self.mean[channel], self.deviation[channel] = mean, torch.where(deviation > 1e-6, deviation, 1.0)
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Standardise (N, C, ...), of any type of numbers."""
        x = as_floats(x).to(self.mean.dtype)
        return (x - self._along(self.mean, x)) / self._along(self.deviation, x)

    @staticmethod
    def _along(statistic: Tensor, x: Tensor) -> Tensor:
        return statistic.to(x).view(1, -1, *[1] * (x.dim() - 2))


def statistics(front: nn.Module | None, channels: int) -> tuple[list[float], list[float]]:
    """Mean and deviation of the inputs as an encoder takes them: 0 and 1 where nothing is standardised."""
    if isinstance(front, Standardise):
        return front.mean.tolist(), front.deviation.tolist()
    return [0.0] * channels, [1.0] * channels
