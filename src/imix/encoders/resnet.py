"""ResNets for small and large images with any number of channels: torchvision's, with the paper's small stem."""

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from imix.errors import InputError

DEPTHS = (18, 34, 50, 101, 152)


def resnet(depth: int, channels: int = 3, stem: Literal["small", "standard"] = "small") -> nn.Module:
    """A ResNet without its classifier: (N, channels, H, W) -> (N, width), width 512 or 2048.

    The "small" stem is one 3x3 convolution of stride 1 and no pooling (CIFAR, mel spectrograms); the "standard" one is
    7x7 of stride 2 with max-pooling (ImageNet). Initialisation and the place of the stride are torchvision's, which are
    the authors'.
    """
    if depth not in DEPTHS:
        raise InputError(f"no ResNet of depth {depth}; choose from {', '.join(map(str, DEPTHS))}")
    if stem not in ("small", "standard"):
        raise InputError(f"unknown stem {stem!r}; choose small or standard")
    import torchvision  # with it comes torch's compiler, which takes as long as torch itself

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
    """A convolution of few channels; on a GPU it gets zeros beside them, since tensor cores take eight at a time."""

    def forward(self, input: Tensor) -> Tensor:
        """As a convolution."""
        missing = -self.in_channels % 8
        if not (input.is_cuda and missing):
            return super().forward(input)
        return self._conv_forward(
            F.pad(input, (0, 0, 0, 0, 0, missing)), F.pad(self.weight, (0, 0, 0, 0, 0, missing)), self.bias
        )
