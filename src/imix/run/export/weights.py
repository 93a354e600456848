"""Weights of a ResNet under the parameter names of torchvision and timm, or of detectron2.

The files contain only weights, so the writers return the mean and std for standardizing the inputs.
"""

import json
import pickle
import re
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from imix.encoders.resnet import DEPTHS
from imix.encoders.standardize import mean_and_std
from imix.errors import InputError, printable
from imix.files import write_atomically, write_bytes

if TYPE_CHECKING:
    from torchvision.models import ResNet


def resnet_weights(resnet: nn.Module) -> dict[str, Tensor]:
    """Return the weights of a ResNet without its classifier, by torchvision's names, which timm uses too."""
    state = resnet.state_dict().items()
    return {name: value.detach().cpu().clone().contiguous() for name, value in state if not name.startswith("fc.")}


def detectron2_name(name: str) -> str:
    """Convert a parameter name from torchvision's ResNet to detectron2's, where batch norm is part of a convolution.

    >>> detectron2_name("layer1.0.bn2.weight"), detectron2_name("layer4.0.downsample.1.bias")
    ('res2.0.conv2.norm.weight', 'res5.0.shortcut.norm.bias')
    >>> detectron2_name("bn1.running_mean")
    'stem.conv1.norm.running_mean'
    """
    stage = re.match(r"layer(\d)\.", name)
    name = f"res{int(stage[1]) + 1}.{name[stage.end() :]}" if stage else f"stem.{name}"
    name = re.sub(r"\bbn(\d)\b", r"conv\1.norm", name)
    return name.replace("downsample.0", "shortcut").replace("downsample.1", "shortcut.norm")


def write_state_dict(encoder: nn.Sequential, resnet: "ResNet", format: str, out: Path) -> str:
    """Write a state dict for torchvision or timm; returns how to load it."""
    channels = resnet.conv1.in_channels
    mean, std = mean_and_std(encoder[0], channels)
    state = resnet_weights(resnet)
    if out.suffix == ".pth":
        write_atomically(out, lambda file: torch.save(state, file), sum(value.nbytes for value in state.values()))
    else:
        from safetensors.torch import save

        metadata = {"format": "pt", "mean": json.dumps(mean), "std": json.dumps(std), "in_chans": str(channels)}
        write_bytes(out, save(state, metadata))

    depth = resnet_depth(resnet)
    name = f"resnet{depth}" if depth else "the same ResNet"
    if format == "timm":
        load = f"timm.create_model({name!r}, num_classes=0, in_chans={channels}).load_state_dict(state)"
    else:
        load = f"torchvision.models.{name}() with fc = nn.Identity(): load_state_dict(state)"
    lines = [f"{load}; inputs: pixels in [0, 1], minus mean {_format(mean)}, divided by std {_format(std)}"]
    kernel = resnet.conv1.kernel_size[0]
    if has_small_stem(resnet):
        lines.append(f"first set conv1 to a {kernel}x{kernel} convolution with stride 1 and maxpool to nn.Identity()")
    elif channels != 3 and format == "torchvision":
        lines.append(f"first set conv1 to a {kernel}x{kernel} convolution with {channels} input channels")
    return "\n".join(lines)


def write_detectron2(encoder: nn.Sequential, resnet: "ResNet", out: Path) -> str:
    """Write a pickle for detectron2; returns the matching part of its configuration."""
    if has_small_stem(resnet) or resnet.conv1.in_channels != 3:
        raise InputError("format 'detectron2' needs a ResNet that has the standard stem and takes three channels")
    mean, std = mean_and_std(encoder[0], resnet.conv1.in_channels)
    state = {
        detectron2_name(name): value.numpy()
        for name, value in resnet_weights(resnet).items()
        if "num_batches" not in name
    }
    write_bytes(out, pickle.dumps({"model": state, "__author__": "imix", "matching_heuristics": True}))
    return "\n".join(
        [
            "MODEL:",
            f'  WEIGHTS: "{printable(str(out))}"',
            f"  PIXEL_MEAN: {_format([255 * value for value in mean], 3)}",
            f"  PIXEL_STD: {_format([255 * value for value in std], 3)}",
            "  RESNETS:",
            f"    DEPTH: {resnet_depth(resnet) or '(not a standard depth: set yours)'}",
            "    STRIDE_IN_1X1: False",
            "INPUT:",
            '  FORMAT: "RGB"',
        ]
    )


def find_resnet(encoder: nn.Sequential, format: str) -> "ResNet":
    """Return the backbone; raise InputError unless it is a torchvision ResNet."""
    from torchvision.models import ResNet

    if not isinstance(encoder[-1], ResNet):
        name = type(encoder[-1]).__name__
        raise InputError(f"format {format!r} is for ResNets; the encoder is a {name}; try format 'onnx'")
    return encoder[-1]


def resnet_depth(resnet: "ResNet") -> int | None:
    """Return the depth in the name of a standard ResNet, such as 50; None for other ResNets."""
    convolutions_per_block = 3 if hasattr(resnet.layer1[0], "conv3") else 2
    n_blocks = sum(map(len, (resnet.layer1, resnet.layer2, resnet.layer3, resnet.layer4)))
    depth = 2 + convolutions_per_block * n_blocks  # with the stem and the classifier
    return depth if depth in DEPTHS else None


def has_small_stem(resnet: "ResNet") -> bool:
    """Whether the stem is that for small images, which torchvision and timm do not have."""
    return not isinstance(resnet.maxpool, nn.MaxPool2d)


def _format(values: list[float], digits: int = 5) -> str:
    return f"[{', '.join(f'{value:.{digits}f}' for value in values)}]"
