"""How cost grows with size: time and peak memory while one size doubles and all others stay.

    python benchmarks/sizes.py                          # on the GPU where there is one
    python benchmarks/sizes.py --device cpu --what batch queue ranks

rows: an epoch of `imix.pretrain`, everything included. batch, queue, dim: a training step (N-pair; MoCo for the queue).
classes: a step of SupCLR and of Sup-N-pair, and two epochs of linear evaluation. ranks: a step on as many gloo
processes, each with its own samples and one thread, and the bytes that a rank brings to collectives (the formula of
communication.py).

On a CPU each measurement is a process of its own, forked after the imports; sizes take turns. Time is the processor
time of its one thread (of ranks it is wall time), memory the peak of what it held beyond what it had at the fork. On a
GPU it is wall time and torch's peak. Growth is from a size to its double: 1 means that the size costs nothing, 2 that
cost is proportional to it.
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
from clock import make_step, table
from communication import SHAPE, expected, make
from made_up import rows
from torch import Tensor, nn

import imix
from imix.data import Tensors
from imix.distributed import SyncBatchNorm, joined
from imix.evaluation.features import Encoded
from imix.evaluation.linear import Linear, linear
from imix.settings import Settings
from imix.train.step import make_optimizer

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
COLUMNS, SAMPLES_OF_A_RANK = 54, 32


def work(what: str, size: int, device: torch.device) -> Callable[[], object]:
    """What is timed."""
    on: dict[str, Any] = {"device": str(device)}
    if what == "rows":
        settings = Settings(epochs=1, batch_size=512, **on)
        data = rows(size, 2)
        return lambda: imix.pretrain(data, settings, progress=False)
    if what == "batch":
        return make_step(rows(size, 2), Settings(batch_size=size, **on))[0]
    if what == "queue":
        return make_step(rows(), Settings(method="moco", queue=size, **on))[0]
    if what == "dim":
        return make_step(rows(), Settings(dim=size, batch_size=512, **on))[0]
    classes = size
    if what == "linear, classes":
        source = Tensors(*(part.to(device) for part in (torch.randn(2048, 256), torch.arange(2048) % classes)))
        seen = Encoded(nn.Identity(), source, device)
        return lambda: linear(seen, seen, classes, Linear(epochs=2))
    on["method"] = what.split(",")[0]
    return make_step(rows(1024, classes), Settings(batch_size=512, **on))[0]


def measure(what: str, size: int, device: torch.device, seconds: float) -> tuple[float, float]:
    """Seconds of a call, and MiB at the peak."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    else:
        torch.set_num_threads(1)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    call = work(what, size, device)
    call()
    times: list[float] = []
    while sum(times) < seconds:
        started = clock()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(clock() - started)
    if device.type == "cuda":
        return statistics.median(times), (torch.cuda.max_memory_allocated() - before) / 2**20
    return statistics.median(times), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**10


def _send(pipe: Any, what: str, size: int, seconds: float) -> None:
    pipe.send(measure(what, size, torch.device("cpu"), seconds))


def _rank(pipe: Any, rank: int, ranks: int, folder: str, steps: int) -> None:
    """One of the processes that train together; the first sends what it found."""
    torch.set_num_threads(1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=ranks)
    torch.manual_seed(0)
    learner = make("npair", "small").train()
    SyncBatchNorm.convert(learner)
    optimizer = make_optimizer(learner, Settings(), torch.device("cpu"))
    wrapped = joined(learner)
    views = [torch.randn(SAMPLES_OF_A_RANK, *SHAPE) for _ in range(2)]

    def step() -> None:
        loss: Tensor = wrapped(*views)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        learner.update()

    step()
    times = []
    for _ in range(steps):
        dist.barrier()
        started, worked = time.perf_counter(), time.process_time()
        step()
        times.append((time.perf_counter() - started, time.process_time() - worked))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if rank == 0:
        walls, own = zip(*times, strict=True)
        pipe.send((statistics.median(walls), (peak - before) / 2**10, statistics.median(own)))
    dist.destroy_process_group()


def forked(target: Callable[..., None], *given: Any, processes: int = 1) -> tuple[float, ...]:
    """What a function sends from a process of its own, or the first of several."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    places = [(rank, processes) for rank in range(processes)] if target is _rank else [()]
    started = [context.Process(target=target, args=(theirs, *place, *given)) for place in places]
    for process in started:
        process.start()
    found: tuple[float, ...] = ours.recv() if ours.poll(300) else ()
    for process in started:
        process.join(30)
    if not found:
        raise RuntimeError(f"{given} gave nothing")
    return found


def main() -> None:
    """One line of JSON for each size, and a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--what", nargs="+", help="parts of names in the table; by default all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.3, help="of a measurement, at least")
    given = parser.parse_args()
    device = torch.device(given.device)
    wanted = SIZES[device.type]
    if given.what:
        wanted = {what: sizes for what, sizes in wanted.items() if any(part in what for part in given.what)}
    if device.type == "cpu":
        print("no GPU asked for: sizes and memory of a GPU are left out")
    else:
        print("ranks are processes on a CPU: left out here")
    lines = []
    for what, sizes in wanted.items():
        found: dict[int, list[tuple[float, ...]]] = {size: [] for size in sizes}
        for _ in range(given.rounds):
            for size in sizes:
                if what == "ranks":
                    with tempfile.TemporaryDirectory() as folder:
                        found[size].append(forked(_rank, folder, 5, processes=size))
                elif device.type == "cpu":
                    found[size].append(forked(_send, what, size, given.seconds))
                else:
                    found[size].append(measure(what, size, device, given.seconds))
        before: tuple[float, float] | None = None
        for size in sizes:
            seconds, memory = (statistics.median(column) for column in list(zip(*found[size], strict=True))[:2])
            line: dict[str, object] = {"what": what, "size": size, "device": str(device)}
            line |= {"ms": round(1e3 * seconds, 2), "MiB": round(memory, 1)}
            growth = ["", ""]
            if before is not None:
                growth = [f"{seconds / before[0]:.2f}", f"{memory / before[1]:.2f}"]
                line |= {"growth of time": float(growth[0]), "growth of memory": float(growth[1])}
            note = ""
            if what == "ranks":
                traffic = expected(make("npair", "small"), SAMPLES_OF_A_RANK, size).total if size > 1 else 0
                line["bytes a rank brings"] = traffic
                line["ms of its own processor"] = round(1e3 * statistics.median(own for _, _, own in found[size]), 2)
                note = f"{traffic:,} bytes, {line['ms of its own processor']} ms of processor"
            print(json.dumps(line), flush=True)
            lines.append([what, f"{size:,}", f"{1e3 * seconds:.1f}", growth[0], f"{memory:.0f}", growth[1], note])
            before = seconds, memory
    print(table(["doubled", "size", "ms", "growth", "MiB", "growth", ""], lines))


if __name__ == "__main__":
    main()
