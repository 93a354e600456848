"""Images with boxes around their objects, in the folders and files of PASCAL VOC.

    VOC2007/JPEGImages/000005.jpg        the images
    VOC2007/Annotations/000005.xml       their objects: name, box, whether it is difficult
    VOC2007/ImageSets/Main/trainval.txt  which images belong to a part, one name a line

The years lie side by side, in the folder that is given or in VOCdevkit below it; training images are those of every
year's trainval, test images those of 2007's test. A single folder with Annotations of one's own is read too: it is
trained on trainval or train and tested on test or val.
"""

import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from imix.data.folder import ahead
from imix.detection.precision import Truth
from imix.errors import InputError, first_line

# fmt: off
CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog",
    "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)
# fmt: on
SIDES = ("xmin", "ymin", "xmax", "ymax")
SUFFIXES = (".jpg", ".jpeg", ".png", ".JPG", ".JPEG", ".PNG")
THREADS = 8  # that read annotations
AHEAD = 64  # images that are decoded ahead

Sample = tuple[Tensor, dict[str, Tensor]]  # an image as bytes, and its "boxes" and "labels"


@dataclass(frozen=True)
class Scene:
    """An image file and its objects."""

    path: Path
    truth: Truth


@dataclass(frozen=True)
class Scenes:
    """The images of a part of the data; classes are numbered from 0 in this order."""

    scenes: tuple[Scene, ...]
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.scenes)


@dataclass(frozen=True)
class _Parsed:
    """What an annotation says; boxes without area are left out and counted."""

    image: Path
    annotation: Path
    names: list[str]
    boxes: list[tuple[float, float, float, float]]
    difficult: list[bool]
    skipped: int


class _Builder(ElementTree.TreeBuilder):
    """Elements without any declaration, so that no entity can be defined, in whatever encoding."""

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        """Refuse it."""
        raise InputError("it declares a document type, which annotations have no need of")


def read_voc(root: str | Path) -> tuple[Scenes, Scenes]:
    """Training and test images of a folder in VOC's format.

    Classes are VOC's twenty if every name is one of them, otherwise the names that the training images have, sorted.
    """
    root = Path(root)
    train_lists, test_list = _parts(root)
    train, test = _parse_lists(train_lists), _parse_lists([test_list])
    found = {name for parsed in train for name in parsed.names}
    if not found:
        raise InputError(f"the training images in {str(root)!r} have no objects")
    classes = CLASSES if found <= set(CLASSES) else tuple(sorted(found))
    if skipped := sum(parsed.skipped for parsed in (*train, *test)):
        print(f"{root}: {skipped} boxes without area were left out", file=sys.stderr)
    return tuple(Scenes(tuple(_scene(each, classes) for each in part), classes) for part in (train, test))  # type: ignore[return-value]


def decoded(scenes: Iterable[Scene], mode: str, difficult: bool) -> Iterator[Sample]:
    """Images as bytes (C, H, W) with their objects, in order, some of them ahead."""
    return ahead(lambda scene: _decode(scene, mode, difficult), scenes, AHEAD)


def _decode(scene: Scene, mode: str, difficult: bool) -> Sample:
    from PIL import Image

    try:
        with Image.open(scene.path) as opened:
            pixels = np.array(opened.convert(mode))
    except Exception as error:  # a broken file fails in many ways, all of them the file's fault
        raise InputError(f"{scene.path} cannot be decoded ({first_line(error)}); mend it or take it away") from error
    image = torch.from_numpy(pixels.reshape(*pixels.shape[:2], -1)).permute(2, 0, 1).contiguous()
    height, width = image.shape[1:]
    chosen = scene.truth.boxes[difficult | ~scene.truth.difficult].clip(0, [width, height, width, height])
    labels = scene.truth.labels[difficult | ~scene.truth.difficult]
    inside = (chosen[:, 2:] > chosen[:, :2]).all(1)
    return image, {
        "boxes": torch.from_numpy(chosen[inside]).float(),
        "labels": torch.from_numpy(labels[inside]) + 1,  # 0 is the background
    }


