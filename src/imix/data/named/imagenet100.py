"""ImageNet-100: 100 of ImageNet's classes, drawn with a fixed seed."""

import sys
from typing import TYPE_CHECKING

from imix.data.named._imagenet import AVAILABILITY, build_recipe, find_folders, load_imagenet
from imix.data.named.record import NamedDataset
from imix.errors import InputError
from imix.settings import DataSettings

if TYPE_CHECKING:
    from imix.data.source import Data

N_CLASSES = 100


def load(data_settings: DataSettings) -> "Data":
    """The images of 100 classes, resized to 224 x 224 pixels by default."""
    import numpy as np

    train, _ = find_folders("imagenet100", data_settings)
    classes = sorted(folder.name for folder in train.iterdir() if folder.is_dir())
    if len(classes) < N_CLASSES:
        raise InputError(f"imagenet100 needs at least {N_CLASSES} classes; {str(train)!r} has {len(classes)}")
    indices = sorted(np.random.default_rng(0).choice(len(classes), N_CLASSES, replace=False).tolist())
    chosen = [classes[index] for index in indices]
    print(f"imagenet100: {' '.join(chosen)}", file=sys.stderr)
    return load_imagenet("imagenet100", data_settings, chosen)


DATASET = NamedDataset(
    name="imagenet100",
    title="ImageNet-100",
    kind="images",
    summary="100 of ImageNet's classes, drawn with a fixed seed",
    availability=AVAILABILITY,
    options=("data_dir", "image_size"),
    n_train=128_000,  # approximately: the classes differ in size
    n_classes=N_CLASSES,
    marker_files=("train",),
    load=load,
    recipe=build_recipe(short_data_settings={"image_size": 64}),
)
