"""Folders of images: any format, mode and size that Pillow reads, brought to one size, in memory or streamed."""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import tee
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from imix.batch import Batch
from imix.data.folder import check_few, decode_all, decoded, find_files, read_files
from imix.data.source import Data, Source, Tensors
from imix.errors import InputError, first_line
from imix.settings import SMALL_SIDE, Reading

PICTURES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
IN_MEMORY = 8 << 30  # bytes of decoded images up to which they are all held
LARGEST = 200_000_000  # pixels of an image
SIZES = (32, 64, 128, 224)  # sides that images of different sizes are brought to


class Pictures(Source):
    """Images in files, decoded when they are needed, a few batches ahead.

    An image that cannot be decoded is refused by name; with `forgiving`, as in training, it is said, and stands as a
    black one, so that batches keep their size, until there are more than a few.
    """

    def __init__(
        self, paths: Sequence[Path], labels: Tensor | None, size: int, device: torch.device, forgiving: bool = False
    ) -> None:
        self.paths, self.labels, self.size, self.device = list(paths), labels, size, device
        self.forgiving = forgiving
        self.broken: set[Path] = set()

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def shape(self) -> tuple[int, ...]:
        """Colour images of one size."""
        return (3, self.size, self.size)

    def batches(self, rows: Iterable[Tensor]) -> Iterator[tuple[Batch, Tensor | None]]:
        """Decoded images and labels."""
        asked, decoded_for = tee(row.cpu() for row in rows)
        paths = (self.paths[i] for row in decoded_for for i in row.tolist())
        images = decoded(paths, lambda path: decode(path, self.size))
        for row in asked:
            batch = np.empty((len(row), *self.shape), np.uint8)
            for at in range(len(row)):
                path, image = next(images)
                if isinstance(image, Exception):
                    self._bear(path, image)
                batch[at] = 0 if isinstance(image, Exception) else image
            labels = None if self.labels is None else self.labels[row].to(self.device)
            images_of_batch = torch.from_numpy(batch)
            if self.device.type == "cuda":  # from pinned memory the copy goes on beside the work
                images_of_batch = images_of_batch.pin_memory()
            yield images_of_batch.to(self.device, non_blocking=True), labels

    def _bear(self, path: Path, error: Exception) -> None:
        if not self.forgiving:
            raise InputError(f"{path} cannot be decoded ({first_line(error)}); mend it or take it away")
        if path not in self.broken:
            self.broken.add(path)
            print(f"{path} cannot be decoded: {first_line(error)}", file=sys.stderr)
        check_few(self.broken, len(self), path, "images")

    def to(self, device: torch.device) -> "Pictures":
        """The same files, with batches on that device."""
        return Pictures(self.paths, self.labels, self.size, device, self.forgiving)

    def for_training(self) -> "Pictures":
        """The same files, of which a few may be broken."""
        return Pictures(self.paths, self.labels, self.size, self.device, forgiving=True)

    def take(self, rows: Tensor) -> "Pictures":
        """The source of those rows alone."""
        labels = None if self.labels is None else self.labels[rows]
        return Pictures([self.paths[i] for i in rows.tolist()], labels, self.size, self.device, self.forgiving)


def read_pictures(folder: Path, reading: Reading, wanted: Sequence[str] | None = None) -> Data:
    """A folder of images; where all are in subfolders, these are the classes, of which some may be `wanted`.

    `reading.test` is such a folder too.
    """
    size = reading.image_size or _common_size(find_pictures(folder, wanted))
    reading = replace(reading, image_size=size)  # images that come later are brought to the same
    data = read_files(folder, reading, lambda place: find_pictures(place, wanted), lambda paths: _source(paths, size))
    return replace(data, augment="cifar" if size <= SMALL_SIDE else "imagenet")


def find_pictures(folder: Path, wanted: Sequence[str] | None = None) -> list[Path]:
    """All images below a folder, or below the `wanted` ones in it, in order; what is hidden does not count."""
    found = find_files(folder, PICTURES, wanted)
    if not found:
        raise InputError(f"there are no images ({', '.join(PICTURES)}) in {str(folder)!r}")
    return found


def decode(path: Path, size: int) -> np.ndarray:
    """An image as bytes (3, size, size): upright, in colour, on white, its shorter side resized, its middle taken."""
    from PIL import Image, ImageOps

    with Image.open(path) as opened:
        if opened.width * opened.height > LARGEST:
            raise InputError(f"it has {opened.width} x {opened.height} pixels")
        opened.draft("RGB", (size, size))
        image = ImageOps.exif_transpose(opened)
        if image.mode.startswith("I") or image.mode == "F":  # more than 8 bits
            image = Image.fromarray(_to_bytes(np.asarray(image, np.float32), image.mode))
        if image.has_transparency_data:
            image = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
        fitted = ImageOps.fit(image.convert("RGB"), (size, size), Image.Resampling.BILINEAR)
    return np.ascontiguousarray(np.asarray(fitted).transpose(2, 0, 1))


def _to_bytes(values: np.ndarray, mode: str) -> np.ndarray:
    """Sixteen bits by their range, others by the range of the image."""
    low, high = (0.0, 65535.0) if mode.startswith("I;16") else (float(values.min()), float(values.max()))
    if not np.isfinite(high - low):
        raise InputError("it has values that are no numbers")
    return ((values - low) / max(high - low, 1e-6) * 255).astype(np.uint8)


def _source(paths: list[Path], size: int) -> tuple[Source, list[Path]]:
    """All images in memory if they fit, with those that are broken left out, or the files to stream."""
    if len(paths) * 3 * size * size > IN_MEMORY:
        return Pictures(paths, None, size, torch.device("cpu")), paths
    images = np.empty((len(paths), 3, size, size), np.uint8)
    good = decode_all(paths, lambda path: decode(path, size), images, "images")
    return Tensors(torch.from_numpy(images[: len(good)])), good


def _common_size(paths: Sequence[Path]) -> int:
    """The side of square images that are all alike, or the largest usual side that half of the images have."""
    from PIL import Image

    sides: Counter[int] = Counter()
    shapes = set()
    for path in paths[:: max(1, len(paths) // 1000)]:
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
