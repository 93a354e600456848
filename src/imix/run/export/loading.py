"""Code examples for the model card that load the encoder with imix, timm and torchvision, run in the export folder."""

from typing import NamedTuple

from imix.encoders.standardize import mean_and_std
from imix.run import Run
from imix.run.export.weights import find_resnet, has_small_stem

TORCHVISION = """
import torch
import torchvision
from safetensors.torch import load_file

model = torchvision.models.{name}()
{changes}
model.fc = torch.nn.Identity()
model.load_state_dict(load_file("model.safetensors"))
{features}
"""


class Example(NamedTuple):
    """Code that loads the encoder with a library, and an explanation."""

    text: str
    code: str


def loading_examples(run: Run, *, in_timm: bool) -> list[Example]:
    """Return the examples that apply to a run."""
    examples = [_with_imix(run)]
    if in_timm:
        examples.append(_with_timm(run))
    if run.config.architecture.encoder.startswith("resnet"):
        examples.append(_with_torchvision(run))
    return examples


def _with_imix(run: Run) -> Example:
    architecture = run.config.architecture
    text = "imix (`pip install imix-ssl`) includes the preprocessing. Functions that accept a run accept this folder."
    if architecture.is_custom:
        text += " `module` is an `nn.Module` of the trained architecture, built by your own code."
        return Example(
            text, 'import imix\n\nencoder = imix.load_encoder(".", module)\nrun = imix.load_run(".", module)'
        )
    if run.config.data.table is not None:
        text += " The table must have the columns of the training table, except the label."
        return Example(text, 'import imix\n\nfeatures = imix.embed(".", "table.csv")')
    code = f'import imix\nimport torch\n\nencoder = imix.load_encoder(".")\n{_inputs(architecture.shape)}'
    return Example(text, f"{code}\nfeatures = encoder(inputs)")


def _with_timm(run: Run) -> Example:
    text = (
        f"timm loads the network without the preprocessing{_preprocessing(run)}. For a model on the Hub, use the name"
    )
    text += ' `"hf-hub:USER/NAME"`. `timm.data.resolve_model_data_config(model)` returns image size, mean and std.'
    code = 'import timm\nimport torch\n\nmodel = timm.create_model("local-dir:.", pretrained=True)'
    return Example(text, f"{code}\n{_features(run)}")


def _with_torchvision(run: Run) -> Example:
    architecture, resnet = run.config.architecture, find_resnet(run.encoder, "torchvision")
    channels, changes = resnet.conv1.in_channels, []
    text = f"torchvision loads the network without the preprocessing{_preprocessing(run)}."
    if has_small_stem(resnet):
        text += " The first layers are those for small images, which timm does not support."
        changes.append(f"model.conv1 = torch.nn.Conv2d({channels}, 64, 3, stride=1, padding=1, bias=False)")
        changes.append("model.maxpool = torch.nn.Identity()")
    elif channels != 3:
        changes.append(f"model.conv1 = torch.nn.Conv2d({channels}, 64, 7, stride=2, padding=3, bias=False)")
    code = TORCHVISION.format(
        name=architecture.encoder.split(":")[0], changes="\n".join(changes), features=_features(run)
    )
    return Example(text, code.strip().replace("\n\nmodel.fc", "\nmodel.fc"))


def _preprocessing(run: Run) -> str:
    return ": the inputs are mel spectrograms computed by imix" if run.config.architecture.clip else ""


def _inputs(shape: tuple[int, ...] | None) -> str:
    return f"inputs = torch.rand({', '.join(map(str, (8, *(shape or ()))))})"


def _features(run: Run) -> str:
    """Code that computes the features of a batch with a plain `model`."""
    clip = run.config.architecture.clip
    lines = ["model.eval()", _inputs(clip.shape if clip else run.config.architecture.shape)]
    if run.config.architecture.standardize:
        for name, values in zip(("mean", "std"), mean_and_std(run.encoder[0], 0), strict=True):
            lines.append(f"{name} = torch.tensor([{', '.join(f'{value:.9g}' for value in values)}])")
        lines.append("features = model((inputs - mean.view(-1, 1, 1)) / std.view(-1, 1, 1))")
    else:
        lines.append("features = model(inputs)")
    return "\n".join(lines)
