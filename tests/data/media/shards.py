"""Tar shards for the tests."""

import io
import tarfile

import numpy as np
from PIL import Image


def png(seed, size=40):
    """A PNG file of noise."""
    noise = np.random.default_rng(seed).integers(0, 256, (size, size, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(noise).save(buffer, "png")
    return buffer.getvalue()


def write_tar(path, files, **options):
    """Write files, given as name and content, to a tar file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", **options) as tar:
        for name, content in files:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def write_shards(folder, n_shards=3, n=20):
    """Write shards of n images each, with classes 0 to 10 in .cls files."""
    for shard in range(n_shards):
        files = []
        for i in range(shard * n, (shard + 1) * n):
            files += [(f"{i:05}.png", png(i)), (f"{i:05}.cls", str(i % 11).encode())]
        write_tar(folder / f"{shard:03}.tar", files)
    return folder
