"""Export of encoders to other libraries: ResNet weights under their parameter names, or any encoder as an ONNX graph.

    torchvision   .safetensors or .pth, for torchvision.models.resnetN without its fc layer
    timm          the same parameter names, for timm.create_model("resnetN", num_classes=0)
    detectron2    .pkl, for MODEL.WEIGHTS of its ResNets
    onnx          .onnx, from raw inputs to features, including preprocessing, for any batch size

The first three contain only weights, so `export` returns the mean and std for standardizing the inputs.
"""

import copy
import importlib.util
import json
import pickle
import re
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, get_args

import torch
from torch import Tensor, nn

from imix.encoders.mel import LogMel
from imix.encoders.resnet import DEPTHS
from imix.encoders.standardize import mean_and_std
from imix.errors import InputError, StorageError, first_line, printable
from imix.files import check_output_path, write_atomically, write_bytes
from imix.run import Run
from imix.run.folder import report_progress
from imix.run.stored_encoder import load_with_progress, read_encoder

if TYPE_CHECKING:
    from torchvision.models import ResNet

Format = Literal["torchvision", "timm", "detectron2", "onnx"]
SUFFIXES = {
    "torchvision": (".safetensors", ".pth"),
    "timm": (".safetensors", ".pth"),
    "detectron2": (".pkl",),
    "onnx": (".onnx",),
}


def export(run: "Run | str | Path", format: Format, out: str | Path) -> str:
    """Write a run's encoder to a file for another library.

    Parameters
    ----------
    run : Run, str or Path
        A run, its folder or its encoder.safetensors file.
    format : {"torchvision", "timm", "detectron2", "onnx"}
        The target library. All formats except "onnx" require a ResNet encoder.
    out : str or Path
        The file to write: .safetensors or .pth for torchvision and timm, .pkl for detectron2, .onnx for onnx.

    Returns
    -------
    str
        Instructions for loading the file, a few lines of text.

    Examples
    --------
    >>> import tempfile
    >>> settings = imix.Settings(epochs=1, batch_size=4, encoder="resnet18", device="cpu")
    >>> run = imix.pretrain(torch.rand(4, 3, 8, 8), settings, progress=False)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(imix.export(run, "timm", folder + "/resnet18.safetensors"))  # doctest: +ELLIPSIS
    timm.create_model('resnet18', num_classes=0, in_chans=3).load_state_dict(state)...
    """
    if format not in get_args(Format):
        raise InputError(f"unknown format {format!r}; choose from {', '.join(get_args(Format))}")
    out = check_output_path(Path(out), SUFFIXES[format], f"an encoder for {format}")
    if isinstance(run, Run):
        encoder, shape = run.encoder, run.config.architecture.shape
    else:
        encoder, progress = load_with_progress(run)
        shape = read_encoder(run)[0].shape
        report_progress(run, progress)
    if format == "onnx":
        return _to_onnx(encoder, shape, out)
    resnet = _resnet(encoder, format)
    if format == "detectron2":
        return _to_detectron2(encoder, resnet, out)
    return _to_state_dict(encoder, resnet, format, out)


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


def _to_state_dict(encoder: nn.Sequential, resnet: "ResNet", format: str, out: Path) -> str:
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

    depth = _depth(resnet)
    name = f"resnet{depth}" if depth else "the same ResNet"
    if format == "timm":
        load = f"timm.create_model({name!r}, num_classes=0, in_chans={channels}).load_state_dict(state)"
    else:
        load = f"torchvision.models.{name}() with fc = nn.Identity(): load_state_dict(state)"
    lines = [f"{load}; inputs: pixels in [0, 1], minus mean {_format(mean)}, divided by std {_format(std)}"]
    kernel = resnet.conv1.kernel_size[0]
    if _has_small_stem(resnet):
        lines.append(f"first set conv1 to a {kernel}x{kernel} convolution with stride 1 and maxpool to nn.Identity()")
    elif channels != 3 and format == "torchvision":
        lines.append(f"first set conv1 to a {kernel}x{kernel} convolution with {channels} input channels")
    return "\n".join(lines)


def _to_detectron2(encoder: nn.Sequential, resnet: "ResNet", out: Path) -> str:
    """Write a pickle for detectron2; returns the matching part of its configuration."""
    if _has_small_stem(resnet) or resnet.conv1.in_channels != 3:
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
            f"    DEPTH: {_depth(resnet) or '(not a standard depth: set yours)'}",
            "    STRIDE_IN_1X1: False",
            "INPUT:",
            '  FORMAT: "RGB"',
        ]
    )


def _to_onnx(encoder: nn.Sequential, shape: tuple[int, ...] | None, out: Path) -> str:
    """Write an ONNX graph; returns its inputs and outputs."""
    if any(importlib.util.find_spec(name) is None for name in ("onnx", "onnxscript")):
        raise InputError("format 'onnx' needs the extra: pip install 'imix-ssl[onnx]'")
    if shape is None:
        raise InputError("format 'onnx' does not support encoders of samples with several fields")
    try:
        program = trace(encoder, shape)

        def write(file: BinaryIO) -> None:
            torch.onnx.export(
                program,
                f=file.name,
                input_names=["inputs"],
                output_names=["features"],
                dynamo=True,
                external_data=False,
                verbose=False,
            )

        write_atomically(out, write)
    except StorageError:
        raise
    except Exception as error:  # unsupported operations raise many different exceptions
        raise InputError(f"torch cannot export this encoder to ONNX: {first_line(error)}") from error
    sizes = ", ".join(map(str, shape))
    return f"inputs: float32 (N, {sizes}), raw (images in [0, 1], audio in [-1, 1]); features: float32 (N, F)"


def trace(encoder: nn.Sequential, shape: tuple[int, ...]) -> torch.export.ExportedProgram:
    """Trace the encoder for batches of any size."""
    encoder = copy.deepcopy(encoder).cpu().eval()
    if isinstance(encoder[0], LogMel):
        encoder[0] = nn.Sequential(*encoder[0])  # without splitting the batch, which depends on its size
    batch = torch.export.Dim("batch", min=1)
    return torch.export.export(encoder, (torch.zeros(2, *shape),), dynamic_shapes=({0: batch},))


def _resnet(encoder: nn.Sequential, format: str) -> "ResNet":
    """Return the backbone; raise InputError unless it is a torchvision ResNet."""
    from torchvision.models import ResNet

    if not isinstance(encoder[-1], ResNet):
        name = type(encoder[-1]).__name__
        raise InputError(f"format {format!r} is for ResNets; the encoder is a {name}; try format 'onnx'")
    return encoder[-1]


def _depth(resnet: "ResNet") -> int | None:
    """Return the depth in the name of a standard ResNet, such as 50; None for other ResNets."""
    convolutions_per_block = 3 if hasattr(resnet.layer1[0], "conv3") else 2
    n_blocks = sum(map(len, (resnet.layer1, resnet.layer2, resnet.layer3, resnet.layer4)))
    depth = 2 + convolutions_per_block * n_blocks  # with the stem and the classifier
    return depth if depth in DEPTHS else None


def _has_small_stem(resnet: "ResNet") -> bool:
    return not isinstance(resnet.maxpool, nn.MaxPool2d)


def _format(values: list[float], digits: int = 5) -> str:
    return f"[{', '.join(f'{value:.{digits}f}' for value in values)}]"
