"""Time of `imix.per_sample` relative to a Python loop over the samples, and to code written for batches.

    python benchmarks/per_sample.py --device cpu

`gain` and `shift` are vectorized by torch.func.vmap. torchvision's crop and flip cannot be; they are called in a loop.
"""

import argparse
import json
from collections.abc import Callable

import torch
from timing import add_device_arguments, format_table, select_device, time_in_rounds, time_ratio
from torch import Tensor
from torchvision.transforms import v2

import imix

BATCH_SIZE = 256


def gain(image: Tensor) -> Tensor:
    """Multiply an image by a random factor."""
    return image * (0.6 + 0.8 * torch.rand((), device=image.device))


def batched_gain(images: Tensor) -> Tensor:
    """Do the same for a batch."""
    return images * (0.6 + 0.8 * torch.rand(len(images), 1, 1, 1, device=images.device))


def shift(image: Tensor) -> Tensor:
    """Shift an image cyclically by a random number of columns."""
    start = torch.randint(image.shape[-1], (1,), device=image.device)
    return image.index_select(2, (start + torch.arange(image.shape[-1], device=image.device)) % image.shape[-1])


def batched_shift(images: Tensor) -> Tensor:
    """Do the same for a batch."""
    start = torch.randint(images.shape[-1], (len(images), 1, 1, 1), device=images.device)
    columns = (start + torch.arange(images.shape[-1], device=images.device)) % images.shape[-1]
    return images.gather(3, columns.expand_as(images))


def main() -> None:
    """Measure and print all variants."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_device_arguments(parser)
    device = select_device(parser.parse_args())
    crop_and_flip = v2.Compose([v2.RandomResizedCrop(32, antialias=True), v2.RandomHorizontalFlip()])
    batched_crop = imix.augment.image.RandomResizedCrop((32, 32))
    transforms: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
        "gain": (gain, batched_gain),
        "shift": (shift, batched_shift),
        "crop and flip": (crop_and_flip, batched_crop),
    }
    images = torch.rand(BATCH_SIZE, 3, 32, 32, device=device)
    rows = []
    for name, (transform, batched) in transforms.items():
        per_sample = imix.per_sample(transform)
        variants: dict[str, Callable[[], object]] = {
            "loop": lambda transform=transform: torch.stack([transform(image) for image in images]),  # type: ignore[misc]
            "per_sample": lambda per_sample=per_sample: per_sample(images),  # type: ignore[misc]
            "for batches": lambda batched=batched: batched(images),  # type: ignore[misc]
        }
        times = time_in_rounds(variants, device)
        for variant in variants:
            ratio = time_ratio(times, variant, "loop").as_dict()
            line = {"transform": name, "variant": variant, "ms": round(1e3 * min(times[variant]), 3), **ratio}
            print(json.dumps(line), flush=True)
            rows.append(list(line.values()))
    print(format_table(["transform", "variant", "ms", "ratio to loop", "low", "high"], rows))


if __name__ == "__main__":
    main()
