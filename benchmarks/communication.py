"""What ranks tell each other in a training step: collectives and bytes, counted with two ranks, against the formula.

    python benchmarks/communication.py                      # counts with gloo on a CPU; needs no GPU
    python benchmarks/communication.py --encoder resnet50 --batch 256 --ranks 8 64

The first lines are counted, with few samples a rank; the others are the formula at the batch and ranks that are asked
for. Bytes are what one rank brings to the collectives of a step.
"""

import argparse
import json
import os
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from clock import table
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import imix
from imix.distributed import SyncBatchNorm, joined
from imix.encoders import build
from imix.methods import Method

METHODS = {"npair": imix.NPair, "simclr": imix.SimCLR, "moco": imix.MoCo, "byol": imix.BYOL}
SHAPE, SAMPLES, DIM, FLOAT = (3, 32, 32), 4, 128, 4


@dataclass(frozen=True)
class Traffic:
    """Collectives of a step, but for those of gradients, each of which takes up to 25 MiB; and bytes by their kind."""

    calls: int
    gradients: int
    statistics: int
    keys: int

    @property
    def total(self) -> int:
        """Bytes of a step."""
        return self.gradients + self.statistics + self.keys


def make(method: str, encoder: str) -> Method:
    """A learner with i-Mix."""
    return METHODS[method](build(encoder, SHAPE), imix.MixUp(), dim=DIM)


def expected(learner: Method, samples: int, ranks: int) -> Traffic:
    """By the formula, with synced batch statistics: for N-pair n D of keys and W n D of their gradient, and so on."""
    trained = [parameter for parameter in learner.parameters() if parameter.requires_grad]
    channels: dict[bool, list[int]] = {True: [], False: []}
    for part in learner.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            learns = next(part.parameters()).requires_grad
            channels[learns].append(part.num_features)
    # Forward: mean, scatter and number; backward: two sums, where the layer learns.
    statistics = sum(2 * c + 1 + 2 * c * learns for learns, layers in channels.items() for c in layers)
    calls = sum((1 + learns) * len(layers) for learns, layers in channels.items())
    kind = type(learner).__name__.lower()
    keys = {"npair": samples, "simclr": 2 * samples, "moco": samples}.get(kind, 0) * DIM
    with_gradient = kind in ("npair", "simclr")
    return Traffic(
        calls + (1 if keys else 0) + (1 if with_gradient else 0),
        FLOAT * sum(parameter.numel() for parameter in trained),
        FLOAT * statistics,
        FLOAT * keys * (1 + ranks * with_gradient),
    )


def _reduced(
    bytes_of: Counter[str],
    bucket: dist.GradBucket,  # type: ignore[name-defined]
) -> torch.futures.Future[Tensor]:
    bytes_of["gradients"] += bucket.buffer().nbytes
    work: torch.futures.Future[Tensor] = torch.futures.Future()
    work.set_result(bucket.buffer())
    return work


def count(rank: int, ranks: int, encoder: str, folder: str) -> None:
    """One rank: a step of each method, with every collective counted."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "RANK": str(rank), "WORLD_SIZE": str(ranks)}
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=ranks)
    torch.set_num_threads(1)
    found = {}
    for name in METHODS:
        torch.manual_seed(0)
        learner = SyncBatchNorm.convert(make(name, encoder)).train()
        assert isinstance(learner, Method)
        bytes_of: Counter[str] = Counter()
        calls: Counter[str] = Counter()
        wrapped = joined(learner)
        assert isinstance(wrapped, DistributedDataParallel)
        wrapped.register_comm_hook(bytes_of, _reduced)
        kept = dist.all_reduce, dist.all_gather

        def all_reduce(x: Tensor, *how: Any, kept: Any = kept, bytes_of: Any = bytes_of, calls: Any = calls) -> Any:
            kind = "keys" if x.dim() > 1 else "statistics"
            bytes_of[kind] += x.nbytes
            calls[kind] += 1
            return kept[0](x, *how)

        def all_gather(parts: Any, x: Tensor, kept: Any = kept, bytes_of: Any = bytes_of, calls: Any = calls) -> Any:
            kind = "keys" if x.dim() > 1 else "statistics"
            bytes_of[kind] += x.nbytes
            calls[kind] += 1
            return kept[1](parts, x)

        dist.all_reduce, dist.all_gather = all_reduce, all_gather  # type: ignore[assignment]
        try:
            wrapped(torch.randn(SAMPLES, *SHAPE), torch.randn(SAMPLES, *SHAPE)).backward()
            learner.update()
        finally:
            dist.all_reduce, dist.all_gather = kept
        sizes = [bytes_of[kind] for kind in ("gradients", "statistics", "keys")]
        found[name] = [calls.total(), *sizes]
    if rank == 0:
        Path(folder, "found.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def counted(encoder: str = "small", ranks: int = 2) -> dict[str, Traffic]:
    """Collectives and bytes of a step of each method, with so many ranks on this machine."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(count, (ranks, encoder, folder), ranks)  # type: ignore[attr-defined,no-untyped-call]
        found = json.loads(Path(folder, "found.json").read_text())
    return {name: Traffic(*numbers) for name, numbers in found.items()}


def main() -> None:
    """Print what was counted beside the formula, and the formula at larger size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", default="resnet18")
    parser.add_argument("--batch", type=int, default=256, help="samples of a rank")
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 64])
    given = parser.parse_args()
    lines: list[list[object]] = []
    for name, traffic in counted(given.encoder).items():
        formula = expected(make(name, given.encoder), SAMPLES, 2)
        line = {"method": name, "ranks": 2, "samples": SAMPLES, "counted": vars(traffic), "formula": vars(formula)}
        print(json.dumps(line | {"alike": traffic == formula}), flush=True)
        lines.append([name, 2, SAMPLES, *vars(traffic).values(), "as counted" if traffic == formula else "differs"])
    for ranks in given.ranks:
        for name in METHODS:
            formula = expected(make(name, given.encoder), given.batch, ranks)
            print(json.dumps({"method": name, "ranks": ranks, "samples": given.batch} | vars(formula)), flush=True)
            lines.append([name, ranks, given.batch, *vars(formula).values(), ""])
    print(table(["method", "ranks", "samples", *vars(formula), "formula"], lines))


if __name__ == "__main__":
    main()
