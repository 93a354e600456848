"""Time of a training step of the paper's network on rows like CovType's: launched, compiled, recorded as a CUDA graph.

    python benchmarks/covtype_step.py

Needs a GPU; says so where there is none.
"""

import json
import statistics
import time

import torch

import imix
from imix.data import Data, Table, Tensors
from imix.data.columns import Categorical, Measured

METHODS = ("npair", "moco", "byol")
MODES = {
    "launched": {"compile": False, "cuda_graph": False},
    "compiled": {"compile": True, "cuda_graph": False},
    "recorded": {"compile": False, "cuda_graph": True},
    "compiled and recorded": {"compile": True, "cuda_graph": True},
}
EPOCHS = 12


def rows() -> Data:
    """15,120 random rows with CovType's 10 numeric and 4 + 40 categorical columns."""
    numeric = [Measured(f"n{at}", "numeric", ("",), (0.0,), (1.0,), (0.0,), gaps=False) for at in range(10)]
    flags = [Categorical(f"c{size}", tuple(map(str, range(size))), numbers=False) for size in (4, 40)]
    x = torch.randn(15_120, 54, generator=torch.Generator().manual_seed(0))
    return Data("rows", Tensors(x), table=Table((*numeric, *flags)))


def main() -> None:
    """One line of JSON for each method and mode."""
    if not torch.cuda.is_available():
        print("no GPU here: nothing to measure")
        return
    data = rows()
    for method in METHODS:
        for mode, settings in MODES.items():
            started = time.monotonic()
            run = imix.pretrain(
                data,
                imix.Settings(
                    method=method,
                    alpha=2.0,
                    temperature=0.1,
                    head="mlpbn",
                    encoder="mlp",
                    batch_size=512,
                    epochs=EPOCHS,
                    **settings,
                ),
                progress=False,
            )
            rate = statistics.median(record["views_per_second"] for record in run.metrics[-EPOCHS // 2 :])
            found = {"ms a step": round(1e3 * 2 * 512 / rate, 2), "seconds": round(time.monotonic() - started, 1)}
            print(json.dumps({"method": method, "mode": mode} | found), flush=True)


if __name__ == "__main__":
    main()
