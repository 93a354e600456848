"""Export to a folder in the layout of the Hugging Face Hub.

model.safetensors   the weights, under the parameter names of the plain backbone; the header contains the architecture
                    and the mean and std of the inputs, which imix needs
config.json         timm's description of the model, if timm supports it; the run's config under the key "imix"
README.md           the model card
head.safetensors    the last layer of a fine-tuned run
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from imix.encoders.standardize import mean_and_std
from imix.errors import InputError, printable
from imix.files import write_folder, write_json, write_text
from imix.run import Run
from imix.run.classifier import HEAD_FILE, save_head
from imix.run.config import EXPORT_KEY, read_config
from imix.run.export.card import model_card
from imix.run.export.paths import config_without_paths, result_without_paths
from imix.run.export.weights import has_small_stem
from imix.run.stored_encoder import EXPORTED_FILE, is_export, save_exported_encoder

FILES = (EXPORTED_FILE, "config.json", "README.md", HEAD_FILE)
TIMM_KEYS = ("fixed_input_size", "pool_size", "first_conv", "classifier")  # of a model's pretrained_cfg


def write_export(run: Run, out: Path, overwrite: bool) -> str:
    """Write the folder; returns how to load it."""
    _check_folder(out, overwrite)
    config, timm = config_without_paths(run.config), timm_config(run)
    results = [result_without_paths(result) for result in run.evaluations]
    card = model_card(replace(run, config=config), results, in_timm=timm is not None)

    def write(folder: Path) -> None:
        save_exported_encoder(folder / EXPORTED_FILE, run.encoder, config.architecture, run.progress)
        if run.head is not None:
            save_head(folder, run.head)
        write_json(folder / "config.json", {**(timm or {}), EXPORT_KEY: config.to_json()})
        write_text(folder / "README.md", card)

    write_folder(out, write)
    name = printable(str(out))
    module = ", module" if config.architecture.is_custom else ""
    lines = [f"imix.load_encoder({name!r}{module}) or imix.load_run({name!r}{module}) loads it"]
    lines += [f"timm.create_model({f'local-dir:{name}'!r}, pretrained=True) also loads it"] if timm else []
    lines += ["before publishing it, choose a license in README.md"]
    if config.data.table is not None:
        lines[-1] += ", and check that config.json may be shared: it contains column names, categories and statistics"
    return "\n".join(lines)


def timm_config(run: Run) -> dict[str, Any] | None:
    """Return the config.json from which timm builds the backbone; None if timm does not support it.

    timm has torchvision's ResNets, but not with the stem for small images.
    """
    architecture = run.config.architecture
    backbone: Any = run.encoder[-1]
    known: dict[str, Any] = {"first_conv": "conv1", "classifier": "fc"}
    if architecture.encoder.startswith("timm:"):
        name = architecture.encoder.removeprefix("timm:").split(".")[0]
        known = {key: value for key, value in backbone.pretrained_cfg.items() if key in TIMM_KEYS}
    elif architecture.encoder.startswith("resnet") and not has_small_stem(backbone):
        name = architecture.encoder.split(":")[0]
    else:
        return None
    shape = architecture.clip.shape if architecture.clip else architecture.shape
    assert shape is not None
    mean, std = mean_and_std(run.encoder[0], shape[0])
    if shape[0] != 3:  # timm would convert a first layer with three channels
        known |= {"first_conv": None}
    inputs = {"input_size": shape, "mean": mean, "std": std, "interpolation": "bilinear", "crop_pct": 1.0}
    return {
        "architecture": name,
        "num_classes": 0,
        "num_features": backbone.width,
        "pretrained_cfg": {**known, **inputs, "num_classes": 0},
    }


def _check_folder(out: Path, overwrite: bool) -> None:
    """Raise InputError unless the folder can be created, is empty, or is an earlier export to overwrite."""
    path = out.resolve()
    if not path.parent.is_dir():
        raise InputError(f"cannot write {str(out)!r}: the folder {str(path.parent)!r} does not exist")
    if path.exists() and not path.is_dir():
        raise InputError(f"cannot write {str(out)!r}: format 'huggingface' writes a folder, and this is a file")
    if path == Path.cwd():
        raise InputError(f"cannot replace the current folder, {str(out)!r}; choose another one as `out`")
    if not path.exists() or not any(path.iterdir()):
        return
    others = sorted(entry.name for entry in path.iterdir() if entry.name not in FILES)
    if others or not _is_earlier_export(path):
        found = f"it contains other files, such as {others[0]!r}" if others else "it is not an earlier export"
        raise InputError(f"cannot write {str(out)!r}: {found}; choose a new or empty folder")
    if not overwrite:
        raise InputError(f"{str(out)!r} contains an earlier export; pass `overwrite=True` or choose another `out`")


def _is_earlier_export(folder: Path) -> bool:
    try:
        read_config(folder)
    except InputError:
        return False
    return is_export(folder)
