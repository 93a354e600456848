"""Throughput of `imix.embed` with one process and with several, started by torchrun.

    python benchmarks/embed_ranks.py --ranks 1 2 --rounds 3

Every process has one CPU thread, or its own GPU. The numbers of ranks alternate in each round, so that other load on
the machine affects all of them. The time includes connecting the ranks and collecting the features on rank 0, but not
starting Python.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import torch
from timing import format_table

import imix

SAMPLES = {"cpu": 32 * 1024, "cuda": 512 * 1024}


def embed_once(device: str, encoder_name: str) -> None:
    """Embed as one of the ranks; rank 0 prints the samples per second."""
    images = torch.rand(SAMPLES[device], 3, 32, 32, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    encoder = imix.encoders.build(encoder_name, (3, 32, 32)).eval()
    imix.embed(encoder, images[: 1024 * 8], device="auto" if device == "cuda" else device)  # warm up
    started = time.perf_counter()
    features = imix.embed(encoder, images, device="auto" if device == "cuda" else device)
    if os.environ["RANK"] == "0":
        assert len(features) == len(images)
        print(len(images) / (time.perf_counter() - started))


def main() -> None:
    """Measure and print all numbers of ranks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=SAMPLES)
    parser.add_argument("--encoder", default="small")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    if "RANK" in os.environ:
        return embed_once(args.device, args.encoder)
    speeds: dict[int, list[float]] = {n: [] for n in args.ranks}
    for _ in range(args.rounds):
        for n in args.ranks:
            torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(n)]
            command = [*torchrun, __file__, "--device", args.device, "--encoder", args.encoder]
            environment = os.environ | {"OMP_NUM_THREADS": "1"}
            output = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
            speeds[n].append(float(output))
            print(json.dumps({"ranks": n, "samples per second": round(speeds[n][-1])}), flush=True)
    first = speeds[args.ranks[0]]
    rows = [
        [
            n,
            f"{statistics.median(each):,.0f}",
            f"{statistics.median(a / b for a, b in zip(each, first, strict=True)):.2f}",
        ]
        for n, each in speeds.items()
    ]
    print(format_table(["ranks", "samples per second", "speedup"], rows))


if __name__ == "__main__":
    main()
