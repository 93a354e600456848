"""torchvision's ResNets for images of any size and any number of channels, with the paper's stem for small images."""

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from imix.errors import InputError

DEPTHS = (18, 34, 50, 101, 152)


def resnet(depth: int, channels: int = 3, stem: Literal["small", "standard"] = "small") -> nn.Module:
    """Build a ResNet without its classifier.

    Initialization and the position of the strides are torchvision's, as in the authors' code.

    Parameters
    ----------
    depth : {18, 34, 50, 101, 152}
        Number of layers.
    channels : int
        Number of input channels.
    stem : {"small", "standard"}
        "small" is a 3x3 convolution with stride 1 and no pooling, for CIFAR and mel spectrograms. "standard" is a 7x7
        convolution with stride 2 and max pooling, for ImageNet.

    Returns
    -------
    nn.Module
        Maps (N, channels, H, W) to (N, width); its attribute `width` is 512 or 2048.

    Examples
    --------
    >>> with torch.device("meta"):
    ...     imix.encoders.resnet(50).width
    2048
    """
    if depth not in DEPTHS:
        raise InputError(f"unknown ResNet depth {depth}; choose from {', '.join(map(str, DEPTHS))}")
    if stem not in ("small", "standard"):
        raise InputError(f"unknown stem {stem!r}; choose small or standard")
    import torchvision  # imports torch's compiler, which takes as long as importing torch

    model = getattr(torchvision.models, f"resnet{depth}")()
    kernel, stride, padding = (3, 1, 1) if stem == "small" else (7, 2, 3)
    model.conv1 = Stem(channels, 64, kernel, stride, padding, bias=False)
    nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")
    if stem == "small":
        model.maxpool = nn.Identity()
    model.width = model.fc.in_features
    model.fc = nn.Identity()
    return model


class Stem(nn.Conv2d):
    """A convolution that pads its few input channels with zeros on a GPU: tensor cores need a multiple of eight."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the result of the convolution."""
        missing = -self.in_channels % 8
        if not (input.is_cuda and missing):
            return super().forward(input)
        return self._conv_forward(
            F.pad(input, (0, 0, 0, 0, 0, missing)), F.pad(self.weight, (0, 0, 0, 0, 0, missing)), self.bias
        )
