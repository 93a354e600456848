"""An epoch of `imix.pretrain`, with everything it includes, against the training step only in the same run.

    python benchmarks/epoch.py                                    # CIFAR's size, ResNet-18, N-pair + i-Mix
    python benchmarks/epoch.py --encoder resnet50 --modes compiled-graph
    python benchmarks/epoch.py --data covtype --method moco       # the paper's network on rows like CovType's

The step-only variant is that of `imix.bench`: mixing, forward, backward and SGD on views made in advance, in bf16 and
channels last. Both are measured in four modes: eager, as a CUDA graph (graph), compiled, and both (compiled-graph).
Needs a GPU.
"""

import argparse
import json
import statistics
from typing import Any

import synthetic
import torch
from timing import format_table

import imix
from imix.data import Data
from imix.settings import ResolvedSettings

MODES: dict[str, dict[str, Any]] = {
    "eager": {"compile": False, "cuda_graph": False},
    "graph": {"compile": False, "cuda_graph": True},
    "compiled": {"compile": True, "cuda_graph": False},
    "compiled-graph": {"compile": True, "cuda_graph": True},
}
COVTYPE: dict[str, Any] = {"encoder": "mlp", "batch_size": 512, "alpha": 2.0, "temperature": 0.1, "head": "mlpbn"}


def epoch_seconds(data: Data, settings: ResolvedSettings) -> tuple[float, float]:
    """Return the seconds of the median epoch of a run, and of its first epoch."""
    steps = len(data.train) // settings.batch_size
    run = imix.pretrain(data, settings, progress=False)
    seconds, previous_step = [0.0] * settings.epochs, 0
    for record in run.metrics:
        views = 2 * settings.batch_size * (record["step"] - previous_step)
        seconds[(record["step"] - 1) // steps] += views / record["views_per_second"]
        previous_step = record["step"]
    return statistics.median(seconds[1:]), seconds[0]


def main() -> None:
    """Print a line of JSON for each mode, and a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=("images", "covtype"), default="images")
    parser.add_argument("--encoder", help="default: resnet18, or the paper's network for covtype")
    parser.add_argument("--method", default="npair")
    parser.add_argument("--mix", default="mixup")
    parser.add_argument("--samples", type=int, help="default: as many as CIFAR-10 or CovType")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=[*MODES])
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("this benchmark needs a GPU")
        return
    options: dict[str, Any]
    if args.data == "images":
        data, options = synthetic.random_images(args.samples or 50_000), {"encoder": "resnet18"}
    else:
        data, options = synthetic.random_covtype(args.samples or 15_120), COVTYPE
    options = options | {"method": args.method, "mix": args.mix} | ({"encoder": args.encoder} if args.encoder else {})
    rows = []
    for mode in args.modes:
        settings = ResolvedSettings(epochs=args.epochs, **options, **MODES[mode])
        step_only = imix.bench(data, settings, progress=False).step_only
        seconds, first = epoch_seconds(data, settings)
        steps, views_per_step = len(data.train) // settings.batch_size, 2 * settings.batch_size
        views_per_second = steps * views_per_step / seconds
        measured = {
            "mode": mode,
            "seconds per epoch": round(seconds, 3),
            "ms per step": round(1e3 * seconds / steps, 2),
            "views per second": round(views_per_second),
            "views per second, step only": round(step_only),
            "relative to step only": round(views_per_second / step_only, 3),
        }
        print(json.dumps({"data": data.name} | options | measured | {"first epoch": round(first, 1)}), flush=True)
        rows.append([*measured.values()])
    print(format_table([*measured], rows))


if __name__ == "__main__":
    main()
