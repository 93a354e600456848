"""ImageNet, and ImageNet-100 with 100 of its classes: the folders train and val, with one subfolder per class."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from imix.data.named.record import NamedDataset, PaperRecipe
from imix.errors import InputError
from imix.output import print_message
from imix.settings import DataSettings

if TYPE_CHECKING:
    from imix.data.source import Data

IMAGE_SIZE = 224
N_CLASSES = 100  # of ImageNet-100


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


def load_imagenet100(data_settings: DataSettings) -> "Data":
    """The images of 100 classes, resized to 224 x 224 pixels by default."""
    import numpy as np

    train, _ = find_folders("imagenet100", data_settings)
    classes = sorted(folder.name for folder in train.iterdir() if folder.is_dir())
    if len(classes) < N_CLASSES:
        raise InputError(f"imagenet100 needs at least {N_CLASSES} classes; {str(train)!r} has {len(classes)}")
    indices = sorted(np.random.default_rng(0).choice(len(classes), N_CLASSES, replace=False).tolist())
    chosen = [classes[index] for index in indices]
    print_message(f"imagenet100: {' '.join(chosen)}")
    return load_imagenet("imagenet100", data_settings, chosen)


def _record(
    title: str, summary: str, n_train: int, n_classes: int, load: "Callable[[DataSettings], Data]", **short: Any
) -> NamedDataset:
    return NamedDataset(
        name=title.lower().replace("-1k", "").replace("-", ""),
        title=title,
        kind="images",
        summary=summary,
        availability="read from `data_dir`, which must contain the folders train and val",
        options=("data_dir", "image_size"),
        n_train=n_train,
        n_classes=n_classes,
        marker_files=("train",),
        load=load,
        recipe=PaperRecipe(
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
            short_data_settings={"image_size": 64, **short},
        ),
    )


DATASETS = [
    _record(
        "ImageNet-1k",
        "1.3 million images, 1,000 classes",
        1_281_167,
        1_000,
        partial(load_imagenet, "imagenet"),
        fraction=0.1,
    ),
    _record(
        "ImageNet-100",
        "100 of ImageNet's classes, drawn with a fixed seed",
        128_000,  # approximately: the classes differ in size
        N_CLASSES,
        load_imagenet100,
    ),
]
