"""Image files: any format, mode and size that Pillow reads, resized to one size, in memory or streamed."""

import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import tee
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from imix.batch import Batch
from imix.data.blocks import block_order
from imix.data.media.folder import Budget, check_broken, decode_all, decoded, find_media, read_files
from imix.data.media.references import IMAGE_SUFFIXES, MediaFiles, Reference
from imix.data.source import Data, Source, TensorSource
from imix.errors import InputError, first_line
from imix.output import print_message
from imix.settings import SMALL_IMAGE_SIZE, DataSettings

MAX_BYTES_IN_MEMORY = 8 << 30  # decoded images that take more are streamed
MAX_PIXELS = 178_956_970  # decoded at the same time, in all threads; Pillow refuses larger images
BLOCKS_AT_A_TIME = 64  # blocks whose images are mixed at a time
MAX_INSPECTED = 1000  # files that are opened to choose the image size
MODES = {1: "L", 3: "RGB", 4: "RGBA"}  # channels -> mode of Pillow
SIZES = (32, 64, 128, 224)  # default sizes, if the images differ in size


@dataclass(frozen=True)
class ImageFormat:
    """Size and channels to which images are converted; with `deep`, to floats in 0..1 instead of bytes."""

    size: int
    channels: int = 3
    deep: bool = False

    @property
    def dtype(self) -> type[np.number[Any]]:
        """Type of a pixel."""
        return np.float32 if self.deep else np.uint8

    @property
    def shape(self) -> tuple[int, ...]:
        """(C, size, size)."""
        return (self.channels, self.size, self.size)

    @property
    def nbytes(self) -> int:
        """Memory that an image takes."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(eq=False)
class ImageFiles(Source):
    """Image files (or their bytes in a table) that are decoded on access, a few batches ahead.

    An image that cannot be decoded is an error. With `skip_broken`, as in training, it is reported and replaced by a
    black image, so that batches keep their size; too many such images are an error.
    """

    paths: Sequence[Reference]
    format: ImageFormat
    device: torch.device
    labels: Tensor | None = None
    skip_broken: bool = False
    blocks: Tensor | None = None  # (N,), the block of each image, if they are stored in blocks
    broken: dict[Reference, None] = field(default_factory=dict, init=False)

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def shape(self) -> tuple[int, ...]:
        """(C, size, size)."""
        return self.format.shape

    def batches(self, rows: Iterable[Tensor]) -> Iterator[tuple[Batch, Tensor | None]]:
        """Yield decoded images (B, C, size, size) and labels."""
        batch_rows, prefetched_rows = tee(row.cpu() for row in rows)
        paths = (self.paths[i] for row in prefetched_rows for i in row.tolist())
        images = decoded(paths, lambda path: decode(path, self.format))
        for row in batch_rows:
            array = np.empty((len(row), *self.shape), self.format.dtype)
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

    def _handle_broken(self, path: Reference, error: Exception) -> None:
        if not self.skip_broken:
            raise InputError(f"{path} cannot be decoded ({first_line(error)}); repair or remove it")
        if path not in self.broken:
            self.broken[path] = None
            print_message(f"{path} cannot be decoded: {first_line(error)}")
        check_broken([*self.broken], len(self), "images")

    @property
    def in_blocks(self) -> bool:  # type: ignore[override]
        """Whether the images are stored in blocks."""
        return self.blocks is not None

    def epoch_order(self, seed: int, epoch: int, rows: Tensor | None = None) -> Tensor:
        """Return the order of an epoch, in which images of a few blocks at a time are mixed."""
        if self.blocks is None:
            return super().epoch_order(seed, epoch, rows)
        return block_order(self.blocks, BLOCKS_AT_A_TIME, seed, epoch, rows)

    def to(self, device: torch.device) -> "ImageFiles":
        """Return the same files, with batches on `device`."""
        return replace(self, device=device)

    def for_training(self) -> "ImageFiles":
        """Return the same files with `skip_broken=True`."""
        return replace(self, skip_broken=True)

    def take(self, rows: Tensor) -> "ImageFiles":
        """Return a source of these rows only."""
        labels, blocks = (None if each is None else each[rows] for each in (self.labels, self.blocks))
        return replace(self, paths=[self.paths[i] for i in rows.tolist()], labels=labels, blocks=blocks)


def read_image_folder(folder: Path, data_settings: DataSettings, classes: Sequence[str] | None = None) -> Data:
    """Read a folder or pattern of images, and `data_settings.test` if it is set; with `classes`, only these subfolders.

    If all images are in subfolders, the subfolders are the classes.
    """
    return read_images(find_media(folder, data_settings, IMAGE_SUFFIXES, classes, "images"), data_settings)


def read_images(parts: Sequence[MediaFiles], data_settings: DataSettings) -> Data:
    """Read training images and, if any, test images."""
    pixel_budget()  # raises an error if it is invalid
    format = _common_format(parts[0].references, data_settings)
    # The format becomes part of the settings, so that data loaded later is converted in the same way.
    data_settings = replace(data_settings, image_size=format.size, channels=format.channels)
    data = read_files(parts, data_settings, lambda files: _build_source(files, format))
    return replace(data, augment="cifar" if format.size <= SMALL_IMAGE_SIZE else "imagenet")


def decode(reference: Reference, format: ImageFormat) -> np.ndarray:
    """Decode an image to (C, size, size): rotated upright, resized and center-cropped; RGB and gray on white."""
    from PIL import Image

    budget = pixel_budget()
    with reference.open("rb") as stream, Image.open(stream) as image:
        pixels = image.width * image.height
        if pixels > budget.total:
            raise InputError(f"too large: {image.width} x {image.height} pixels; IMIX_MAX_PIXELS is {budget.total:,}")
        image.draft("L" if format.channels == 1 else "RGB", (format.size, format.size))
        if not image.info.get("progressive"):  # progressive images are decoded as a whole
            pixels = image.width * image.height
        with budget.reserve(pixels), closing(image):  # closing the image frees its pixels
            return _fit(image, format)


@cache
def pixel_budget() -> Budget:
    """Return the budget of pixels decoded at the same time; the environment variable IMIX_MAX_PIXELS sets it."""
    from PIL import Image

    text = os.environ.get("IMIX_MAX_PIXELS") or str(MAX_PIXELS)
    if not text.isdecimal() or not int(text):
        raise InputError(f"the environment variable IMIX_MAX_PIXELS must be a number of pixels; got {text!r}")
    # Blocks of more than 32 MB are returned to the system when an image is closed; each thread would keep smaller ones.
    Image.core.set_block_size(64 << 20)  # type: ignore[attr-defined]
    if int(text) > MAX_PIXELS:
        Image.MAX_IMAGE_PIXELS = int(text)
    return Budget(int(text))


def _fit(image: Any, format: ImageFormat) -> np.ndarray:
    from PIL import Image, ImageOps

    size, mode = (format.size, format.size), MODES[format.channels]
    ImageOps.exif_transpose(image, in_place=True)
    if is_deep(image.mode):
        values = _to_unit(np.asarray(image, np.float32), image.mode)
        if format.deep:
            return np.asarray(ImageOps.fit(Image.fromarray(values), size, Image.Resampling.BILINEAR))[None]
        image = Image.fromarray((values * 255).astype(np.uint8))
    if image.has_transparency_data and mode != "RGBA":
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    image = image if image.mode == mode else image.convert(mode)
    fitted = ImageOps.fit(image, size, Image.Resampling.BILINEAR)
    pixels = np.asarray(fitted).reshape(*size, format.channels).transpose(2, 0, 1)
    return pixels / np.float32(255) if format.deep else np.ascontiguousarray(pixels)


def is_deep(mode: str) -> bool:
    """Whether an image mode of Pillow has more than 8 bits per pixel and channel."""
    return mode.startswith("I") or mode == "F"


def _to_unit(values: np.ndarray, mode: str) -> np.ndarray:
    """Scale 16-bit images by the range of 16 bits, other images by their own range, to 0..1."""
    low, high = (0.0, 65535.0) if mode.startswith("I;16") else (float(values.min()), float(values.max()))
    if not np.isfinite(high - low):
        raise InputError("it has NaN or infinite values")
    return (values - low) / max(high - low, 1e-6)


def _build_source(files: MediaFiles, format: ImageFormat) -> tuple[Source, list[int]]:
    """Decode all images into memory, without broken ones, or stream them if they do not fit."""
    n = len(files.references)
    if n * format.nbytes > MAX_BYTES_IN_MEMORY:
        return ImageFiles(files.references, format, torch.device("cpu")), list(range(n))
    images = np.empty((n, *format.shape), format.dtype)
    good = decode_all(files, lambda reference: decode(reference, format), images, "images")
    return TensorSource(torch.from_numpy(images[: len(good)])), good


def _common_format(references: Sequence[Reference], data_settings: DataSettings) -> ImageFormat:
    """Return the format of the images: as set, or the default.

    The default size is that of the images if all are squares of the same size, otherwise the largest default size that
    half of them reach. By default, images have three channels, or one if all are gray with more than 8 bits.
    """
    from PIL import Image

    size, channels = data_settings.image_size, data_settings.channels
    if size is not None and channels in (3, 4):
        return ImageFormat(size, channels)
    sides: Counter[int] = Counter()
    shapes, deep = set(), set()
    for reference in references[:: max(1, len(references) // MAX_INSPECTED)]:
        try:
            with reference.open("rb") as stream, Image.open(stream) as image:
                shapes.add(image.size)
                sides[min(image.size)] += 1
                deep.add(is_deep(image.mode))
        except (OSError, ValueError, Warning, Image.DecompressionBombError):
            continue
    if channels is None:
        channels = 1 if deep == {True} else 3
    if size is None:
        median = sorted(sides.elements())[sides.total() // 2] if sides else SIZES[0]
        size = max([side for side in SIZES if side <= median], default=SIZES[0])
        if len(shapes) == 1 and len(set(next(iter(shapes)))) == 1 and max(sides) <= SIZES[-1]:
            size = max(sides)
    return ImageFormat(size, channels, deep=channels == 1 and True in deep)
