"""The default encoders: small enough to train in seconds on a CPU, one for each kind of sample."""

from collections.abc import Sequence

from torch import Tensor, nn

from imix.encoders.mlp import MLP


class Convolutions(nn.Module):
    """A small convolutional network for sequences (C, L) or images (C, H, W): -> (N, width), any size from 1 up.

    Conv-BN-ReLU layers, each after the first halving the sides while they can be halved, then the mean over positions.
    """

    def __init__(self, channels: int, axes: int, widths: Sequence[int] = (32, 64, 128)) -> None:
        super().__init__()
        conv: type[nn.Module] = nn.Conv1d if axes == 1 else nn.Conv2d
        norm: type[nn.Module] = nn.BatchNorm1d if axes == 1 else nn.BatchNorm2d
        layers: list[nn.Module] = []
        for index, width in enumerate(widths):
            stride = 1 if index == 0 else 2
            layers += [
                conv(channels, width, 3, stride, padding=1, bias=False),
                norm(width),
                nn.ReLU(inplace=True),
            ]
            channels = width
        self.layers = nn.Sequential(*layers)
        self.width = widths[-1]

    def forward(self, x: Tensor) -> Tensor:
        """Features of a batch."""
        return self.layers(x).flatten(2).mean(2)


def small_mlp(inputs: int, groups: Sequence[int] = ()) -> MLP:
    """The paper's tabular network at a width that suits a laptop: 256 features."""
    return MLP(inputs, widths=(256, 256, 1024), groups=groups)
