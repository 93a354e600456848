"""Standardization as an input layer: fitted on the training data and stored with the encoder's weights."""

import torch
from torch import Tensor, nn

from imix.batch import to_float


class Standardize(nn.Module):
    """Scale each channel (axis 1: a table column, an image channel) to mean 0 and standard deviation 1.

    Parameters
    ----------
    channels : int
        Number of channels C.

    Examples
    --------
    >>> from imix.encoders.standardize import Standardize
    >>> x = 5 + 3 * torch.randn(1000, 4)
    >>> bool(Standardize(4).fit(x)(x).mean().abs() < 1e-4)
    True
    """

    mean: Tensor  # (C,)
    std: Tensor  # (C,)

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("std", torch.ones(channels))

    def fit(self, x: Tensor) -> "Standardize":
        """Set mean and std from samples (N, C, ...). The std of a constant channel stays 1."""
        if x.dtype == torch.uint8:
            return self._fit_bytes(x)
        axes = [axis for axis in range(x.dim()) if axis != 1]
        mean = x.mean(axes, dtype=torch.float64)
        self.mean.copy_(mean)
        centered = x - self._per_channel(self.mean, x)
        largest = centered.abs().amax(axes).clamp(min=1e-37)  # scale by it, so that squares stay within float32
        std = (centered / self._per_channel(largest, x)).square().mean(axes, dtype=torch.float64).sqrt() * largest
        self.std.copy_(torch.where(std > 1e-6 * mean.abs(), std, 1.0))
        return self

    def _fit_bytes(self, x: Tensor) -> "Standardize":
        """Fit from a histogram of the bytes: exact, and without a float copy of the images."""
        value = torch.arange(256, device=x.device, dtype=torch.float64) / 255
        for channel, pixels in enumerate(x.unbind(1)):
            frequency = torch.bincount(pixels.flatten(), minlength=256) / pixels.numel()
            mean = (frequency * value).sum()
            std = (frequency * (value - mean) ** 2).sum().sqrt()
            self.mean[channel], self.std[channel] = mean, torch.where(std > 1e-6, std, 1.0)
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Standardize samples (N, C, ...) of any numeric dtype; uint8 is first scaled to [0, 1]."""
        x = to_float(x).to(self.mean.dtype)
        return (x - self._per_channel(self.mean, x)) / self._per_channel(self.std, x)

    @staticmethod
    def _per_channel(values: Tensor, x: Tensor) -> Tensor:
        """Reshape values (C,) so that they broadcast along axis 1 of x."""
        return values.to(x).view(1, -1, *[1] * (x.dim() - 2))


def mean_and_std(input_layer: nn.Module | None, channels: int) -> tuple[list[float], list[float]]:
    """Return mean and std per channel of an encoder's input layer: 0 and 1 if it is not a `Standardize`."""
    if isinstance(input_layer, Standardize):
        return input_layer.mean.tolist(), input_layer.std.tolist()
    return [0.0] * channels, [1.0] * channels