def _parts(root: Path) -> tuple[list[Path], Path]:
    """The lists of training images, and the list of test images."""
    if not root.is_dir():
        raise InputError(f"no folder {str(root)!r}; give one with VOC2007 and VOC2012, or one with Annotations")
    if (root / "Annotations").is_dir():
        return _parts_of_one(root)
    for place in (root, root / "VOCdevkit"):
        years = sorted(path for path in place.glob("VOC[0-9][0-9][0-9][0-9]") if path.is_dir())
        if years:
            break
    else:
        raise InputError(f"{str(root)!r} has neither VOC2007, VOCdevkit nor Annotations in it")
    train = [_list(year, "trainval") for year in years if _list(year, "trainval").is_file()]
    test = _list(place / "VOC2007", "test")
    if not train:
        raise InputError(f"no year in {str(place)!r} has ImageSets/Main/trainval.txt")
    if not test.is_file():
        raise InputError(f"no {test}: the test images are those of VOC2007's test part")
    return train, test


def _parts_of_one(folder: Path) -> tuple[list[Path], Path]:
    """The same for a single folder; where val is the test, trainval would hold it, so only train will do."""
    for train, test in (("trainval", "test"), ("train", "test"), ("train", "val")):
        if _list(folder, train).is_file() and _list(folder, test).is_file():
            return [_list(folder, train)], _list(folder, test)
    wanted = "trainval.txt or train.txt, and test.txt; or train.txt and val.txt"
    raise InputError(f"{str(folder / 'ImageSets' / 'Main')!r} must have {wanted}")


def _list(folder: Path, part: str) -> Path:
    return folder / "ImageSets" / "Main" / f"{part}.txt"


def _parse_lists(lists: Sequence[Path]) -> list[_Parsed]:
    """The annotations of every image in these lists."""
    parsed: list[_Parsed] = []
    for path in lists:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        names = [line.split()[0] for line in lines if line.strip()]
        if not names:
            raise InputError(f"{path} names no images")
        folder = path.parents[2]
        with ThreadPoolExecutor(THREADS) as pool:
            parsed += pool.map(lambda name, folder=folder: _parse(folder, name), names)
    return parsed


def _parse(folder: Path, name: str) -> _Parsed:
    """One image's annotation."""
    path = folder / "Annotations" / f"{name}.xml"
    image = next((found for end in SUFFIXES if (found := folder / "JPEGImages" / f"{name}{end}").is_file()), None)
    if image is None:
        raise InputError(f"no image {folder / 'JPEGImages' / name}.jpg, which {folder / 'ImageSets'} lists")
    try:
        top = ElementTree.XML(path.read_bytes(), ElementTree.XMLParser(target=_Builder()))
    except FileNotFoundError:
        raise InputError(f"no annotation {path} of the image {image.name}") from None
    except (ElementTree.ParseError, InputError, ValueError, LookupError) as error:
        raise InputError(f"{path} cannot be read: {first_line(error)}") from error
    names, boxes, difficult, skipped = [], [], [], 0
    for thing in top.findall("object"):
        left, upper, right, lower = (_number(path, thing, f"bndbox/{side}") for side in SIDES)
        box = (left - 1, upper - 1, right, lower)  # pixels are counted from 1, and the last one belongs to the box
        if box[2] <= box[0] or box[3] <= box[1]:
            skipped += 1
            continue
        label = (thing.findtext("name") or "").strip()
        if not label:
            raise InputError(f"{path} has an object without a name")
        names.append(label)
        boxes.append(box)
        difficult.append((thing.findtext("difficult") or "0").strip() == "1")
    return _Parsed(image, path, names, boxes, difficult, skipped)


def _number(path: Path, thing: ElementTree.Element, where: str) -> float:
    text = thing.findtext(where)
    try:
        value = float(text or "")
        if np.isfinite(value):
            return value
    except ValueError:
        pass
    raise InputError(f"{path} has an object whose {where} is {text!r}; it must be a number")


def _scene(parsed: _Parsed, classes: Sequence[str]) -> Scene:
    """An image with its classes as numbers."""
    for name in parsed.names:
        if name not in classes:
            raise InputError(f"{parsed.annotation} has an object {name!r}; the classes are {', '.join(classes)}")
    labels = np.array([classes.index(name) for name in parsed.names], np.int64)
    boxes = np.array(parsed.boxes, np.float32).reshape(-1, 4)
    return Scene(parsed.image, Truth(boxes, labels, np.array(parsed.difficult, bool)))
