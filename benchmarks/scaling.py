"""How time and peak memory grow when one size doubles and all others stay the same.

    python benchmarks/scaling.py                          # on the GPU, if there is one
    python benchmarks/scaling.py --device cpu --only batch queue ranks

rows: an epoch of `imix.pretrain`, with everything it includes. batch, queue, dim: a training step (N-pair; MoCo for the
queue). classes: a step of SupCLR and of Sup-N-pair, and two epochs of linear evaluation. ranks: a step on this many
gloo processes, each with its own samples and one thread, and the bytes that a rank contributes to collectives (by the
formula of communication.py).

On a CPU each measurement runs in its own process, forked after the imports, and sizes alternate. Time is the processor
time of its single thread (for ranks, wall time); memory is the peak above the memory at the fork. On a GPU, they are
wall time and torch's peak. Growth is relative to half the size: 1 means that the size does not matter, 2 that the cost
is proportional to it.
"""

import argparse
import json
import multiprocessing
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from communication import SHAPE, build_learner, expected_traffic
from synthetic import random_rows
from timing import build_step, format_table
from torch import Tensor, nn

import imix
from imix.data import TensorSource
from imix.probes.features import EncodedSource
from imix.probes.linear_paper import LinearPaper, linear_paper
from imix.runtime.distributed import wrap_ddp
from imix.runtime.sync_bn import convert_sync_bn
from imix.settings import ResolvedSettings
from imix.train.step import build_optimizer

SIZES: dict[str, dict[str, list[int]]] = {
    "cpu": {
        "rows": [2048, 4096, 8192, 16384],
        "batch": [512, 1024, 2048, 4096, 8192],
        "queue": [4096, 8192, 16384, 32768, 65536],
        "dim": [64, 128, 256, 512],
        "supclr, classes": [32, 64, 128, 256, 512],
        "supnpair, classes": [32, 64, 128, 256, 512],
        "linear, classes": [32, 64, 128, 256],
        "ranks": [1, 2, 4],
    },
    "cuda": {
        "rows": [131072, 262144, 524288, 1048576],
        "batch": [1024, 2048, 4096, 8192, 16384, 32768],
        "queue": [4096, 8192, 16384, 32768, 65536],
        "dim": [64, 128, 256, 512],
        "supclr, classes": [32, 64, 128, 256, 512, 1024],
        "supnpair, classes": [32, 64, 128, 256, 512, 1024],
        "linear, classes": [64, 128, 256, 512, 1024],
    },
}
SAMPLES_PER_RANK = 32
STEPS_PER_RANK = 5


def build_workload(name: str, size: int, device: torch.device) -> Callable[[], object]:
    """Return the function to time."""
    options: dict[str, Any] = {"device": str(device)}
    if name == "rows":
        settings = ResolvedSettings(epochs=1, batch_size=512, **options)
        data = random_rows(size, 2)
        return lambda: imix.pretrain(data, settings, progress=False)
    if name == "batch":
        return build_step(random_rows(size, 2), ResolvedSettings(batch_size=size, **options))[0]
    if name == "queue":
        return build_step(random_rows(), ResolvedSettings(method="moco", queue=size, **options))[0]
    if name == "dim":
        return build_step(random_rows(), ResolvedSettings(dim=size, batch_size=512, **options))[0]
    classes = size
    if name == "linear, classes":
        features, labels = torch.randn(2048, 256).to(device), (torch.arange(2048) % classes).to(device)
        encoded = EncodedSource(nn.Identity(), TensorSource(features, labels), device)
        return lambda: linear_paper(encoded, encoded, classes, LinearPaper(epochs=2))
    options["method"] = name.split(",")[0]
    return build_step(random_rows(1024, classes), ResolvedSettings(batch_size=512, **options))[0]


