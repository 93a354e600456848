"""Joining the process group of `torchrun`, and reporting ranks that do not respond."""

import functools
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
from imix.runtime.interrupts import STOP_SIGNALS, handle_signals

TIMEOUT = 1800.0  # seconds a rank waits for the others; overridden by the environment variable IMIX_RANK_TIMEOUT
MAX_TIMEOUT = 1e9  # seconds
HEARTBEAT_SECONDS = 1.0  # seconds between heartbeats


@contextmanager
def join_ranks() -> Iterator[bool]:
    """Join the ranks that `torchrun` started and leave them at the end; yields False if there are none to join.

    Errors of collectives become an `Interrupted` that names the ranks that do not respond.
    """
    if not _has_ranks_to_join():
        yield False
        return
    store = _init_process_group()
    writer, reader = store.clone(), store.clone()  # each thread needs its own connection
    stopped = threading.Event()
    launcher = os.getppid() if dist.is_torchelastic_launched() else None
    threading.Thread(target=_send_heartbeats, args=(writer, stopped, rank(), launcher), daemon=True).start()
    try:
        yield True
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and "gloo" not in str(error) and "NCCL" not in str(error):
            raise
        with handle_signals(signal.SIG_IGN, *STOP_SIGNALS):  # torchrun also notices and terminates the other ranks
            lost = _lost_ranks(reader)
        cause = f"rank {', '.join(map(str, lost))} does not respond" if lost else "a rank left or was too slow"
        reason = re.sub(r"^\[\S*\] ", "", first_line(error)).split(". ")[0]
        raise Interrupted(
            f"rank {rank()} of {world_size()} cannot continue: {cause} ({reason}); the run can be resumed from its "
            "last checkpoint"
        ) from error
    finally:
        stopped.set()
        dist.destroy_process_group()


def _has_ranks_to_join() -> bool:
    if dist.is_initialized():
        return False
    n_ranks = _read_int("WORLD_SIZE", 1, default="1")
    if n_ranks == 1 and "WORLD_SIZE" in os.environ:
        _read_int("RANK", 0, 0, default="0")
    return n_ranks > 1


def _init_process_group() -> Any:
    """Connect to the other ranks; returns the store that all of them share."""
    timeout = _read_timeout()
    this_rank, _ = _read_int("RANK", 0, _read_int("WORLD_SIZE", 1) - 1), _read_int("MASTER_PORT", 0, 65_535)
    if not os.environ.get("MASTER_ADDR"):
        raise InputError("WORLD_SIZE is set, so MASTER_ADDR must be the address of rank 0; torchrun sets it")
    backend = "gloo"
    if torch.cuda.is_available():
        local_rank, n_gpus = _read_int("LOCAL_RANK", 0), torch.cuda.device_count()
        if local_rank >= n_gpus:
            raise InputError(
                f"torchrun started more ranks than the {n_gpus} GPUs of this machine; use --nproc-per-node {n_gpus}"
            )
        torch.cuda.set_device(local_rank)
        backend = "cpu:gloo,cuda:nccl"
    try:
        store, _, n_ranks = _connect(os.environ.get("MASTER_PORT"), timeout)
        prefix = _rendezvous(store, this_rank, n_ranks, timeout)
        prefixed_store = dist.PrefixStore(prefix, store)  # type: ignore[attr-defined]
        dist.init_process_group(backend, store=prefixed_store, rank=this_rank, world_size=n_ranks, timeout=timeout)
    except RuntimeError as error:
        message = f"rank {this_rank} cannot connect to the other ranks ({first_line(error)})"
        raise Interrupted(message) from error
    return prefixed_store


def _read_int(name: str, minimum: int, maximum: int = 2**31 - 1, default: str | None = None) -> int:
    """Read an environment variable that torchrun sets."""
    value = os.environ.get(name, default)
    if value is None or not re.fullmatch(r"[0-9]{1,10}", value) or not minimum <= int(value) <= maximum:
        allowed = f"at least {minimum}" if maximum == 2**31 - 1 else f"between {minimum} and {maximum}"
        got = "not set" if value is None else repr(value)
        raise InputError(
            f"the environment variable {name} must be an integer {allowed}; it is {got} (torchrun sets it)"
        )
    return int(value)


@functools.cache
def _connect(port: str | None, timeout: timedelta) -> Any:
    """Connect to the store of `torchrun`, or of rank 0; returns the store, the rank and the number of ranks.

    The store of rank 0 must outlive the process group, because other ranks may already be joining the next one.
    """
    return next(dist.rendezvous("env://", timeout=timeout))  # type: ignore[attr-defined]


def _read_timeout() -> timedelta:
    seconds = os.environ.get("IMIX_RANK_TIMEOUT") or TIMEOUT
    with suppress(ValueError):
        if 0 < float(seconds) <= MAX_TIMEOUT:
            return timedelta(seconds=float(seconds))
    raise InputError(f"IMIX_RANK_TIMEOUT must be a number of seconds; got {seconds!r}")


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


def _send_heartbeats(store: Any, stopped: threading.Event, this_rank: int, launcher: int | None) -> None:
    """Send heartbeats, and stop this rank as SIGTERM does if torchrun, its parent process, was killed."""
    while not stopped.wait(HEARTBEAT_SECONDS):
        if launcher not in (None, os.getppid()):
            os.kill(os.getpid(), signal.SIGTERM)
            return
        with suppress(RuntimeError):  # the store is gone
            store.add(f"alive/{this_rank}", 1)


def _lost_ranks(store: Any) -> list[int]:
    """Return the ranks that send no heartbeat for three intervals; rank 0 if the store, which it hosts, is gone."""
    others = [other for other in range(world_size()) if other != rank()]
    lost = others[:1] if rank() else []

    def count_heartbeats() -> list[int]:
        return [store.add(f"alive/{other}", 0) for other in others]

    def check() -> None:
        nonlocal lost
        with suppress(RuntimeError):
            before = count_heartbeats()
            time.sleep(3 * HEARTBEAT_SECONDS)
            lost = [other for other, n, m in zip(others, before, count_heartbeats(), strict=True) if n == m]

    reader = threading.Thread(target=check, daemon=True)  # reading may hang forever
    reader.start()
    reader.join(5 * HEARTBEAT_SECONDS)
    return lost
