"""Large .npy and .npz files as samples: memory-mapped, and read when a batch needs them."""

import os
import struct
import sys
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from imix.batch import Batch
from imix.data.source import Source
from imix.errors import InputError
from imix.output import print_message

MIN_BYTES = 1 << 30  # smaller arrays are read into memory
HEADER_READERS: dict[tuple[int, int], Any] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


@dataclass(eq=False)
class MappedArray(Source):
    """Samples in a memory-mapped array (N, ...). Each batch is checked and converted when it is read."""

    array: Any  # np.memmap
    name: str
    rows: Tensor  # (n,), the samples in the array
    file_size: int
    labels: Tensor | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a sample."""
        return tuple(self.array.shape[1:])

    def batches(self, rows: Iterable[Tensor]) -> Iterator[tuple[Batch, Tensor | None]]:
        """Yield samples (B, ...) and labels, on the CPU."""
        for batch_rows in rows:
            batch_rows = batch_rows.cpu()
            if _file_size(self.array) < self.file_size:  # reading beyond its end would kill the process
                raise InputError(f"{self.array.filename} was truncated while it was in use")
            yield self._read(self.rows[batch_rows].numpy()), None if self.labels is None else self.labels[batch_rows]

    def _read(self, numbers: np.ndarray) -> Batch:
        from imix.data.arrays import samples

        try:
            return samples(np.asarray(self.array[numbers]), self.name)
        except InputError:
            for number in numbers.tolist():
                samples(np.asarray(self.array[number : number + 1]), f"sample {number} of {self.name}")
            raise

    def to(self, device: torch.device) -> "MappedArray":
        """Return the same samples: they stay in the file."""
        return self

    def take(self, rows: Tensor) -> "MappedArray":
        """Return a source of these rows only."""
        return replace(self, rows=self.rows[rows], labels=None if self.labels is None else self.labels[rows])


def is_large(array: Any) -> bool:
    """Whether an array is memory-mapped and too large to be read into memory without need."""
    return isinstance(array, np.memmap) and array.nbytes >= MIN_BYTES


def map_array(array: Any, name: str) -> MappedArray:
    """Return the samples of a mapped array (N, ...)."""
    if array.ndim < 2 or not len(array):
        raise InputError(f"{name} must have shape (N, ...) with N > 0 samples; got {array.shape}")
    source = MappedArray(array, name, torch.arange(len(array)), _file_size(array))
    source.sample(2)
    return source


def map_npz(path: Path, key: str) -> Any:
    """Map an array of a .npz file, or return None if it is small, missing or compressed."""
    with zipfile.ZipFile(path) as archive:
        info = archive.NameToInfo.get(f"{key}.npy")
        if info is None or info.file_size < MIN_BYTES:
            return None
        if info.compress_type != zipfile.ZIP_STORED:
            size = f"{info.file_size / 1e9:,.1f} GB"
            print_message(
                f"{path}: {key!r} is compressed, so all {size} are read into memory; np.savez does not compress"
            )
            return None
        with archive.open(info) as member:
            read_header = HEADER_READERS.get(np.lib.format.read_magic(member))
            if read_header is None:
                return None
            shape, is_fortran, dtype = read_header(member)
            header_size = member.tell()
    with open(path, "rb") as file:
        file.seek(info.header_offset + 26)
        name_size, extra_size = struct.unpack("<HH", file.read(4))
    offset = info.header_offset + 30 + name_size + extra_size + header_size
    return np.memmap(path, dtype, "r", offset, shape, "F" if is_fortran else "C")


def _file_size(array: Any) -> int:
    try:
        return os.stat(array.filename).st_size if array.filename else 0
    except OSError:  # a deleted file can still be read
        return sys.maxsize
