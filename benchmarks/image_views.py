"""Views of small images per second: imix on a batch, against torchvision on Pillow images, and kornia on a batch.

    python benchmarks/image_views.py                 # on the GPU where there is one
    python benchmarks/image_views.py --device cpu

torchvision runs on one core, as one worker of a loader does; multiply by the workers you have. kornia (`pip install
kornia`) is left out where it is not installed.
"""

import argparse
import json
from collections.abc import Callable

import numpy as np
import torch
from clock import tell_rates
from PIL import Image
from torch import Tensor
from torchvision import transforms

from imix.augment import image


def recorded(make: Callable[[], Tensor]) -> Callable[[], int]:
    """The same as a CUDA graph, which is how a training step takes them."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            made = make()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        made = make()

    def again() -> int:
        graph.replay()
        return len(made)

    return again


def with_kornia(x: Tensor) -> Callable[[], int]:
    """The same steps of kornia, a draw per sample."""
    from kornia import augmentation

    steps = torch.nn.Sequential(
        augmentation.RandomResizedCrop(x.shape[-2:], scale=(0.2, 1.0)),
        augmentation.RandomHorizontalFlip(),
        augmentation.ColorJitter(0.4, 0.4, 0.4, 0.1, p=0.8),
        augmentation.RandomGrayscale(p=0.2),
    )
    return lambda: len(steps(x.float() / 255))


def tell_difference(views: image.CropAndColours, x: Tensor) -> None:
    """How far views made here are from those that plain torch makes on a CPU, of the same random numbers."""
    drawn = torch.rand(len(x), views.draws)
    difference = (views.view(x, drawn.to(x.device)).cpu() - views.view(x.cpu(), drawn)).abs().max()
    print(json.dumps({"largest difference to plain torch on a CPU": float(difference)}), flush=True)


def main() -> None:
    """One line of JSON for each way, and a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--size", type=int, default=32, help="pixels of a side")
    given = parser.parse_args()
    device = torch.device(given.device)
    pixels = np.random.default_rng(0).integers(0, 256, (given.batch, given.size, given.size, 3), dtype=np.uint8)
    x = torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous().to(device)
    views = image.CropAndColours(image.RandomResizedCrop(given.size), image.ColourJitter(), image.Greyscale())
    tell_difference(views, x.float() / 255)
    compiled = torch.compile(views)
    pillow = [Image.fromarray(one) for one in pixels[:128]]
    one_by_one = transforms.Compose(
        [
            transforms.RandomResizedCrop(given.size, scale=(0.2, 1.0)),
            transforms.RandomHorizontalFlip(),
            transforms.RandomApply([transforms.ColorJitter(0.4, 0.4, 0.4, 0.1)], p=0.8),
            transforms.RandomGrayscale(0.2),
            transforms.ToTensor(),
        ]
    )
    ways: dict[str, Callable[[], int]] = {
        "torchvision on Pillow, one core": lambda: len([one_by_one(one) for one in pillow]),
        "imix": lambda: len(views(x.float() / 255)),
        "imix, compiled": lambda: len(compiled(x.float() / 255)),
    }
    try:
        ways["kornia"] = with_kornia(x)
    except ImportError:
        print("kornia is not installed: left out")
    if device.type == "cuda":
        ways["imix, recorded"] = recorded(lambda: views(x.float() / 255))
        ways["imix, compiled and recorded"] = recorded(lambda: compiled(x.float() / 255))
    tell_rates(ways, device)


if __name__ == "__main__":
    main()
