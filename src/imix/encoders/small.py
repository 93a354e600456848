"""The default encoder of sequences and images: small enough to train in seconds on a CPU."""

from collections.abc import Sequence

from torch import Tensor, nn


class SmallConvNet(nn.Module):
    """A small convolutional network for sequences (C, L) or images (C, H, W) of any size.

    Conv-BN-ReLU layers, all but the first with stride 2, then the mean over all positions.

    Parameters
    ----------
    channels : int
        Number of input channels C.
    axes : {1, 2}
        1 for sequences, 2 for images.
    widths : sequence of int
        Channels of each layer; the last is the feature dimension.
    """

    def __init__(self, channels: int, axes: int, widths: Sequence[int] = (32, 64, 128)) -> None:
        super().__init__()
        conv: type[nn.Module] = nn.Conv1d if axes == 1 else nn.Conv2d
        norm: type[nn.Module] = nn.BatchNorm1d if axes == 1 else nn.BatchNorm2d
        layers: list[nn.Module] = []
        for index, width in enumerate(widths):
            stride = 1 if index == 0 else 2
            layers += [conv(channels, width, 3, stride, padding=1, bias=False), norm(width), nn.ReLU(inplace=True)]
            channels = width
        self.layers = nn.Sequential(*layers)
        self.width = widths[-1]

    def forward(self, x: Tensor) -> Tensor:
        """Return features (N, width)."""
        return self.layers(x).flatten(2).mean(2)
