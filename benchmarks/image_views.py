"""Views of small images per second: imix on batches, against torchvision on Pillow images, and kornia on batches.

    python benchmarks/image_views.py                 # on the GPU, if there is one
    python benchmarks/image_views.py --device cpu

torchvision runs on one core, like one worker of a data loader; multiply its number by your workers. kornia is skipped
if it is not installed (`pip install kornia`).
"""

import argparse
import json
from collections.abc import Callable

import numpy as np
import torch
from PIL import Image
from timing import print_throughputs
from torch import Tensor
from torchvision import transforms

from imix.augment import image


def as_cuda_graph(make_views: Callable[[], Tensor]) -> Callable[[], int]:
    """Capture a function as a CUDA graph, as in a training step."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            views = make_views()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        views = make_views()

    def replay() -> int:
        graph.replay()
        return len(views)

    return replay


def kornia_views(x: Tensor) -> Callable[[], int]:
    """Return the same augmentation with kornia, which also draws per sample."""
    from kornia import augmentation

    augment = torch.nn.Sequential(
        augmentation.RandomResizedCrop(x.shape[-2:], scale=(0.2, 1.0)),
        augmentation.RandomHorizontalFlip(),
        augmentation.ColorJitter(0.4, 0.4, 0.4, 0.1, p=0.8),
        augmentation.RandomGrayscale(p=0.2),
    )
    return lambda: len(augment(x.float() / 255))


def print_difference(augment: image.CropAndColorJitter, x: Tensor) -> None:
    """Print how far views on this device are from plain torch on a CPU, for the same random numbers."""
    uniforms = torch.rand(len(x), augment.n_draws)
    difference = (augment.transform(x, uniforms.to(x.device)).cpu() - augment.transform(x.cpu(), uniforms)).abs().max()
    print(json.dumps({"maximum difference from plain torch on a CPU": float(difference)}), flush=True)


def main() -> None:
    """Print a line of JSON for each variant, and a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--size", type=int, default=32, help="height and width of the images, in pixels")
    args = parser.parse_args()
    device = torch.device(args.device)
    pixels = np.random.default_rng(0).integers(0, 256, (args.batch, args.size, args.size, 3), dtype=np.uint8)
    x = torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous().to(device)
    augment = image.CropAndColorJitter(image.RandomResizedCrop(args.size), image.ColorJitter(), image.Grayscale())
    print_difference(augment, x.float() / 255)
    compiled = torch.compile(augment)
    pillow_images = [Image.fromarray(array) for array in pixels[:128]]
    augment_pillow = transforms.Compose(
        [
            transforms.RandomResizedCrop(args.size, scale=(0.2, 1.0)),
            transforms.RandomHorizontalFlip(),
            transforms.RandomApply([transforms.ColorJitter(0.4, 0.4, 0.4, 0.1)], p=0.8),
            transforms.RandomGrayscale(0.2),
            transforms.ToTensor(),
        ]
    )
    variants: dict[str, Callable[[], int]] = {
        "torchvision on Pillow, one core": lambda: len([augment_pillow(pillow) for pillow in pillow_images]),
        "imix": lambda: len(augment(x.float() / 255)),
        "imix, compiled": lambda: len(compiled(x.float() / 255)),
    }
    try:
        variants["kornia"] = kornia_views(x)
    except ImportError:
        print("skipped kornia, which is not installed")
    if device.type == "cuda":
        variants["imix, CUDA graph"] = as_cuda_graph(lambda: augment(x.float() / 255))
        variants["imix, compiled and CUDA graph"] = as_cuda_graph(lambda: compiled(x.float() / 255))
    print_throughputs(variants, device)


if __name__ == "__main__":
    main()
