"""An encoder for other libraries: the weights of a ResNet under their names, or any encoder as an ONNX graph.

    torchvision   .safetensors or .pth, for torchvision.models.resnetN without its fc
    timm          the same names, for timm.create_model("resnetN", num_classes=0)
    detectron2    .pkl, for MODEL.WEIGHTS of its ResNets
    onnx          .onnx, from raw inputs to features, standardisation included, for batches of any size

The first three hold weights alone, so `export` says what inputs are to be standardised with.
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

from imix.data.mel import LogMel
from imix.data.standardise import statistics
from imix.encoders.stored import load_encoder, read_encoder
from imix.errors import InputError, StorageError, first_line
from imix.files import writable, write_atomically, write_bytes
from imix.run import Run

if TYPE_CHECKING:
    from torchvision.models import ResNet

Format = Literal["torchvision", "timm", "detectron2", "onnx"]
SUFFIXES = {
    "torchvision": (".safetensors", ".pth"),
    "timm": (".safetensors", ".pth"),
    "detectron2": (".pkl",),
    "onnx": (".onnx",),
}
BLOCKS: dict[tuple[object, ...], int] = {
    ("BasicBlock", 2, 2, 2, 2): 18,
    ("BasicBlock", 3, 4, 6, 3): 34,
    ("Bottleneck", 3, 4, 6, 3): 50,
    ("Bottleneck", 3, 4, 23, 3): 101,
    ("Bottleneck", 3, 8, 36, 3): 152,
}


def export(run: "Run | str | Path", format: Format, out: str | Path) -> str:
    """Write a run's encoder for another library; gives, in a few lines, how it is loaded there.

    `run` is a run, its folder or its encoder.safetensors.
    """
    if format not in get_args(Format):
        raise InputError(f"unknown format {format!r}; choose from {', '.join(get_args(Format))}")
    out = writable(Path(out), SUFFIXES[format], f"an encoder for {format}")
    encoder = run.encoder if isinstance(run, Run) else load_encoder(run)
    if format == "onnx":
        architecture = run.config["architecture"] if isinstance(run, Run) else read_encoder(run)[0]
        return _to_onnx(encoder, architecture["shape"], out)
    body = _resnet(encoder, format)
    if format == "detectron2":
        return _to_detectron2(encoder, body, out)
    return _to_state_dict(encoder, body, format, out)


def state_dict(body: nn.Module) -> dict[str, Tensor]:
    """The weights of a ResNet by torchvision's names, which are timm's as well, without a classifier."""
    state = body.state_dict().items()
    return {name: value.detach().cpu().clone().contiguous() for name, value in state if not name.startswith("fc.")}


def detectron2_name(name: str) -> str:
    """What detectron2 calls a weight of torchvision's ResNet; a convolution's normalisation is a part of it there.

    >>> detectron2_name("layer1.0.bn2.weight"), detectron2_name("layer4.0.downsample.1.bias")
    ('res2.0.conv2.norm.weight', 'res5.0.shortcut.norm.bias')
    >>> detectron2_name("bn1.running_mean")
    'stem.conv1.norm.running_mean'
    """
    stage = re.match(r"layer(\d)\.", name)
    name = f"res{int(stage[1]) + 1}.{name[stage.end() :]}" if stage else f"stem.{name}"
    name = re.sub(r"\bbn(\d)\b", r"conv\1.norm", name)
    return name.replace("downsample.0", "shortcut").replace("downsample.1", "shortcut.norm")


def _to_state_dict(encoder: nn.Sequential, body: "ResNet", format: str, out: Path) -> str:
    mean, deviation = statistics(encoder[0], body.conv1.in_channels)
    state, channels, small = state_dict(body), body.conv1.in_channels, _has_small_stem(body)
    about = {"mean": json.dumps(mean), "std": json.dumps(deviation), "in_chans": str(channels)}

    if out.suffix == ".pth":
        write_atomically(out, lambda file: torch.save(state, file), sum(value.nbytes for value in state.values()))
    else:
        from safetensors.torch import save

        write_bytes(out, save(state, {"format": "pt"} | about))
    depth = _depth(body)
    name = f"resnet{depth}" if depth else "the same ResNet"
    if format == "timm":
        how = f"timm.create_model({name!r}, num_classes=0, in_chans={channels}).load_state_dict(state)"
    else:
        how = f"torchvision.models.{name}(), with fc = nn.Identity(): load_state_dict(state)"
    lines = [f"{how}; inputs are colours in 0..1, minus mean {_listed(mean)}, divided by std {_listed(deviation)}"]
    kernel = body.conv1.kernel_size[0]
    if small:
        lines.append(f"set conv1 to a {kernel}x{kernel} convolution of stride 1 and maxpool to nn.Identity() before")
    elif channels != 3 and format == "torchvision":
        lines.append(f"set conv1 to a {kernel}x{kernel} convolution of {channels} channels before")
    return "\n".join(lines)


def _to_detectron2(encoder: nn.Sequential, body: "ResNet", out: Path) -> str:
    if _has_small_stem(body) or body.conv1.in_channels != 3:
        raise InputError("detectron2's ResNets have the standard stem and take three channels; this encoder's differ")
    mean, deviation = statistics(encoder[0], body.conv1.in_channels)
    state = {
        detectron2_name(name): value.numpy() for name, value in state_dict(body).items() if "num_batches" not in name
    }
    write_bytes(out, pickle.dumps({"model": state, "__author__": "imix", "matching_heuristics": True}))
    depth = _depth(body) or "as yours"
    return "\n".join(
        [
            "MODEL:",
            f'  WEIGHTS: "{out}"',
            f"  PIXEL_MEAN: {_listed([255 * value for value in mean], 3)}",
            f"  PIXEL_STD: {_listed([255 * value for value in deviation], 3)}",
            "  RESNETS:",
            f"    DEPTH: {depth}",
            "    STRIDE_IN_1X1: False",
            "INPUT:",
            '  FORMAT: "RGB"',
        ]
    )


def _to_onnx(encoder: nn.Sequential, shape: list[int] | None, out: Path) -> str:
    missing = [name for name in ("onnx", "onnxscript") if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError("format 'onnx' needs the extra: pip install 'imix-ssl[onnx]'")
    if shape is None:
        raise InputError("an encoder of samples with several fields cannot be written as onnx")
    try:
        program = traced(encoder, shape)

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
    except Exception as error:  # of many kinds, all saying that some operation has no counterpart
        raise InputError(f"torch cannot write this encoder as onnx: {first_line(error)}") from error
    sizes = ", ".join(map(str, shape))
    return f"inputs: float32 (N, {sizes}), raw (images in 0..1, sounds in -1..1); features: float32 (N, F)"


def traced(encoder: nn.Sequential, shape: list[int]) -> torch.export.ExportedProgram:
    """The encoder's operations on a batch of any size."""
    copied = copy.deepcopy(encoder).cpu().eval()
    if isinstance(copied[0], LogMel):
        copied[0] = nn.Sequential(*copied[0])  # a batch in one piece, whatever its size
    batch = torch.export.Dim("batch", min=1)
    return torch.export.export(copied, (torch.zeros(2, *shape),), dynamic_shapes=({0: batch},))


def _resnet(encoder: nn.Sequential, format: str) -> "ResNet":
    from torchvision.models import ResNet

    if not isinstance(encoder[-1], ResNet):
        kind = type(encoder[-1]).__name__
        raise InputError(f"format {format!r} is for ResNets; the encoder is a {kind}, which onnx can hold")
    return encoder[-1]


def _depth(body: "ResNet") -> int | None:
    """The number in a ResNet's name, if it is one of the usual ones."""
    stages = [body.layer1, body.layer2, body.layer3, body.layer4]
    return BLOCKS.get((type(body.layer1[0]).__name__, *map(len, stages)))


def _has_small_stem(body: "ResNet") -> bool:
    return not isinstance(body.maxpool, nn.MaxPool2d)


def _listed(values: list[float], digits: int = 5) -> str:
    return f"[{', '.join(f'{value:.{digits}f}' for value in values)}]"
