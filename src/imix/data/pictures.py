"""Folders of images: any format, mode and size that Pillow reads, brought to one size, in memory or streamed.

Images are decoded by threads. What cannot be decoded is named, counted and left out; more than a few stop the run.
"""

import os
import sys
import time
import warnings
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from imix.batch import Batch
from imix.data.arrays import class_numbers
from imix.data.source import Data, Source, Tensors
from imix.encoders.resnet import SMALL_SIDE
from imix.errors import InputError, first_line
from imix.settings import Reading

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
IN_MEMORY = 8 << 30  # bytes of decoded images up to which they are all held
FEW = 0.01  # the share of files that may be broken, or five files if that is more
AHEAD = 4  # batches that are decoded ahead when images are streamed
SIZES = (32, 64, 128, 224)  # sides that images of different sizes are brought to
HUNDRED = 100  # classes of imagenet100


class Pictures(Source):
    """Images in files, decoded when they are needed, a few batches ahead."""

    def __init__(self, paths: Sequence[Path], labels: Tensor | None, size: int, device: torch.device) -> None:
        self.paths, self.labels, self.size, self.device = list(paths), labels, size, device

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def shape(self) -> tuple[int, ...]:
        """Colour images of one size."""
        return (3, self.size, self.size)

    def batches(self, rows: Iterable[Tensor]) -> Iterator[tuple[Batch, Tensor | None]]:
        """Decoded images; one that cannot be decoded is said and stands as the one before it."""
        chosen = iter(rows)
        waiting: deque[tuple[Tensor, list[Future[np.ndarray]]]] = deque()
        with ThreadPoolExecutor(_threads()) as pool:
            try:
                while True:
                    for row in islice(chosen, AHEAD - len(waiting)):
                        waiting.append((row, [pool.submit(decode, self.paths[i], self.size) for i in row.tolist()]))
                    if not waiting:
                        return
                    row, decoding = waiting.popleft()
                    batch = torch.from_numpy(np.stack(list(_present(decoding))))
                    labels = None if self.labels is None else self.labels[row.cpu()].to(self.device)
                    yield batch.to(self.device, non_blocking=True), labels
            finally:
                pool.shutdown(cancel_futures=True)

    def to(self, device: torch.device) -> "Pictures":
        """The same files, with batches on that device."""
        return Pictures(self.paths, self.labels, self.size, device)

    def take(self, rows: Tensor) -> "Pictures":
        """The source of those rows alone."""
        labels = None if self.labels is None else self.labels[rows]
        return Pictures([self.paths[i] for i in rows.tolist()], labels, self.size, self.device)


def read_pictures(folder: Path, reading: Reading, wanted: Sequence[str] | None = None) -> Data:
    """A folder of images; where all are in subfolders, these are the classes, of which some may be `wanted`.

    `reading.test` is such a folder too.
    """
    paths = find_pictures(folder, wanted)
    size = reading.image_size or _common_size(paths)
    train, names = _source(paths, size)
    classes = _classes(folder, names)
    if classes is None:
        known = None
    else:
        train.labels, known = class_numbers(classes, len(names), str(folder))
    views = "cifar" if size <= SMALL_SIDE else "imagenet"
    test: Source | None = None
    test_names: list[Path] = []
    if reading.test is not None:
        test, test_names = _source(find_pictures(Path(reading.test), wanted), size)
        test_classes = _classes(Path(reading.test), test_names)
        if known is not None and test_classes is not None:
            test.labels, _ = class_numbers(test_classes, len(test_names), reading.test, known)
    class_names = [] if known is None else [str(name) for name in known]
    files = [str(name) for name in (*names, *test_names)]
    return Data(str(folder), train, test, class_names, reading, names=files, augment=views)


def imagenet(reading: Reading) -> Data:
    """ImageNet: the folders train and val, with a subfolder for each class, in `reading.data_dir`; 224 x 224 pixels."""
    return _imagenet("imagenet", reading, None)


def imagenet100(reading: Reading) -> Data:
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
    placed = replace(reading, test=str(val), image_size=reading.image_size or SIZES[-1])
    return replace(read_pictures(train, placed, wanted), name=name, reading=reading)


def _imagenet_folders(name: str, reading: Reading) -> tuple[Path, Path]:
    folders = [Path(reading.data_dir or "nowhere") / part for part in ("train", "val")]
    if reading.data_dir is None or not all(folder.is_dir() for folder in folders):
        raise InputError(f"{name} needs --data-dir FOLDER, with the folders train and val of ImageNet in it")
    return folders[0], folders[1]


