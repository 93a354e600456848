"""ONNX export of any encoder, from raw inputs to features, for any batch size."""

import copy
import importlib.util
from pathlib import Path
from typing import BinaryIO

import torch
from torch import nn

from imix.encoders.mel import LogMel
from imix.errors import InputError, StorageError, first_line
from imix.files import write_atomically


def write_onnx(encoder: nn.Sequential, shape: tuple[int, ...] | None, out: Path) -> str:
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
        encoder[0] = nn.Sequential(*encoder[0])  # LogMel splits large batches, but the graph is for any batch size
    batch = torch.export.Dim("batch", min=1)
    return torch.export.export(encoder, (torch.zeros(2, *shape),), dynamic_shapes=({0: batch},))
