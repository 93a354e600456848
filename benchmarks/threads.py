"""Time of a training step with one torch thread and with more, on an idle machine and beside processes that burn CPU.

    python benchmarks/threads.py --competitors 0 2
    python benchmarks/threads.py --models mlp conv --threads 1 2 4 --competitors 0 4

The step is that of `imix.pretrain` with the default method. Thread counts take turns in each round, so other load
affects all of them alike. The script starts the competing processes, and ends them.
"""

import argparse
import multiprocessing
import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from timing import build_step, format_table

import imix
from imix.settings import ResolvedSettings

MODELS = {  # encoder, shape of a sample, batch size
    "mlp": ("small", (20,), 256),
    "mlp, batch 32": ("small", (20,), 32),
    "conv, 8 x 8": ("small", (1, 8, 8), 64),
    "conv, 32 x 32": ("small", (3, 32, 32), 64),
    "resnet18, 32 x 32": ("resnet18", (3, 32, 32), 16),
}


def burn() -> None:
    """Use one CPU until the process is ended."""
    while True:
        pass


@contextmanager
def competitors(n: int) -> Iterator[None]:
    """Run n processes that burn CPU, and end them."""
    processes = [multiprocessing.get_context("spawn").Process(target=burn, daemon=True) for _ in range(n)]
    for process in processes:
        process.start()
    try:
        time.sleep(1 if n else 0)
        yield
    finally:
        for process in processes:
            process.terminate()
            process.join()


def measure(model: str, threads: list[int], rounds: int, seconds: float) -> dict[int, float]:
    """Return the median milliseconds per step for each number of threads."""
    encoder, shape, batch_size = MODELS[model]
    data = imix.data.load(torch.randn(2 * batch_size, *shape))
    step, _ = build_step(data, ResolvedSettings(batch_size=batch_size, encoder=encoder, device="cpu"))
    times: dict[int, list[float]] = {n: [] for n in threads}
    for _ in range(rounds):
        for n in threads:
            torch.set_num_threads(n)
            step()  # the first step with other threads starts them
            start, steps = time.perf_counter(), 0
            while time.perf_counter() - start < seconds:
                step()
                steps += 1
            times[n].append(1e3 * (time.perf_counter() - start) / steps)
    return {n: statistics.median(values) for n, values in times.items()}


def main() -> None:
    """Print a table of the milliseconds per step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--competitors", nargs="+", type=int, default=[0, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="per thread count and round")
    args = parser.parse_args()
    rows = []
    for n in args.competitors:
        with competitors(n):
            load = os.getloadavg()[0]
            for model in args.models:
                times = measure(model, args.threads, args.rounds, args.seconds)
                rows.append([model, n, f"{load:.1f}", *(f"{times[threads]:.1f}" for threads in args.threads)])
                print(*rows[-1], sep=", ", flush=True)
    print(format_table(["model", "competitors", "load", *(f"{n} threads, ms" for n in args.threads)], rows))


if __name__ == "__main__":
    main()
