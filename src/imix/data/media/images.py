"""Folders of images: any format, mode and size that Pillow reads, resized to one size, in memory or streamed."""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import tee
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from imix.batch import Batch
from imix.data.media.folder import check_broken, decode_all, decoded, find_files, read_files
from imix.data.source import Data, Source, TensorSource
from imix.errors import InputError, first_line
from imix.settings import SMALL_IMAGE_SIZE, DataSettings

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
MAX_BYTES_IN_MEMORY = 8 << 30  # decoded images that take more are streamed
MAX_PIXELS = 200_000_000
MAX_INSPECTED = 1000  # files that are opened to choose the image size
SIZES = (32, 64, 128, 224)  # default sizes, if the images differ in size


@dataclass(eq=False)
class ImageFiles(Source):
    """Image files that are decoded on access, a few batches ahead.

    An image that cannot be decoded is an error. With `skip_broken`, as in training, it is reported and replaced by a
    black image, so that batches keep their size; too many such images are an error.
    """

    paths: Sequence[Path]
    size: int
    device: torch.device
    labels: Tensor | None = None
    skip_broken: bool = False
    broken: set[Path] = field(default_factory=set, init=False)

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def shape(self) -> tuple[int, ...]:
        """(3, size, size)."""
        return (3, self.size, self.size)

    def batches(self, rows: Iterable[Tensor]) -> Iterator[tuple[Batch, Tensor | None]]:
        """Yield decoded images (B, 3, size, size), uint8, and labels."""
        batch_rows, prefetched_rows = tee(row.cpu() for row in rows)
        paths = (self.paths[i] for row in prefetched_rows for i in row.tolist())
        images = decoded(paths, lambda path: decode(path, self.size))
        for row in batch_rows:
            array = np.empty((len(row), *self.shape), np.uint8)
            for i in range(len(row)):
                path, image = next(images)
                if isinstance(image, Exception):
                    self._handle_broken(path, image)
                array[i] = 0 if isinstance(image, Exception) else image
            labels = None if self.labels is None else self.labels[row].to(self.device)
            batch = torch.from_numpy(array)
            if self.device.type == "cuda":  # a copy from pinned memory runs asynchronously
                batch = batch.pin_memory()
            yield batch.to(self.device, non_blocking=True), labels

    def _handle_broken(self, path: Path, error: Exception) -> None:
        if not self.skip_broken:
            raise InputError(f"{path} cannot be decoded ({first_line(error)}); repair or remove it")
        if path not in self.broken:
            self.broken.add(path)
            print(f"{path} cannot be decoded: {first_line(error)}", file=sys.stderr)
        check_broken(self.broken, len(self), path, "images")

    def to(self, device: torch.device) -> "ImageFiles":
        """Return the same files, with batches on `device`."""
        return replace(self, device=device)

    def for_training(self) -> "ImageFiles":
        """Return the same files with `skip_broken=True`."""
        return replace(self, skip_broken=True)

    def take(self, rows: Tensor) -> "ImageFiles":
        """Return a source of these rows only."""
        labels = None if self.labels is None else self.labels[rows]
        return replace(self, paths=[self.paths[i] for i in rows.tolist()], labels=labels)


def read_image_folder(folder: Path, data_settings: DataSettings, classes: Sequence[str] | None = None) -> Data:
    """Read a folder of images, and `data_settings.test` if it is set; with `classes`, only these subfolders.

    If all images are in subfolders, the subfolders are the classes.
    """
    size = data_settings.image_size or _common_size(find_images(folder, classes))
    # The size becomes part of the settings, so that data loaded later is resized in the same way.
    data_settings = replace(data_settings, image_size=size)
    data = read_files(
        folder, data_settings, lambda path: find_images(path, classes), lambda paths: _build_source(paths, size)
    )
    return replace(data, augment="cifar" if size <= SMALL_IMAGE_SIZE else "imagenet")


def find_images(folder: Path, classes: Sequence[str] | None = None) -> list[Path]:
    """Return the images in a folder, or in the subfolders `classes`, sorted; it is an error if there are none."""
    return find_files(folder, IMAGE_SUFFIXES, classes, required="images")


def decode(path: Path, size: int) -> np.ndarray:
    """Decode an image to uint8 (3, size, size): rotated upright, RGB on white, resized and center-cropped."""
    from PIL import Image, ImageOps

    with Image.open(path) as opened:
        if opened.width * opened.height > MAX_PIXELS:
            raise InputError(f"too large: {opened.width} x {opened.height} pixels")
        opened.draft("RGB", (size, size))
        image = ImageOps.exif_transpose(opened)
        if image.mode.startswith("I") or image.mode == "F":  # more than 8 bits per pixel
            image = Image.fromarray(_to_uint8(np.asarray(image, np.float32), image.mode))
        if image.has_transparency_data:
            image = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
        fitted = ImageOps.fit(image.convert("RGB"), (size, size), Image.Resampling.BILINEAR)
    return np.ascontiguousarray(np.asarray(fitted).transpose(2, 0, 1))


def _to_uint8(values: np.ndarray, mode: str) -> np.ndarray:
    """Scale 16-bit images by the range of 16 bits, other images by their own range."""
    low, high = (0.0, 65535.0) if mode.startswith("I;16") else (float(values.min()), float(values.max()))
    if not np.isfinite(high - low):
        raise InputError("it has NaN or infinite values")
    return ((values - low) / max(high - low, 1e-6) * 255).astype(np.uint8)


def _build_source(paths: list[Path], size: int) -> tuple[Source, list[Path]]:
    """Decode all images into memory, without broken ones, or stream them if they do not fit."""
    if len(paths) * 3 * size * size > MAX_BYTES_IN_MEMORY:
        return ImageFiles(paths, size, torch.device("cpu")), paths
    images = np.empty((len(paths), 3, size, size), np.uint8)
    good = decode_all(paths, lambda path: decode(path, size), images, "images")
    return TensorSource(torch.from_numpy(images[: len(good)])), good


def _common_size(paths: Sequence[Path]) -> int:
    """Return the size of the images if all are equal squares, or the largest default size that half of them reach."""
    from PIL import Image

    sides: Counter[int] = Counter()
    shapes = set()
    for path in paths[:: max(1, len(paths) // MAX_INSPECTED)]:
        try:
            with Image.open(path) as image:
                shapes.add(image.size)
                sides[min(image.size)] += 1
        except (OSError, ValueError, Warning, Image.DecompressionBombError):
            continue
    if len(shapes) == 1 and len(set(next(iter(shapes)))) == 1 and max(sides) <= SIZES[-1]:
        return max(sides)
    median = sorted(sides.elements())[sides.total() // 2] if sides else SIZES[0]
    return max([side for side in SIZES if side <= median], default=SIZES[0])
