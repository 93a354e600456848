"""Runs jobs on several devices at once, each device in its own process."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Generator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from typing import Any

import torch

from imix.errors import Interrupted, TrainingError
from imix.reproduce.jobs import Job
from imix.reproduce.worker import Outcome, Worker

_worker: Worker  # in a process of the pool
_running = threading.Lock()  # held while a process of the pool runs a job


def run_jobs(jobs: Sequence[Job], worker: Worker, devices: Sequence[str]) -> Generator[tuple[Job, Outcome]]:
    """Yield jobs as they finish. Each device runs one job at a time; a device that is listed twice runs two.

    Closing the generator early stops all jobs; they resume from their checkpoints when they are started again.
    """
    if len(devices) == 1 or len(jobs) == 1:
        for job in jobs:
            yield job, replace(worker, device=devices[0]).run(job)
        return
    context = multiprocessing.get_context("spawn")
    free_devices = context.Queue()
    for device in devices:
        free_devices.put(device)
    threads = max(1, torch.get_num_threads() // len(devices))
    other_processes = set(multiprocessing.active_children())
    with ProcessPoolExecutor(len(devices), context, _start_process, (worker, free_devices, threads)) as pool:
        futures = {pool.submit(_run, job): job for job in jobs}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BrokenProcessPool as error:
            raise TrainingError("a worker process died; run the same command again to continue") from error
        finally:
            for process in set(multiprocessing.active_children()) - other_processes:
                process.terminate()  # a process that is training writes its checkpoint first


def _start_process(worker: Worker, free_devices: Any, threads: int) -> None:
    """Take one of the devices for all jobs of this process."""
    global _worker
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    _worker = replace(worker, device=free_devices.get(), progress=False)


def _stop_with_parent() -> None:
    """Stop this process as SIGTERM does if its parent was killed; otherwise it would wait for jobs forever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
    with _running:  # a job that was writing its last checkpoint is not stopped by the signal
        os._exit(75)


def _run(job: Job) -> Outcome:
    try:
        with _running:
            return _worker.run(job)
    except (Interrupted, KeyboardInterrupt):
        os._exit(75)  # an exception would only end this job, and the process would start the next one
