"""An epoch of `imix.pretrain`, everything included, against the bare step in the same run.

    python benchmarks/epoch.py                                    # CIFAR's size, ResNet-18, N-pair + i-Mix
    python benchmarks/epoch.py --encoder resnet50 --modes "compiled and recorded"
    python benchmarks/epoch.py --data covtype --method moco       # the paper's network on rows like CovType's

The bare step is that of `imix.bench`: its views stay in place; mixing, network, loss, gradient and SGD, bf16, channels
last. Both are taken in each of four ways: launched kernel by kernel, compiled, recorded as a CUDA graph, and both.
Needs a GPU; says so where there is none.
"""

import argparse
import json
import statistics
from typing import Any

import made_up
import torch
from clock import table

import imix
from imix.data import Data

MODES: dict[str, dict[str, Any]] = {
    "launched": {"compile": False, "cuda_graph": False},
    "recorded": {"compile": False, "cuda_graph": True},
    "compiled": {"compile": True, "cuda_graph": False},
    "compiled and recorded": {"compile": True, "cuda_graph": True},
}
COVTYPE: dict[str, Any] = {"encoder": "mlp", "batch_size": 512, "alpha": 2.0, "temperature": 0.1, "head": "mlpbn"}


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
    """One line of JSON for each way of taking steps, and a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=("pictures", "covtype"), default="pictures")
    parser.add_argument("--encoder", help="by default resnet18, or the paper's network")
    parser.add_argument("--method", default="npair")
    parser.add_argument("--mix", default="mixup")
    parser.add_argument("--samples", type=int, help="by default as many as CIFAR-10 or CovType has")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=[*MODES])
    given = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU here: nothing to measure")
        return
    how: dict[str, Any]
    if given.data == "pictures":
        data, how = made_up.pictures(given.samples or 50_000), {"encoder": "resnet18"}
    else:
        data, how = made_up.covtype(given.samples or 15_120), COVTYPE
    how = how | {"method": given.method, "mix": given.mix} | ({"encoder": given.encoder} if given.encoder else {})
    lines = []
    for mode in given.modes:
        settings = imix.Settings(epochs=given.epochs, **how, **MODES[mode])
        bare = imix.bench(data, settings, progress=False).bare
        seconds, first = epoch(data, settings)
        steps, views = len(data.train) // settings.batch_size, 2 * settings.batch_size
        rate = steps * views / seconds
        found = {"way": mode, "seconds an epoch": round(seconds, 3), "ms a step": round(1e3 * seconds / steps, 2)}
        found |= {"views per second": round(rate), "bare step": round(bare), "of the bare step": round(rate / bare, 3)}
        print(json.dumps({"data": data.name} | how | found | {"first epoch": round(first, 1)}), flush=True)
        lines.append([*found.values()])
    print(table([*found], lines))


if __name__ == "__main__":
    main()
