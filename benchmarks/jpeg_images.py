"""Training on JPEG files of ImageNet's size against the bare step, and decoding by threads against decoding on the GPU.

    python benchmarks/jpeg_images.py --folder /tmp/jpeg --out docs/performance/jpeg_images.csv
    python benchmarks/jpeg_images.py --folder /tmp/jpeg --images 200 --encoder resnet18 --size 64 --batch 16  # on a CPU

The files (500 x 375 pixels, smooth noise) are decoded in every epoch, as in a data set that does not fit in memory.
Training is measured by `imix.bench`: the step only, with augmentation, and with reading and decoding. Decoding is
measured without training: by imix's threads, and by torchvision's nvJPEG decoder with resizing on the GPU.
"""

import argparse
import csv
import json
from pathlib import Path

import torch
from streaming import PHOTO, streamed_images, write_images
from timing import format_table, throughput
from torchvision.io import decode_jpeg, read_file
from torchvision.transforms.v2 import functional

import imix
from imix.data import Data


def measure_training(data: Data, encoder: str, batch: int, seconds: float) -> dict[str, float]:
    """Return views per second of the step only, with augmentation, and with reading and decoding."""
    compile = torch.cuda.is_available()
    result = imix.bench(data, encoder=encoder, batch_size=batch, duration=seconds, compile=compile, progress=False)
    views = result.step_only, result.with_augmentation, result.end_to_end
    return dict(zip(("step only", "with augmentation", "from files"), views, strict=True))


def measure_decoding(data: Data, folder: Path, size: int, batch: int, seconds: float) -> dict[str, float]:
    """Return images per second that threads decode and, on a GPU, that nvJPEG decodes."""
    cpu = torch.device("cpu")
    batches = data.train.batches(
        rows for epoch in range(10_000) for rows in data.train.epoch_order(0, epoch).split(batch)
    )
    rates = {"threads": throughput(lambda: len(next(batches)[0]), cpu, seconds)}
    if torch.cuda.is_available():
        contents = [read_file(str(path)) for path in sorted(folder.rglob("*.jpg"))[:batch]]

        def decode() -> int:
            images = decode_jpeg(contents, device="cuda")
            return len([functional.center_crop(functional.resize(image, [size]), [size, size]) for image in images])

        rates["nvJPEG"] = throughput(decode, torch.device("cuda"), seconds)
    return rates


def main() -> None:
    """Print a line of JSON for each measurement, write them to a file, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="images are written to it once")
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--encoder", default="resnet50")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=20.0, help="per measurement")
    parser.add_argument("--out", type=Path, help="CSV file to append to")
    args = parser.parse_args()
    files = write_images(args.folder, args.images, PHOTO) / "files"
    data = streamed_images(files, args.size)
    training = measure_training(data, args.encoder, args.batch, args.seconds)
    decoding = measure_decoding(data, files, args.size, args.batch, args.seconds)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    settings = {
        "device": device,
        "encoder": args.encoder,
        "size": args.size,
        "batch": args.batch,
        "images": args.images,
    }
    rows = []
    for unit, rates in (("views", training), ("images", decoding)):
        for variant, rate in rates.items():
            relative = round(rate / next(iter(rates.values())), 3)
            rows.append(settings | {"variant": variant, "unit": unit, "per second": round(rate), "relative": relative})
            print(json.dumps(rows[-1]), flush=True)
    if args.out is not None:
        is_new = not args.out.exists()
        with open(args.out, "a", newline="") as file:
            writer = csv.DictWriter(file, [*rows[0]])
            writer.writerows([*([dict(zip(rows[0], rows[0], strict=True))] if is_new else []), *rows])
    columns = ["variant", "unit", "per second", "relative"]
    print(format_table(columns, [[row[column] for column in columns] for row in rows]))


if __name__ == "__main__":
    main()
