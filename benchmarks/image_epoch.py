"""An epoch of CIFAR-size images (50,000, two views each, everything included) against the bare step in the same run.

    python benchmarks/image_epoch.py --encoder resnet18 --method npair

The bare step is that of `imix.bench`: its two views stay in place; mixing, network, loss, gradient and SGD, bf16,
channels last. An epoch is one of `imix.pretrain`. Both are taken in each of four ways: launched kernel by kernel,
compiled, recorded as a CUDA graph, and both. Needs a GPU; says so where there is none.
"""

import argparse
import json
import statistics

import torch

import imix
from imix.data import Data, Tensors

MODES = {
    "launched": {"compile": False, "cuda_graph": False},
    "recorded": {"compile": False, "cuda_graph": True},
    "compiled": {"compile": True, "cuda_graph": False},
    "compiled and recorded": {"compile": True, "cuda_graph": True},
}


def epoch(data: Data, settings: imix.Settings) -> tuple[float, float]:
    """Seconds of the median epoch of a run, and of its first."""
    steps = len(data.train) // settings.batch_size
    run = imix.pretrain(data, settings, progress=False)
    seconds, before = [0.0] * settings.epochs, 0
    for record in run.metrics:
        views = 2 * settings.batch_size * (record["step"] - before)
        seconds[(record["step"] - 1) // steps] += views / record["views_per_second"]
        before = record["step"]
    return statistics.median(seconds[1:]), seconds[0]


def main() -> None:
    """One line of JSON for each way of taking steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", default="resnet18")
    parser.add_argument("--method", default="npair")
    parser.add_argument("--mix", default="mixup")
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--modes", nargs="*", choices=MODES, default=[*MODES])
    given = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU here: nothing to measure")
        return
    what = {"encoder": given.encoder, "method": given.method, "mix": given.mix}
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (given.images, 3, 32, 32), generator=generator, dtype=torch.uint8)
    data = Data("pixels", Tensors(pixels), augment="cifar")
    for mode in given.modes:
        settings = imix.Settings(**what, epochs=given.epochs, **MODES[mode])
        bare = imix.bench(data, settings, progress=False).bare
        seconds, first = epoch(data, settings)
        rate = 2 * settings.batch_size * (given.images // settings.batch_size) / seconds
        found = {"way": mode, "seconds an epoch": round(seconds, 2), "views per second": round(rate)}
        found |= {"bare step": round(bare), "of the bare step": round(rate / bare, 3), "first epoch": round(first, 1)}
        print(json.dumps(what | found), flush=True)


if __name__ == "__main__":
    main()
