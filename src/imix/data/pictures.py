"""Folders of images: any format, mode and size that Pillow reads, brought to one size, in memory or streamed.

Images are decoded by threads. What cannot be decoded is named, counted and left out; more than a few stop the run.
"""

import os
import sys
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import tee
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
AHEAD = 2048  # images that are decoded ahead
LARGEST = 200_000_000  # pixels of an image
SIZES = (32, 64, 128, 224)  # sides that images of different sizes are brought to


class Pictures(Source):
    """Images in files, decoded when they are needed, a few batches ahead.

    An image that cannot be decoded is refused by name; with `forgiving`, as in training, it is said, and stands as the
    image before it, so that batches keep their size, until there are more than a few.
    """

    def __init__(self, paths: Sequence[Path], labels: Tensor | None, size: int, device: torch.device) -> None:
        self.paths, self.labels, self.size, self.device = list(paths), labels, size, device
        self.forgiving = False
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
        images = _decoded((self.paths[i] for row in decoded_for for i in row.tolist()), self.size)
        last = np.zeros(self.shape, np.uint8)
        for row in asked:
            batch = np.empty((len(row), *self.shape), np.uint8)
            for at in range(len(row)):
                path, image = next(images)
                if isinstance(image, Exception):
                    self._bear(path, image)
                else:
                    last = image
                batch[at] = last
            labels = None if self.labels is None else self.labels[row].to(self.device)
            yield torch.from_numpy(batch).to(self.device, non_blocking=True), labels

    def _bear(self, path: Path, error: Exception) -> None:
        if not self.forgiving:
            raise InputError(f"{path} cannot be decoded ({first_line(error)}); mend it or take it away")
        if path not in self.broken:
            self.broken.add(path)
            print(f"{path} cannot be decoded: {first_line(error)}", file=sys.stderr)
        _check_few(self.broken, len(self), path)

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
    if reading.test is not None:
        _check_apart(folder, Path(reading.test))
    paths = find_pictures(folder, wanted)
    size = reading.image_size or _common_size(paths)
    reading = replace(reading, image_size=size)  # images that come later are brought to the same
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


def find_pictures(folder: Path, wanted: Sequence[str] | None = None) -> list[Path]:
    """All images below a folder, or below the `wanted` ones in it, in order; what is hidden does not count."""
    found: list[Path] = []
    seen: set[str] = set()

    def complain(error: OSError) -> None:
        raise InputError(f"cannot read {error.filename!r}: {error.strerror}") from error

    for root in [folder] if wanted is None else [folder / name for name in wanted]:
        for place, folders, names in os.walk(root, onerror=complain, followlinks=True):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            if (real := os.path.realpath(place)) in seen:  # links that go in circles
                folders.clear()
                continue
            seen.add(real)
            found += [Path(place) / name for name in names if _is_picture(name) and (Path(place) / name).is_file()]
    if not found:
        raise InputError(f"there are no images ({', '.join(SUFFIXES)}) in {str(folder)!r}")
    return sorted(found)


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


def _decoded(paths: Iterable[Path], size: int) -> Iterator[tuple[Path, np.ndarray | Exception]]:
    """Each image, or why it cannot be decoded, in order, with some being decoded ahead."""

    def attempt(path: Path) -> np.ndarray | Exception:
        try:
            return decode(path, size)
        except Exception as error:  # a broken file fails in many ways, all of them the file's fault
            return error

    waiting: deque[tuple[Path, Future[np.ndarray | Exception]]] = deque()
    pool = ThreadPoolExecutor(_threads())
    try:
        for path in paths:
            waiting.append((path, pool.submit(attempt, path)))
            if len(waiting) > AHEAD:
                first, image = waiting.popleft()
                yield first, image.result()
        for path, image in waiting:
            yield path, image.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _source(paths: Sequence[Path], size: int) -> tuple[Source, list[Path]]:
    """All images in memory if they fit, with those that are broken left out, or the files to stream."""
    if len(paths) * 3 * size * size > IN_MEMORY:
        return Pictures(paths, None, size, torch.device("cpu")), list(paths)
    images = np.empty((len(paths), 3, size, size), np.uint8)
    good: list[Path] = []
    broken: set[Path] = set()
    told = time.monotonic()
    for path, image in _decoded(paths, size):
        if isinstance(image, Exception):
            broken.add(path)
            print(f"left out {path}: {first_line(image)}", file=sys.stderr)
            _check_few(broken, len(paths), path)
        else:
            images[len(good)] = image
            good.append(path)
        if time.monotonic() - told > 10:
            print(f"decoding: {len(good):,} of {len(paths):,} images", file=sys.stderr, flush=True)
            told = time.monotonic()
    if not good:
        raise InputError(f"none of the {len(paths)} images can be decoded; the first is {paths[0]}")
    if broken:
        print(f"{len(broken)} of {len(paths)} images were left out", file=sys.stderr)
    return Tensors(torch.from_numpy(images[: len(good)])), good


def _check_few(broken: set[Path], total: int, last: Path) -> None:
    if len(broken) > max(5, FEW * total):
        raise InputError(f"{len(broken)} images cannot be decoded; the last is {last}")


def _check_apart(train: Path, test: Path) -> None:
    one, other = train.resolve(), test.resolve()
    if one == other or one in other.parents or other in one.parents:
        raise InputError(f"training images in {str(train)!r} and test images in {str(test)!r} must lie apart")


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


def _classes(folder: Path, names: Sequence[Path]) -> list[str] | None:
    """The first subfolder of each image, or None where some have none."""
    parts = [name.relative_to(folder).parts for name in names]
    loose = [part[0] for part in parts if len(part) == 1]
    if loose and len(loose) < len(parts):
        print(f"{folder}: no labels, since {loose[0]!r} and {len(loose) - 1} more are in no subfolder", file=sys.stderr)
    return None if loose else [part[0] for part in parts]


def _is_picture(name: str) -> bool:
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")


def _threads() -> int:
    return min(32, os.cpu_count() or 1)
