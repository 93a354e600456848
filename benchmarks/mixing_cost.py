"""What i-Mix costs in a step: every method without mixing, with MixUp and (images) with CutMix, taking turns.

    python benchmarks/mixing_cost.py                 # on the GPU where there is one
    python benchmarks/mixing_cost.py --device cpu --methods npair moco

A step is the one that `imix.pretrain` takes: views, mixing, network, loss, gradient, SGD and `update()`. On a CPU it is
launched, with the small encoder, and images have no views, which would hide the mixing behind them; on a GPU it is
compiled and recorded: ResNet-18 on CIFAR's size with its views, and CovType's network. `network views` are counted: how
many samples an encoder sees in a step. SimCLR and SupCLR mixed see twice as many by the paper's definition (clean keys
besides mixed anchors), so their ratio is that of a pass and not of mixing.

A ratio is the median of ratios within a turn; `from` and `to` hold the median of all turns in 95 of 100 cases. On one
thread of a CPU time is processor time, which does not count while others have the core.
"""

import argparse
import json
import statistics
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import made_up
import torch
from clock import Ratio, add_device, make_step, ratio, table, take_device, taking_turns
from epoch import COVTYPE
from torch import Tensor, nn

from imix.data import Data
from imix.methods import Method
from imix.settings import METHODS, Settings

TARGET = 1.02


def network_views(take: Callable[[], Tensor], learner: Method) -> int:
    """Samples that the encoder, and that of the keys where there is one, see in a step."""
    seen = 0

    def count(module: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> None:
        nonlocal seen
        seen += len(given[0])

    with ExitStack() as hooks:
        for name in ("encoder", "key_encoder"):
            if hasattr(learner, name):
                hooks.callback(getattr(learner, name).register_forward_hook(count).remove)
        take()
    return seen


def verdict(found: Ratio) -> str:
    """Whether the target is met, as far as the measurement can tell."""
    return "met" if found.high <= TARGET else "missed" if found.low > TARGET else "open"


def main() -> None:
    """One line of JSON for each method and mixing, and a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_device(parser)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=[*METHODS])
    parser.add_argument("--data", nargs="+", choices=("rows", "images"), default=("rows", "images"))
    parser.add_argument("--rounds", type=int, default=11)
    given = parser.parse_args()
    device = take_device(given)
    on_gpu = device.type == "cuda"
    small = {"encoder": "small"}
    workloads: dict[str, tuple[Data, dict[str, Any]]] = {
        "rows": (made_up.covtype(), COVTYPE) if on_gpu else (made_up.rows(), small | {"batch_size": 256}),
        "images": (
            (made_up.pictures(), {"encoder": "resnet18", "batch_size": 256})
            if on_gpu
            else (made_up.pictures(augment="none"), small | {"batch_size": 64})
        ),
    }
    if not on_gpu:
        print("no GPU asked for: compiled and recorded steps of ResNet-18 and of CovType's network are left out")
    lines = []
    for name in given.data:
        data, how = workloads[name]
        for method in given.methods:
            torch._dynamo.reset()  # or objectives of one class wear out the compiler's patience
            ways, views = {}, {}
            for mix in ("none", "mixup", *(("cutmix",) if name == "images" else ())):
                settings = Settings(method=method, mix=mix, device=given.device, compile=False, cuda_graph=False, **how)
                views[mix] = network_views(*make_step(data, settings))
                ways[mix], _ = make_step(data, replace(settings, compile=on_gpu, cuda_graph=on_gpu))
            for way in ways.values() if on_gpu else ():
                for _ in range(5):  # the fourth is recorded
                    way()
            times = taking_turns(ways, device, given.rounds * (1 if on_gpu or name == "images" else 3))
            for mix in ways:
                found = ratio(times, mix, "none")
                more = views[mix] > views["none"]
                target = None if mix == "none" or more else verdict(found)
                line = {"data": name, "method": method, "mix": mix, "device": str(device)} | how
                line |= {"ms a step": round(1e3 * statistics.median(times[mix]), 2)} | found.told()
                line |= {"network views": views[mix], "target of 2 %": target}
                print(json.dumps(line), flush=True)
                if mix != "none":
                    seen = f"{views[mix]} for {views['none']}" + (", an extra pass" if more else "")
                    span = f"{found.low:.3f} to {found.high:.3f}"
                    lines.append([name, method, mix, f"{found.median:.3f}", span, seen, target or "-"])
    print(table(["data", "method", "mix", "step, none = 1", "95 %", "network views", "2 %"], lines))


if __name__ == "__main__":
    main()
