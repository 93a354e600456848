"""Images with boxes around their objects, in the folder layout and file formats of PASCAL VOC.

VOC2007/JPEGImages/000005.jpg        the images
VOC2007/Annotations/000005.xml       their objects: name, box, whether it is difficult
VOC2007/ImageSets/Main/trainval.txt  the images of a split, one name per line
"""

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from imix.data.media.folder import prefetch
from imix.detection.average_precision import GroundTruth
from imix.errors import InputError, first_line
from imix.output import print_message

# fmt: off
VOC_CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog",
    "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)
# fmt: on
YEARS = "VOC[0-9][0-9][0-9][0-9]"
SIDES = ("xmin", "ymin", "xmax", "ymax")
SUFFIXES = (".jpg", ".jpeg", ".png", ".JPG", ".JPEG", ".PNG")
PREFETCHED_IMAGES = 64

Sample = tuple[Tensor, dict[str, Tensor]]  # image (C, H, W), uint8, and its "boxes" and "labels"


@dataclass(frozen=True)
class AnnotatedImage:
    """An image file and its objects."""

    path: Path
    ground_truth: GroundTruth


@dataclass(frozen=True)
class DetectionDataset:
    """Annotated images; labels are indices into `class_names`."""

    images: tuple[AnnotatedImage, ...]
    class_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.images)


@dataclass(frozen=True)
class _Annotation:
    """The content of an annotation file; boxes without area are only counted."""

    path: Path
    image: Path
    names: list[str]
    boxes: list[tuple[float, float, float, float]]
    difficult: list[bool]
    n_empty_boxes: int


class _SafeTreeBuilder(ElementTree.TreeBuilder):
    """Rejects document type declarations, so that a file cannot define entities that expand without limit."""

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        """Raise InputError."""
        raise InputError("document type declarations are not allowed")


def read_voc(root: str | Path) -> tuple[DetectionDataset, DetectionDataset]:
    """Read the training and test images of a folder in the format of PASCAL VOC.

    Parameters
    ----------
    root : str or Path
        Either a folder with VOC2007, VOC2012 and so on, or a VOCdevkit folder that contains them: training images are
        the `trainval` split of every year, test images the `test` split of 2007. Or a single folder with Annotations,
        JPEGImages and ImageSets/Main: training images are `trainval` or `train`, test images `test` or `val`.

    Returns
    -------
    train, test : DetectionDataset
        The classes are the twenty of VOC if they include every class name of the training images, otherwise these
        names, sorted.

    Raises
    ------
    InputError
        If a file is missing or invalid, or a class does not occur in the training images.

    Examples
    --------
    >>> train, test = read_voc("VOCdevkit")  # doctest: +SKIP
    >>> len(train), train.class_names[:2]  # doctest: +SKIP
    (16551, ('aeroplane', 'bicycle'))
    """
    root = Path(root)
    train_lists, test_list = _split_files(root)
    train, test = _read_annotations(train_lists), _read_annotations([test_list])
    names = {name for annotation in train for name in annotation.names}
    if not names:
        raise InputError(f"the training images in {str(root)!r} have no objects")
    class_names = VOC_CLASSES if names <= set(VOC_CLASSES) else tuple(sorted(names))
    if n_empty_boxes := sum(annotation.n_empty_boxes for annotation in (*train, *test)):
        print_message(f"{root}: ignored {n_empty_boxes} boxes without area")
    return _build_dataset(train, class_names), _build_dataset(test, class_names)


def load_samples(images: Iterable[AnnotatedImage], mode: str, include_difficult: bool) -> Iterator[Sample]:
    """Decode images, in order, with prefetching; `mode` is Pillow's "RGB" or "L"."""
    return prefetch(lambda image: _load_sample(image, mode, include_difficult), images, PREFETCHED_IMAGES)


def _load_sample(annotated: AnnotatedImage, mode: str, include_difficult: bool) -> Sample:
    from PIL import Image

    path, objects = annotated.path, annotated.ground_truth
    try:
        with Image.open(path) as file:
            pixels = np.array(file.convert(mode))
    except Exception as error:  # a broken file can raise almost any exception
        raise InputError(f"{path} cannot be decoded ({first_line(error)}); repair or remove it") from error
    image = torch.from_numpy(pixels.reshape(*pixels.shape[:2], -1)).permute(2, 0, 1).contiguous()
    height, width = image.shape[1:]
    included = include_difficult | ~objects.difficult
    boxes, labels = objects.boxes[included].clip(0, [width, height, width, height]), objects.labels[included]
    has_area = (boxes[:, 2:] > boxes[:, :2]).all(1)
    return image, {
        "boxes": torch.from_numpy(boxes[has_area]).float(),
        "labels": torch.from_numpy(labels[has_area]) + 1,  # 0 is the background
    }


