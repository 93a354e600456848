"""The cost of i-Mix in a training step: every method with MixUp and (images) CutMix, against the same without mixing.

    python benchmarks/mixing_cost.py                 # on the GPU, if there is one
    python benchmarks/mixing_cost.py --device cpu --methods npair moco

The step is that of `imix.pretrain`: views, mixing, forward, backward, SGD and `update()`. On a CPU it runs eagerly with
the small encoder, and images are not augmented, because augmentation would dominate the time. On a GPU it is compiled
and captured as a CUDA graph, with ResNet-18 on images of CIFAR's size and with CovType's network.

"network views" counts the samples that the encoders process in a step. With mixing, SimCLR and SupCLR process twice as
many by the paper's definition (clean keys besides mixed anchors), so their ratio shows the extra pass, not the mixing.

A ratio is the median of the ratios within each round, with its 95 % confidence interval. On a single CPU thread,
processor time is measured.
"""

import argparse
import json
import statistics
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import synthetic
import torch
from epoch import COVTYPE
from timing import (
    Ratio,
    add_device_arguments,
    build_step,
    format_table,
    select_device,
    time_in_rounds,
    time_ratio,
)
from torch import Tensor, nn

from imix.data import Data
from imix.methods import Method
from imix.settings import METHODS, ResolvedSettings

TARGET = 1.02


def count_network_views(take_step: Callable[[], Tensor], learner: Method) -> int:
    """Return the samples that the encoder and, if there is one, the key encoder process in a step."""
    n_views = 0

    def count(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        nonlocal n_views
        n_views += len(inputs[0])

    with ExitStack() as hooks:
        for name in ("encoder", "key_encoder"):
            if hasattr(learner, name):
                hooks.callback(getattr(learner, name).register_forward_hook(count).remove)
        take_step()
    return n_views


def check_target(ratio: Ratio) -> str:
    """Return whether the target is met, or "unclear" if the confidence interval includes it."""
    return "met" if ratio.high <= TARGET else "missed" if ratio.low > TARGET else "unclear"


def main() -> None:
    """Print a line of JSON for each method and mixing operator, and a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_device_arguments(parser)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=[*METHODS])
    parser.add_argument("--data", nargs="+", choices=("rows", "images"), default=("rows", "images"))
    parser.add_argument("--rounds", type=int, default=11)
    args = parser.parse_args()
    device = select_device(args)
    on_gpu = device.type == "cuda"
    small = {"encoder": "small"}
    workloads: dict[str, tuple[Data, dict[str, Any]]] = {
        "rows": (
            (synthetic.random_covtype(), COVTYPE) if on_gpu else (synthetic.random_rows(), small | {"batch_size": 256})
        ),
        "images": (
            (synthetic.random_images(), {"encoder": "resnet18", "batch_size": 256})
            if on_gpu
            else (synthetic.random_images(augment="none"), small | {"batch_size": 64})
        ),
    }
    if not on_gpu:
        print("skipped the compiled steps of ResNet-18 and CovType's network, which need a GPU")
    rows = []
    for name in args.data:
        data, options = workloads[name]
        for method in args.methods:
            torch._dynamo.reset()  # otherwise methods of the same class exceed the compiler's recompilation limit
            steps, views = {}, {}
            for mix in ("none", "mixup", *(("cutmix",) if name == "images" else ())):
                settings = ResolvedSettings(
                    method=method, mix=mix, device=args.device, compile=False, cuda_graph=False, **options
                )
                views[mix] = count_network_views(*build_step(data, settings))
                steps[mix], _ = build_step(data, replace(settings, compile=on_gpu, cuda_graph=on_gpu))
            for take_step in steps.values() if on_gpu else ():
                for _ in range(5):  # the fourth call captures the CUDA graph
                    take_step()
            times = time_in_rounds(steps, device, args.rounds * (1 if on_gpu or name == "images" else 3))
            for mix in steps:
                ratio = time_ratio(times, mix, "none")
                extra_pass = views[mix] > views["none"]
                target = None if mix == "none" or extra_pass else check_target(ratio)
                line = {"data": name, "method": method, "mix": mix, "device": str(device)} | options
                line |= {"ms per step": round(1e3 * statistics.median(times[mix]), 2)} | ratio.as_dict()
                line |= {"network views": views[mix], "target of 2 %": target}
                print(json.dumps(line), flush=True)
                if mix != "none":
                    view_counts = f"{views[mix]} vs {views['none']}" + (", extra pass" if extra_pass else "")
                    interval = f"{ratio.low:.3f} to {ratio.high:.3f}"
                    rows.append([name, method, mix, f"{ratio.median:.3f}", interval, view_counts, target or "-"])
    print(
        format_table(
            ["data", "method", "mix", "time vs no mixing", "95 % interval", "network views", "2 % target"], rows
        )
    )


if __name__ == "__main__":
    main()
