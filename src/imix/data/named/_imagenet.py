"""Code and recipe shared by ImageNet and ImageNet-100: the folders train and val, with one subfolder per class."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from imix.data.named.record import PaperRecipe
from imix.errors import InputError
from imix.settings import DataSettings

if TYPE_CHECKING:
    from imix.data.source import Data

IMAGE_SIZE = 224
AVAILABILITY = "read from `data_dir`, which must contain the folders train and val"


def build_recipe(short_data_settings: Mapping[str, Any]) -> PaperRecipe:
    """The paper's recipe for ImageNet and its subsets."""
    return PaperRecipe(
        settings={
            "encoder": "resnet50",
            "batch_size": 512,
            "lr": 0.03,
            "head": "mlp",
            "queue": 65_536,
            "epochs": 800,
        },
        # With fewer steps, a weight decay of 1e-4 would have little effect, and with a momentum of 0.999 the key
        # network would lag too far behind.
        short_settings={"encoder": "resnet18", "epochs": 50, "weight_decay": 5e-4, "momentum": 0.99},
        short_data_settings=dict(short_data_settings),
    )


def load_imagenet(name: str, data_settings: DataSettings, classes: Sequence[str] | None = None) -> "Data":
    """Read the images of all classes, or of the named ones, resized to 224 x 224 pixels unless set otherwise."""
    from imix.data.media.images import read_image_folder

    train, val = find_folders(name, data_settings)
    # The image size becomes part of the settings, so that data loaded later is resized in the same way.
    data_settings = replace(data_settings, image_size=data_settings.image_size or IMAGE_SIZE)
    data = read_image_folder(train, replace(data_settings, test=str(val)), classes)
    return replace(data, name=name, settings=data_settings)


def find_folders(name: str, data_settings: DataSettings) -> tuple[Path, Path]:
    """The folders train and val in `data_dir`."""
    if data_settings.data_dir is None:
        raise InputError(f"{name} needs `data_dir=FOLDER`, a folder that contains ImageNet's folders train and val")
    train, val = (Path(data_settings.data_dir) / split for split in ("train", "val"))
    if not (train.is_dir() and val.is_dir()):
        raise InputError(f"{name} needs the folders train and val of ImageNet in `data_dir` {data_settings.data_dir!r}")
    return train, val
