"""Speed and peak memory of streamed data, compared with data in memory, a folder, and a torch DataLoader.

    python benchmarks/streaming.py --folder /tmp/streaming --out docs/performance/streaming.csv

Each measurement is an epoch of batches in its own process, without a training step; variants alternate within a round.
Memory is the peak of the process above its memory after the imports. The data is random and is written to `--folder`
once; files are in the page cache. Memory is measured with `--rows` rows and `--images` images, and speed with a tenth
of the rows and a hundredth of the images.
"""

import argparse
import csv
import io
import multiprocessing
import os
import statistics
import tarfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from timing import format_table
from torch.utils.data import DataLoader

import imix
from imix.data import Data, load
from imix.data.media import images as image_files

COLUMNS, ROW_GROUP, BATCH = 28, 100_000, 512
SHARD_SIZE, PHOTO, THUMBNAIL = 1000, (500, 375), (32, 32)


def write_tables(folder: Path, rows: int) -> Path:
    """Write a folder of Parquet files of normal float32 columns and a label."""
    import pyarrow as pa
    from pyarrow import parquet

    for number, start in enumerate(range(0, rows, 10 * ROW_GROUP)):
        path = folder / f"{number:03}.parquet"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            rng, n = np.random.default_rng(number), min(10 * ROW_GROUP, rows - start)
            columns = {f"c{i}": rng.standard_normal(n, np.float32) for i in range(COLUMNS)}
            parquet.write_table(pa.table(columns | {"y": rng.integers(0, 2, n)}), path, row_group_size=ROW_GROUP)
    return folder


def write_images(folder: Path, n: int, size: tuple[int, int]) -> Path:
    """Write JPEG files of smooth noise to shards, and to a folder with one subfolder per shard."""
    rng = np.random.default_rng(0)
    contents = []
    for _ in range(50):  # images repeat; names differ
        noise = Image.fromarray(rng.integers(0, 256, (size[1] // 8, size[0] // 8, 3), dtype=np.uint8))
        buffer = io.BytesIO()
        noise.resize(size, Image.Resampling.BICUBIC).save(buffer, "jpeg", quality=90)
        contents.append(buffer.getvalue())
    for start in range(0, n, SHARD_SIZE):
        shard = folder / "shards" / f"{start // SHARD_SIZE:04}.tar"
        if shard.exists():
            continue
        subfolder = folder / "files" / shard.stem
        for each in (shard.parent, subfolder):
            each.mkdir(parents=True, exist_ok=True)
        with tarfile.open(shard, "w") as tar:
            for i in range(start, min(n, start + SHARD_SIZE)):
                content = contents[i % len(contents)]
                (subfolder / f"{i:07}.jpg").write_bytes(content)
                for suffix, member in (("jpg", content), ("cls", shard.stem.encode())):
                    info = tarfile.TarInfo(f"{i:07}.{suffix}")
                    info.size = len(member)
                    tar.addfile(info, io.BytesIO(member))
    return folder


def visit(data: Data) -> int:
    """Visit an epoch of batches, and return the number of samples."""
    order = data.train.epoch_order(0, 0)
    return sum(len(x) for x, _ in data.train.batches(order.split(BATCH)))


def streamed_images(path: Path, size: int) -> Data:
    """Load images that are decoded in every epoch."""
    image_files.MAX_BYTES_IN_MEMORY = 0
    return load(path, imix.DataSettings(image_size=size))


def in_memory_table(folder: Path) -> Data:
    """Load the files of a folder as one table in memory."""
    import pyarrow.dataset as dataset

    return load(dataset.dataset(folder).to_table(), imix.DataSettings(label="y"))


def torch_loader(folder: Path, size: int) -> "DataLoader[Any]":
    """Return a DataLoader over a torchvision ImageFolder with as many workers as imix has threads."""
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import v2

    steps = v2.Compose([v2.Resize(size), v2.CenterCrop(size), v2.PILToTensor()])
    options: dict[str, Any] = {"num_workers": os.cpu_count(), "multiprocessing_context": "fork"}
    return DataLoader(ImageFolder(str(folder), steps), BATCH, shuffle=True, **options)


def timed(measure: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result of a function, and the seconds that it took."""
    start = time.perf_counter()
    return measure(), time.perf_counter() - start


def measure(variant: str, folder: Path) -> tuple[float, float, float]:
    """Return the seconds to load data, the samples per second of an epoch, and the MiB that both took."""
    torch.set_num_threads(1)
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = memory_kib("VmRSS")
    kind, source, *_ = variant.split()
    loaders: dict[str, Callable[[], Any]] = {
        "rows streamed": lambda: load(folder, imix.DataSettings(label="y")),
        "rows memory": lambda: in_memory_table(folder),
        "photos shards": lambda: streamed_images(folder / "shards", 224),
        "photos files": lambda: streamed_images(folder / "files", 224),
        "photos DataLoader": lambda: torch_loader(folder / "files", 224),
        "thumbnails shards": lambda: streamed_images(folder / "shards", 32),
        "thumbnails files": lambda: streamed_images(folder / "files", 32),
    }
    data, load_seconds = timed(loaders[f"{kind} {source}"])
    if isinstance(data, DataLoader):
        n, seconds = timed(lambda: sum(len(x) for x, _ in data))
    else:
        n, seconds = timed(lambda: visit(data))
    return load_seconds, n / seconds, (memory_kib("VmHWM") - before) / 1024


def memory_kib(name: str) -> int:
    """Return a size of this process that the kernel reports."""
    status = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return int(status[name].split()[0])


def measure_in_process(variant: str, folder: Path) -> tuple[float, float, float]:
    """Measure in a new process."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure, variant, folder).result()


def main() -> None:
    """Write a line of CSV for each measurement, and print a table of medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where the data is written")
    parser.add_argument("--out", type=Path, required=True, help="CSV file of the measurements")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--images", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    few_rows, many_rows = (write_tables(args.folder / f"rows-{n}", n) for n in (args.rows // 10, args.rows))
    photos = write_images(args.folder / "photos", args.images // 100, PHOTO)
    thumbnails = write_images(args.folder / "thumbnails", args.images, THUMBNAIL)
    variants = [("rows memory", few_rows), ("rows streamed", few_rows)]
    variants += [(f"photos {source}", photos) for source in ("files", "shards", "DataLoader")]
    once = [(f"rows {source} all", many_rows) for source in ("memory", "streamed")]
    once += [(f"thumbnails {source} all", thumbnails) for source in ("files", "shards")]
    measured: dict[str, list[tuple[float, float, float]]] = {}
    with open(args.out, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["variant", "round", "seconds to load", "samples per second", "peak MiB"])
        for number in range(args.rounds):
            for variant, folder in [*variants, *(once if number == 0 else [])]:
                values = measure_in_process(variant, folder)
                measured.setdefault(variant, []).append(values)
                writer.writerow([variant, number, *(f"{value:.1f}" for value in values)])
                file.flush()
    rows = []
    for variant, rounds in measured.items():
        load_seconds, speed, memory = (statistics.median(column) for column in zip(*rounds, strict=True))
        rows.append([variant, f"{load_seconds:.1f}", f"{speed:,.0f}", f"{memory:,.0f}"])
    print(format_table(["variant", "seconds to load", "samples per second", "peak MiB"], rows))


if __name__ == "__main__":
    main()
