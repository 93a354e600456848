"""Communication between ranks in a training step: collectives and bytes, counted with two ranks, against a formula.

    python benchmarks/communication.py                      # counts with gloo on a CPU; needs no GPU
    python benchmarks/communication.py --encoder resnet50 --batch 256 --ranks 8 64

The first rows are counted, with few samples per rank. The others apply the formula to the batch size and numbers of
ranks that were passed. Bytes are those that one rank contributes to the collectives of a step.
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
from timing import format_table
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import imix
from imix.encoders import build
from imix.methods import Method
from imix.runtime.distributed import wrap_ddp
from imix.runtime.sync_bn import convert_sync_bn

METHODS = {"npair": imix.NPair, "simclr": imix.SimCLR, "moco": imix.MoCo, "byol": imix.BYOL}
SHAPE, SAMPLES, DIM = (3, 32, 32), 4, 128
BYTES_PER_FLOAT = 4


@dataclass(frozen=True)
class Traffic:
    """Collectives of a step, without those of gradients (one per 25 MiB), and bytes by kind."""

    calls: int
    gradients: int
    statistics: int
    keys: int

    @property
    def total(self) -> int:
        """Bytes per step."""
        return self.gradients + self.statistics + self.keys


def build_learner(method: str, encoder: str) -> Method:
    """Return a method with i-Mix."""
    return METHODS[method](build(encoder, SHAPE), imix.MixUp(), dim=DIM)


def expected_traffic(learner: Method, samples: int, ranks: int, device: str = "cuda") -> Traffic:
    """Return the traffic by the formula, with synchronized batch norm.

    N-pair, for example, sends n D numbers for its keys and W n D for their gradient.
    """
    trained = [parameter for parameter in learner.parameters() if parameter.requires_grad]
    channels: dict[bool, list[int]] = {True: [], False: []}  # of batch norm layers, by whether they are trained
    for module in learner.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            channels[next(module.parameters()).requires_grad].append(module.num_features)

    def backward(c: int) -> int:
        """Numbers in the backward pass of a layer: two sums on GPUs; on CPUs, the gradient of all ranks' statistics."""
        return 2 * c if device == "cuda" else ranks * (2 * c + 1)

    # Forward: mean, variance and count. Backward in trained layers only.
    statistics = sum(2 * c + 1 + backward(c) * is_trained for is_trained, layers in channels.items() for c in layers)
    calls = sum((1 + is_trained) * len(layers) for is_trained, layers in channels.items())
    method = type(learner).__name__.lower()
    keys = {"npair": samples, "simclr": 2 * samples, "moco": samples}.get(method, 0) * DIM
    keys_have_gradient = method in ("npair", "simclr")
    return Traffic(
        calls + (1 if keys else 0) + (1 if keys_have_gradient else 0),
        BYTES_PER_FLOAT * sum(parameter.numel() for parameter in trained),
        BYTES_PER_FLOAT * statistics,
        BYTES_PER_FLOAT * keys * (1 + ranks * keys_have_gradient),
    )


def _count_gradients(
    n_bytes: Counter[str],
    bucket: dist.GradBucket,  # type: ignore[name-defined]
) -> torch.futures.Future[Tensor]:
    """Communication hook of DDP: count the bytes of a bucket instead of reducing it."""
    n_bytes["gradients"] += bucket.buffer().nbytes
    future: torch.futures.Future[Tensor] = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def _count_on_rank(rank: int, ranks: int, encoder: str, folder: str) -> None:
    """Take a step of each method on one rank, and count all collectives."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "RANK": str(rank), "WORLD_SIZE": str(ranks)}
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    torch.set_num_threads(1)
    traffic = {}
    for name in METHODS:
        torch.manual_seed(0)
        learner = convert_sync_bn(build_learner(name, encoder), torch.device("cpu")).train()
        assert isinstance(learner, Method)
        n_bytes: Counter[str] = Counter()
        calls: Counter[str] = Counter()
        wrapped = wrap_ddp(learner)
        assert isinstance(wrapped, DistributedDataParallel)
        wrapped.register_comm_hook(n_bytes, _count_gradients)
        originals = dist.all_reduce, dist.all_gather

        def count(x: Tensor, n_bytes: Any = n_bytes, calls: Any = calls) -> None:
            kind = "keys" if x.dim() > 1 else "statistics"
            n_bytes[kind] += x.nbytes
            calls[kind] += 1

        def all_reduce(x: Tensor, *args: Any, originals: Any = originals, count: Any = count) -> Any:
            count(x)
            return originals[0](x, *args)

        def all_gather(parts: Any, x: Tensor, originals: Any = originals, count: Any = count) -> Any:
            count(x)
            return originals[1](parts, x)

        dist.all_reduce, dist.all_gather = all_reduce, all_gather  # type: ignore[assignment]
        try:
            wrapped(torch.randn(SAMPLES, *SHAPE), torch.randn(SAMPLES, *SHAPE)).backward()
            learner.update()
        finally:
            dist.all_reduce, dist.all_gather = originals
        del wrapped  # refers to the process group
        traffic[name] = [calls.total(), *(n_bytes[kind] for kind in ("gradients", "statistics", "keys"))]
    if rank == 0:
        Path(folder, "traffic.json").write_text(json.dumps(traffic))
    dist.barrier()  # a rank that leaves while another one still communicates may abort it
    dist.destroy_process_group()


def count_traffic(encoder: str = "small", ranks: int = 2) -> dict[str, Traffic]:
    """Count collectives and bytes of a step of each method, with several ranks on this machine."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(_count_on_rank, (ranks, encoder, folder), ranks)  # type: ignore[attr-defined,no-untyped-call]
        traffic = json.loads(Path(folder, "traffic.json").read_text())
    return {name: Traffic(*numbers) for name, numbers in traffic.items()}


def main() -> None:
    """Print the counted traffic next to the formula, and the formula for more ranks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", default="resnet18")
    parser.add_argument("--batch", type=int, default=256, help="samples per rank")
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 64])
    args = parser.parse_args()
    rows: list[list[object]] = []
    for name, traffic in count_traffic(args.encoder).items():
        expected = expected_traffic(build_learner(name, args.encoder), SAMPLES, 2, "cpu")
        line = {"method": name, "ranks": 2, "samples": SAMPLES, "counted": vars(traffic), "formula": vars(expected)}
        print(json.dumps(line | {"equal": traffic == expected}), flush=True)
        verdict = "equals the formula" if traffic == expected else "differs from the formula"
        rows.append([name, 2, SAMPLES, *vars(traffic).values(), f"counted, {verdict}"])
    for ranks in args.ranks:
        for name in METHODS:
            expected = expected_traffic(build_learner(name, args.encoder), args.batch, ranks)
            print(json.dumps({"method": name, "ranks": ranks, "samples": args.batch} | vars(expected)), flush=True)
            rows.append([name, ranks, args.batch, *vars(expected).values(), "formula"])
    print(format_table(["method", "ranks", "samples", *vars(expected), "source"], rows))


if __name__ == "__main__":
    main()