def find_pictures(folder: Path, wanted: Sequence[str] | None = None) -> list[Path]:
    """All images below a folder, or below the `wanted` ones in it, in order; links to folders are not followed."""
    roots = [folder] if wanted is None else [folder / name for name in wanted]
    walks = (walk for root in roots for walk in os.walk(root))
    found = [Path(place) / name for place, _, names in walks for name in names if _is_picture(name)]
    if not found:
        raise InputError(f"there are no images ({', '.join(SUFFIXES)}) in {str(folder)!r}")
    return sorted(found)


def decode(path: Path, size: int) -> np.ndarray:
    """An image as bytes (3, size, size): upright, in colour, on white, its shorter side resized, its middle taken."""
    from PIL import Image, ImageOps

    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        with Image.open(path) as opened:
            opened.draft("RGB", (size, size))
            image = ImageOps.exif_transpose(opened)
            if image.mode.startswith("I") or image.mode == "F":  # more than 8 bits: by its own range
                values = np.asarray(image, np.float32)
                low, high = float(values.min()), float(values.max())
                high = 65535.0 if image.mode.startswith("I;16") else high
                low = 0.0 if image.mode.startswith("I;16") else low
                image = Image.fromarray(np.uint8((values - low) / max(high - low, 1e-6) * 255))
            if image.has_transparency_data:
                image = image.convert("RGBA")
                image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
            fitted = ImageOps.fit(image.convert("RGB"), (size, size), Image.Resampling.BILINEAR)
    return np.ascontiguousarray(np.asarray(fitted).transpose(2, 0, 1))


def _source(paths: Sequence[Path], size: int) -> tuple[Source, list[Path]]:
    """All images in memory if they fit, with those that are broken left out, or the files to stream."""
    if len(paths) * 3 * size * size > IN_MEMORY:
        return Pictures(paths, None, size, torch.device("cpu")), list(paths)
    images = np.empty((len(paths), 3, size, size), np.uint8)
    good: list[Path] = []
    broken = 0
    told = time.monotonic()
    with ThreadPoolExecutor(_threads()) as pool:
        decoding = [pool.submit(decode, path, size) for path in paths]
        for path, image in zip(paths, decoding, strict=True):
            try:
                images[len(good)] = image.result()
                good.append(path)
            except Exception as error:  # a broken file fails in many ways, all of them the file's fault
                broken += 1
                print(f"left out {path}: {first_line(error)}", file=sys.stderr)
                if broken > max(5, FEW * len(paths)):
                    pool.shutdown(cancel_futures=True)
                    raise InputError(f"{broken} images cannot be decoded; the last is {path}") from error
            if time.monotonic() - told > 10:
                print(f"decoding: {len(good):,} of {len(paths):,} images", file=sys.stderr, flush=True)
                told = time.monotonic()
    if not good:
        raise InputError(f"none of the {len(paths)} images can be decoded; the first is {paths[0]}")
    if broken:
        print(f"{broken} of {len(paths)} images were left out", file=sys.stderr)
    return Tensors(torch.from_numpy(images[: len(good)])), good


def _present(decoding: list[Future[np.ndarray]]) -> Iterator[np.ndarray]:
    """Decoded images, one that is broken replaced by another of its batch."""
    good: np.ndarray | None = None
    failed: list[Exception] = []
    for image in decoding:
        try:
            good = image.result()
        except Exception as error:
            failed.append(error)
            print(f"an image cannot be decoded: {first_line(error)}", file=sys.stderr)
            good = good if good is not None else next(i.result() for i in decoding if i.exception() is None)
        yield good


def _common_size(paths: Sequence[Path]) -> int:
    """The side of square images that are all alike, or the largest usual side that half of the images have."""
    from PIL import Image, UnidentifiedImageError

    sides: Counter[int] = Counter()
    shapes = set()
    for path in paths[:: max(1, len(paths) // 1000)]:
        try:
            with Image.open(path) as image:
                shapes.add(image.size)
                sides[min(image.size)] += 1
        except (UnidentifiedImageError, OSError, ValueError, Image.DecompressionBombError):
            continue
    if len(shapes) == 1 and len(set(next(iter(shapes)))) == 1 and max(sides) <= SIZES[-1]:
        return max(sides)
    median = sorted(sides.elements())[sides.total() // 2] if sides else SIZES[0]
    return max([side for side in SIZES if side <= median], default=SIZES[0])


def _classes(folder: Path, names: Sequence[Path]) -> list[str] | None:
    """The first subfolder of each image, or None where some have none."""
    parts = [name.relative_to(folder).parts for name in names]
    return [part[0] for part in parts] if all(len(part) > 1 for part in parts) else None


def _is_picture(name: str) -> bool:
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")


def _threads() -> int:
    return min(32, os.cpu_count() or 1)
