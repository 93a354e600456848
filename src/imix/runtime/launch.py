"""Joining and leaving the process group of `torchrun`, and reporting ranks that do not respond."""

import os
import re
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from imix.errors import InputError, Interrupted, first_line
from imix.runtime.distributed import rank, world_size

TIMEOUT = 1800.0  # seconds a rank waits for the others; overridden by the environment variable IMIX_RANK_TIMEOUT
HEARTBEAT_SECONDS = 1.0  # seconds between heartbeats


def join_ranks() -> bool:
    """Join the ranks that `torchrun` started; return False if there are none or they are already joined."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or dist.is_initialized():
        return False
    timeout = _read_timeout()
    backend = "gloo"
    if torch.cuda.is_available():
        local_rank, n_gpus = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
        if local_rank >= n_gpus:
            raise InputError(
                f"torchrun started more ranks than the {n_gpus} GPUs of this machine; use --nproc-per-node {n_gpus}"
            )
        torch.cuda.set_device(local_rank)
        backend = "cpu:gloo,cuda:nccl"
    try:
        store, this_rank, n_ranks = next(dist.rendezvous("env://", timeout=timeout))  # type: ignore[attr-defined]
        prefix = _rendezvous(store, this_rank, n_ranks, timeout)
        prefixed_store = dist.PrefixStore(prefix, store)  # type: ignore[attr-defined]
        dist.init_process_group(backend, store=prefixed_store, rank=this_rank, world_size=n_ranks, timeout=timeout)
    except RuntimeError as error:
        message = f"rank {os.environ['RANK']} cannot connect to the other ranks ({first_line(error)})"
        raise Interrupted(message) from error
    _heartbeat.start(prefixed_store)
    return True


def leave_ranks() -> None:
    """Leave the process group that `join_ranks` joined."""
    _heartbeat.stop()
    dist.destroy_process_group()


def _read_timeout() -> timedelta:
    seconds = os.environ.get("IMIX_RANK_TIMEOUT") or TIMEOUT
    try:
        return timedelta(seconds=float(seconds))
    except (ValueError, OverflowError) as error:
        raise InputError(f"IMIX_RANK_TIMEOUT must be a number of seconds; got {seconds!r}") from error


def _rendezvous(store: Any, this_rank: int, n_ranks: int, timeout: timedelta) -> str:
    """Agree with all ranks on a store prefix for this attempt.

    When torchrun restarts its ranks, the store still contains the addresses of the dead ones, and every machine counts
    its restarts separately. So each rank sends rank 0 a random request ID, and rank 0 answers with the prefix.
    """
    if this_rank != 0:
        request = uuid.uuid4().hex
        store.set(f"imix/request/{this_rank}", request)
        store.wait([f"imix/answer/{request}"], timeout)
        prefix: str = store.get(f"imix/answer/{request}").decode()
        store.set(f"{prefix}/received/{this_rank}", "")
        return prefix
    prefix, deadline = f"imix/{uuid.uuid4().hex}", time.monotonic() + timeout.total_seconds()
    missing = set(range(1, n_ranks))
    while missing and time.monotonic() < deadline:
        for other in sorted(missing):
            if store.check([f"{prefix}/received/{other}"]):
                missing.remove(other)
            elif store.check([f"imix/request/{other}"]):  # if it is from an earlier attempt, nobody reads the answer
                store.set(f"imix/answer/{store.get(f'imix/request/{other}').decode()}", prefix)
        time.sleep(0.02)
    if missing:
        raise Interrupted(f"rank {', '.join(map(str, sorted(missing)))} did not connect within {timeout}")
    return prefix


class _Heartbeat:
    """Heartbeats of this rank in the shared store, and a check of the heartbeats of the other ranks."""

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self.store: Any = None

    def start(self, store: Any) -> None:
        """Send heartbeats from a background thread."""
        self.stopped, self.store = threading.Event(), store.clone()  # each thread needs its own connection
        threading.Thread(target=self._send, args=(store.clone(), self.stopped, rank()), daemon=True).start()

    def stop(self) -> None:
        """Stop sending heartbeats."""
        self.stopped.set()
        self.store = None

    def lost_ranks(self) -> list[int]:
        """Return the ranks that have sent no heartbeat for three intervals."""
        counts: list[list[int]] = []
        store, others = self.store, [other for other in range(world_size()) if other != rank()]

        def read_counts() -> None:
            with suppress(RuntimeError, AttributeError):  # the store is gone
                counts.append([store.add(f"alive/{other}", 0) for other in others])

        for n_reads, pause in ((1, 3 * HEARTBEAT_SECONDS), (2, 0)):
            reader = threading.Thread(target=read_counts, daemon=True)  # reading may hang forever
            reader.start()
            reader.join(3 * HEARTBEAT_SECONDS)
            if len(counts) < n_reads:
                return [0] if 0 in others else []  # rank 0 hosts the store, unless torchrun does
            time.sleep(pause)
        return [other for other, before, after in zip(others, *counts, strict=True) if before == after]

    def _send(self, store: Any, stopped: threading.Event, this_rank: int) -> None:
        with suppress(RuntimeError):  # the store is gone, so this rank is about to fail too
            while not stopped.wait(HEARTBEAT_SECONDS):
                store.add(f"alive/{this_rank}", 1)


_heartbeat = _Heartbeat()


@contextmanager
def report_lost_ranks() -> Iterator[None]:
    """Turn errors of collectives into an `Interrupted` that names the ranks that do not respond."""
    try:
        yield
    except RuntimeError as error:
        is_collective = isinstance(error, dist.DistError) or "gloo" in str(error) or "NCCL" in str(error)
        if world_size() == 1 or not is_collective:
            raise
        with _ignore_sigterm():  # torchrun also notices the lost rank and terminates the others
            lost = _heartbeat.lost_ranks()
        cause = f"rank {', '.join(map(str, lost))} does not respond" if lost else "a rank left or was too slow"
        reason = re.sub(r"^\[\S*\] ", "", first_line(error)).split(". ")[0]
        raise Interrupted(
            f"rank {rank()} of {world_size()} cannot continue: {cause} ({reason}); the run can be resumed from its "
            "last checkpoint"
        ) from error


@contextmanager
def _ignore_sigterm() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