def _split_files(root: Path) -> tuple[list[Path], Path]:
    """Return the lists of training images, and the list of test images."""
    if not root.is_dir():
        raise InputError(f"no folder {str(root)!r}; it must contain VOC2007 and VOC2012, or Annotations")
    if (root / "Annotations").is_dir():
        # trainval includes val, so it is not used if val is the test split.
        for train_split, test_split in (("trainval", "test"), ("train", "test"), ("train", "val")):
            train, test = _split_file(root, train_split), _split_file(root, test_split)
            if train.is_file() and test.is_file():
                return [train], test
        required = "trainval.txt or train.txt, and test.txt; or train.txt and val.txt"
        raise InputError(f"{str(root / 'ImageSets' / 'Main')!r} must contain {required}")
    parent = root if any(root.glob(YEARS)) else root / "VOCdevkit"
    years = sorted(path for path in parent.glob(YEARS) if path.is_dir())
    if not years:
        raise InputError(f"{str(root)!r} contains neither VOC2007, VOCdevkit nor Annotations")
    trainval = [path for year in years if (path := _split_file(year, "trainval")).is_file()]
    test = _split_file(parent / "VOC2007", "test")
    if not trainval:
        raise InputError(f"none of the years in {str(parent)!r} has ImageSets/Main/trainval.txt")
    if not test.is_file():
        raise InputError(f"no file {test}; the test images are the test split of VOC2007")
    return trainval, test


def _split_file(folder: Path, split: str) -> Path:
    return folder / "ImageSets" / "Main" / f"{split}.txt"


def _read_annotations(split_files: Sequence[Path]) -> list[_Annotation]:
    """Read the annotations of all images in these lists."""
    annotations: list[_Annotation] = []
    for path in split_files:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        names = [line.split()[0] for line in lines if line.strip()]
        if not names:
            raise InputError(f"{path} lists no images")
        folder = path.parents[2]
        annotations += (_read_annotation(folder, name) for name in names)
    return annotations


def _read_annotation(folder: Path, name: str) -> _Annotation:
    """Read the annotation of one image."""
    path = folder / "Annotations" / f"{name}.xml"
    candidates = (folder / "JPEGImages" / f"{name}{suffix}" for suffix in SUFFIXES)
    image = next((candidate for candidate in candidates if candidate.is_file()), None)
    if image is None:
        raise InputError(f"no image {folder / 'JPEGImages' / name}.jpg, which is listed in {folder / 'ImageSets'}")
    try:
        root = ElementTree.XML(path.read_bytes(), ElementTree.XMLParser(target=_SafeTreeBuilder()))
    except FileNotFoundError:
        raise InputError(f"no annotation {path} for the image {image.name}") from None
    except (ElementTree.ParseError, InputError, ValueError, LookupError) as error:
        raise InputError(f"{path} cannot be read: {first_line(error)}") from error
    names, boxes, difficult, n_empty_boxes = [], [], [], 0
    for element in root.findall("object"):
        left, top, right, bottom = (_read_number(path, element, f"bndbox/{side}") for side in SIDES)
        box = (left - 1, top - 1, right, bottom)  # VOC counts pixels from 1, and the box includes the last one
        if box[2] <= box[0] or box[3] <= box[1]:
            n_empty_boxes += 1
            continue
        class_name = (element.findtext("name") or "").strip()
        if not class_name:
            raise InputError(f"{path} has an object without a name")
        names.append(class_name)
        boxes.append(box)
        difficult.append((element.findtext("difficult") or "0").strip() == "1")
    return _Annotation(path, image, names, boxes, difficult, n_empty_boxes)


def _read_number(path: Path, element: ElementTree.Element, tag: str) -> float:
    text = element.findtext(tag)
    try:
        value = float(text or "")
        if np.isfinite(value):
            return value
    except ValueError:
        pass
    raise InputError(f"{path}: {tag} of an object must be a number; got {text!r}")


def _build_dataset(annotations: Sequence[_Annotation], class_names: tuple[str, ...]) -> DetectionDataset:
    """Convert class names to indices."""
    images = []
    for annotation in annotations:
        for name in annotation.names:
            if name not in class_names:
                raise InputError(
                    f"{annotation.path} has an object of the unknown class {name!r}; the classes of the training "
                    f"images are {', '.join(class_names)}"
                )
        labels = np.array([class_names.index(name) for name in annotation.names], np.int64)
        boxes = np.array(annotation.boxes, np.float32).reshape(-1, 4)
        ground_truth = GroundTruth(boxes, labels, np.array(annotation.difficult, bool))
        images.append(AnnotatedImage(annotation.image, ground_truth))
    return DetectionDataset(tuple(images), class_names)
