"""Export of encoders to other libraries.

torchvision   .safetensors or .pth, for torchvision.models.resnetN without its fc layer
timm          the same parameter names, for timm.create_model("resnetN", num_classes=0)
detectron2    .pkl, for MODEL.WEIGHTS of its ResNets
onnx          .onnx, from raw inputs to features, including preprocessing, for any batch size
huggingface   a folder with weights, config and model card, for the Hugging Face Hub
"""

from pathlib import Path
from typing import Literal, get_args

from imix.errors import InputError
from imix.files import check_output_path
from imix.run import Run, as_run
from imix.run.export.folder import write_export
from imix.run.export.onnx import write_onnx
from imix.run.export.weights import find_resnet, write_detectron2, write_state_dict
from imix.run.folder import report_progress
from imix.run.stored_encoder import load_with_progress, read_encoder

Format = Literal["torchvision", "timm", "detectron2", "onnx", "huggingface"]
SUFFIXES = {
    "torchvision": (".safetensors", ".pth"),
    "timm": (".safetensors", ".pth"),
    "detectron2": (".pkl",),
    "onnx": (".onnx",),
}


def export(run: "Run | str | Path", format: Format, out: str | Path, *, overwrite: bool = False) -> str:
    """Write a run's encoder for another library: to a file, or to a folder for the Hugging Face Hub.

    Parameters
    ----------
    run : Run, str or Path
        A run, its folder or its encoder.safetensors file.
    format : {"torchvision", "timm", "detectron2", "onnx", "huggingface"}
        The target. torchvision, timm and detectron2 require a ResNet encoder. huggingface supports any encoder and
        writes a folder with model.safetensors, config.json and a model card, README.md. `imix.load_encoder`,
        `imix.load_run` and all functions that take a run accept this folder. timm and torchvision can load the
        architectures that they provide.
    out : str or Path
        The file to write: .safetensors or .pth for torchvision and timm, .pkl for detectron2, .onnx for onnx. For
        huggingface, a new or empty folder.
    overwrite : bool
        Replace a folder that an earlier export wrote. Files are always replaced.

    Returns
    -------
    str
        A few lines of text that say how to load the result.

    Examples
    --------
    >>> import tempfile
    >>> settings = imix.Settings(epochs=1, batch_size=4, encoder="resnet18", device="cpu")
    >>> run = imix.pretrain(torch.rand(4, 3, 8, 8), settings, progress=False)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(imix.export(run, "timm", folder + "/resnet18.safetensors"))  # doctest: +ELLIPSIS
    ...     _ = imix.export(run, "huggingface", folder + "/model")
    ...     imix.load_encoder(folder + "/model")(torch.rand(2, 3, 8, 8)).shape
    timm.create_model('resnet18', num_classes=0, in_chans=3).load_state_dict(state)...
    torch.Size([2, 512])
    """
    if format not in get_args(Format):
        raise InputError(f"unknown format {format!r}; choose from {', '.join(get_args(Format))}")
    if format == "huggingface":
        return write_export(as_run(run), Path(out), overwrite)
    out = check_output_path(Path(out), SUFFIXES[format], f"an encoder for {format}")
    if isinstance(run, Run):
        encoder, shape = run.encoder, run.config.architecture.shape
    else:
        encoder, progress = load_with_progress(run)
        shape = read_encoder(run)[0].shape
        report_progress(run, progress)
    if format == "onnx":
        return write_onnx(encoder, shape, out)
    resnet = find_resnet(encoder, format)
    if format == "detectron2":
        return write_detectron2(encoder, resnet, out)
    return write_state_dict(encoder, resnet, format, out)