def measure(name: str, size: int, device: torch.device, seconds: float) -> tuple[float, float]:
    """Return the median seconds per call, and the peak memory in MiB."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    else:
        torch.set_num_threads(1)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    function = build_workload(name, size, device)
    function()
    times: list[float] = []
    while sum(times) < seconds:
        start = clock()
        function()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(clock() - start)
    if device.type == "cuda":
        return statistics.median(times), (torch.cuda.max_memory_allocated() - before) / 2**20
    return statistics.median(times), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**10


def _measure_in_process(pipe: Any, name: str, size: int, seconds: float) -> None:
    pipe.send(measure(name, size, torch.device("cpu"), seconds))


def _measure_on_rank(pipe: Any, rank: int, ranks: int, folder: str) -> None:
    """Time steps on one of several ranks; rank 0 sends wall seconds, MiB and processor seconds."""
    torch.set_num_threads(1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    torch.manual_seed(0)
    learner = build_learner("npair", "small").train()
    convert_sync_bn(learner, torch.device("cpu"))
    optimizer = build_optimizer(learner, ResolvedSettings(), torch.device("cpu"))
    wrapped = wrap_ddp(learner)
    views = [torch.randn(SAMPLES_PER_RANK, *SHAPE) for _ in range(2)]

    def take_step() -> None:
        loss: Tensor = wrapped(*views)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        learner.update()

    take_step()
    times = []
    for _ in range(STEPS_PER_RANK):
        dist.barrier()
        wall_start, processor_start = time.perf_counter(), time.process_time()
        take_step()
        times.append((time.perf_counter() - wall_start, time.process_time() - processor_start))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if rank == 0:
        wall_times, processor_times = zip(*times, strict=True)
        pipe.send((statistics.median(wall_times), (peak - before) / 2**10, statistics.median(processor_times)))
    dist.destroy_process_group()


def run_processes(target: Callable[..., None], argument_lists: list[tuple[Any, ...]]) -> tuple[float, ...]:
    """Call a function in one forked process per argument list, and return what the first one sends."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    processes = [context.Process(target=target, args=(sender, *arguments)) for arguments in argument_lists]
    for process in processes:
        process.start()
    measured: tuple[float, ...] = receiver.recv() if receiver.poll(300) else ()
    for process in processes:
        process.join(30)
    if not measured:
        raise RuntimeError(f"no measurement was received from {target.__name__}{argument_lists[0]}")
    return measured


def measure_size(name: str, size: int, device: torch.device, seconds: float) -> tuple[float, ...]:
    """Measure one size once."""
    if name == "ranks":
        with tempfile.TemporaryDirectory() as folder:
            return run_processes(_measure_on_rank, [(rank, size, folder) for rank in range(size)])
    if device.type == "cpu":
        return run_processes(_measure_in_process, [(name, size, seconds)])
    return measure(name, size, device, seconds)


def main() -> None:
    """Print a line of JSON for each size, and a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="sizes whose names contain NAME; default: all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.3, help="minimum duration of a measurement")
    args = parser.parse_args()
    device = torch.device(args.device)
    selected = SIZES[device.type]
    if args.only:
        selected = {name: sizes for name, sizes in selected.items() if any(part in name for part in args.only)}
    if device.type == "cuda":
        print("skipped ranks, which are processes on a CPU")
    rows = []
    for name, sizes in selected.items():
        measured: dict[int, list[tuple[float, ...]]] = {size: [] for size in sizes}
        for _ in range(args.rounds):
            for size in sizes:
                measured[size].append(measure_size(name, size, device, args.seconds))
        previous: tuple[float, float] | None = None
        for size in sizes:
            medians = [statistics.median(column) for column in zip(*measured[size], strict=True)]
            seconds, memory = medians[:2]
            line: dict[str, object] = {"doubled": name, "size": size, "device": str(device)}
            line |= {"ms": round(1e3 * seconds, 2), "MiB": round(memory, 1)}
            growth = ["", ""]
            if previous is not None:
                growth = [f"{seconds / previous[0]:.2f}", f"{memory / previous[1]:.2f}"]
                line |= {"growth of time": float(growth[0]), "growth of memory": float(growth[1])}
            note = ""
            if name == "ranks":
                learner = build_learner("npair", "small")
                traffic = expected_traffic(learner, SAMPLES_PER_RANK, size).total if size > 1 else 0
                processor_ms = round(1e3 * medians[2], 2)
                line |= {"bytes per rank": traffic, "processor ms per rank": processor_ms}
                note = f"{traffic:,} bytes and {processor_ms} ms of processor time per rank"
            print(json.dumps(line), flush=True)
            rows.append([name, f"{size:,}", f"{1e3 * seconds:.1f}", growth[0], f"{memory:.0f}", growth[1], note])
            previous = seconds, memory
    print(format_table(["doubled", "size", "ms", "growth", "MiB", "growth", ""], rows))


if __name__ == "__main__":
    main()
