"""Jobs on several devices at once, each in a process of its own."""

import multiprocessing
import queue
import signal
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch

from imix.errors import Interrupted, TrainingError
from imix.paper.budget import Job
from imix.paper.work import Outcome, Worker
from imix.train.stopping import stopping_at_once

LOOK_EVERY = 2.0  # seconds, for processes that died


def do_all(jobs: Sequence[Job], worker: Worker, devices: Sequence[str]) -> Generator[tuple[Job, Outcome]]:
    """Jobs as they are done, one at a time on each device; one that is named twice does two.

    Where it is left before its end, all are stopped; what they were at goes on when it is started again.
    """
    if len(devices) == 1 or len(jobs) == 1:
        for job in jobs:
            yield job, replace(worker, device=devices[0]).do(job)
        return
    context = multiprocessing.get_context("spawn")
    waiting, done = context.Queue(), context.Queue()
    for number in range(len(jobs)):
        waiting.put(number)
    for _ in devices:
        waiting.put(None)
    threads = max(1, torch.get_num_threads() // len(devices))
    processes = [
        context.Process(
            target=_work, args=(replace(worker, device=device, progress=False), jobs, waiting, done, threads)
        )
        for device in devices[: len(jobs)]
    ]
    for process in processes:
        process.start()
    try:
        for _ in jobs:
            number, outcome = _next(done, processes)
            yield jobs[number], outcome
    finally:
        for process in processes:
            process.terminate()  # those that train write their checkpoint first
        for process in processes:
            process.join()


def _next(done: Any, processes: Sequence[Any]) -> tuple[int, Outcome]:
    """What is done next; fails when a process died, since nobody would do its job."""
    while True:
        with suppress(queue.Empty):
            number, outcome = done.get(timeout=LOOK_EVERY)
            if isinstance(outcome, Exception):
                raise outcome
            return number, outcome
        for process in processes:
            if process.exitcode not in (None, 0):
                raise TrainingError(f"process {process.pid} died ({process.exitcode}); the same command goes on")


def _work(worker: Worker, jobs: Sequence[Job], waiting: Any, done: Any, threads: int) -> None:
    """Take jobs until there is none."""
    torch.set_num_threads(threads)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with stopping_at_once(True):
            while (number := waiting.get()) is not None:
                done.put((number, worker.do(jobs[number])))
    except (Interrupted, KeyboardInterrupt):
        done.put((None, Interrupted("stopped; to go on")))
    except Exception as error:
        done.put((None, TrainingError(f"{type(error).__name__}: {error}")))
        raise
