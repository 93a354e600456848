"""Runs jobs on several devices at once, each device in its own process."""

import multiprocessing
import queue
import signal
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch

from imix.errors import Interrupted, TrainingError
from imix.reproduce.jobs import Job
from imix.reproduce.worker import Outcome, Worker
from imix.runtime.interrupts import stop_on_sigterm

POLL_SECONDS = 2.0  # interval between checks for dead processes


def run_jobs(jobs: Sequence[Job], worker: Worker, devices: Sequence[str]) -> Generator[tuple[Job, Outcome]]:
    """Yield jobs as they finish. Each device runs one job at a time; a device that is listed twice runs two.

    Closing the generator early stops all jobs; they resume from their checkpoints when they are started again.
    """
    if len(devices) == 1 or len(jobs) == 1:
        for job in jobs:
            yield job, replace(worker, device=devices[0]).run(job)
        return
    context = multiprocessing.get_context("spawn")
    waiting, done = context.Queue(), context.Queue()
    for index in range(len(jobs)):
        waiting.put(index)
    for _ in devices:
        waiting.put(None)  # tells a process to exit
    threads = max(1, torch.get_num_threads() // len(devices))
    processes = [
        context.Process(
            target=_run_worker, args=(replace(worker, device=device, progress=False), jobs, waiting, done, threads)
        )
        for device in devices[: len(jobs)]
    ]
    for process in processes:
        process.start()
    try:
        for _ in jobs:
            index, outcome = _next_outcome(done, processes)
            yield jobs[index], outcome
    finally:
        for process in processes:
            process.terminate()  # a process that is training writes its checkpoint first
        for process in processes:
            process.join()


def _next_outcome(done: Any, processes: Sequence[Any]) -> tuple[int, Outcome]:
    """Wait for the next job to finish. Raises if a process died, because its job would never finish."""
    while True:
        with suppress(queue.Empty):
            index, outcome = done.get(timeout=POLL_SECONDS)
            if isinstance(outcome, Exception):
                raise outcome
            return index, outcome
        for process in processes:
            if process.exitcode not in (None, 0):
                raise TrainingError(
                    f"worker process {process.pid} died with exit code {process.exitcode}; run the same command again "
                    "to continue"
                )


def _run_worker(worker: Worker, jobs: Sequence[Job], waiting: Any, done: Any, threads: int) -> None:
    """Run jobs from the queue until it is empty."""
    torch.set_num_threads(threads)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with stop_on_sigterm(True):
            while (index := waiting.get()) is not None:
                done.put((index, worker.run(jobs[index])))
    except (Interrupted, KeyboardInterrupt):
        done.put((None, Interrupted("stopped; the runs can be resumed")))
    except Exception as error:
        done.put((None, TrainingError(f"{type(error).__name__}: {error}")))
        raise
