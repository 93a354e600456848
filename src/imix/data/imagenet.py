"""ImageNet, and a hundred of its classes: the folders train and val, with a subfolder for each class."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from imix.data.pictures import read_pictures
from imix.data.source import Data
from imix.errors import InputError
from imix.settings import Reading

SIDE = 224
HUNDRED = 100


def read_imagenet(reading: Reading) -> Data:
    """All classes; the folders are in `reading.data_dir`, images are brought to 224 x 224 pixels."""
    return _imagenet("imagenet", reading, None)


def read_imagenet100(reading: Reading) -> Data:
    """A hundred of ImageNet's classes, drawn once."""
    train, _ = _imagenet_folders("imagenet100", reading)
    classes = sorted(place.name for place in train.iterdir() if place.is_dir())
    if len(classes) < HUNDRED:
        raise InputError(f"imagenet100 needs at least {HUNDRED} classes; {str(train)!r} has {len(classes)}")
    drawn = sorted(np.random.default_rng(0).choice(len(classes), HUNDRED, replace=False).tolist())
    wanted = [classes[number] for number in drawn]
    print(f"imagenet100: {' '.join(wanted)}", file=sys.stderr)
    return _imagenet("imagenet100", reading, wanted)


def _imagenet(name: str, reading: Reading, wanted: Sequence[str] | None) -> Data:
    train, val = _imagenet_folders(name, reading)
    placed = replace(reading, test=str(val), image_size=reading.image_size or SIDE)
    reading = replace(reading, image_size=placed.image_size)  # images that come later are brought to the same
    return replace(read_pictures(train, placed, wanted), name=name, reading=reading)


def _imagenet_folders(name: str, reading: Reading) -> tuple[Path, Path]:
    folders = [Path(reading.data_dir or "nowhere") / part for part in ("train", "val")]
    if reading.data_dir is None or not all(folder.is_dir() for folder in folders):
        raise InputError(f"{name} needs --data-dir FOLDER, with the folders train and val of ImageNet in it")
    return folders[0], folders[1]
