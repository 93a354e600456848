"""Joining the ranks that `torchrun` started, leaving them, and saying which of them are gone."""

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

from imix.distributed import rank, world_size
from imix.errors import InputError, Interrupted, first_line

TIMEOUT = 1800.0  # seconds that a rank waits for the others; the environment's IMIX_RANK_TIMEOUT overrides it
BEAT = 1.0  # seconds between signs of life


def start() -> bool:
    """Join the ranks that `torchrun` started, if it did; True if this call joined them."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or dist.is_initialized():
        return False
    given = os.environ.get("IMIX_RANK_TIMEOUT") or TIMEOUT
    try:
        timeout = timedelta(seconds=float(given))
    except (ValueError, OverflowError) as error:
        raise InputError(f"IMIX_RANK_TIMEOUT must be a number of seconds; got {given!r}") from error
    backend = "gloo"
    if torch.cuda.is_available():
        local, here = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
        if local >= here:
            raise InputError(f"torchrun started more ranks here than the {here} GPUs that torch sees; give as many")
        torch.cuda.set_device(local)
        backend = "cpu:gloo,cuda:nccl"
    try:
        store, number, world = next(dist.rendezvous("env://", timeout=timeout))  # type: ignore[attr-defined]
        attempt = dist.PrefixStore(_meet(store, number, world, timeout), store)  # type: ignore[attr-defined]
        dist.init_process_group(backend, store=attempt, rank=number, world_size=world, timeout=timeout)
    except RuntimeError as error:
        raise Interrupted(f"rank {os.environ['RANK']} does not find the others ({first_line(error)})") from error
    _heart.start(attempt)
    return True


def _meet(store: Any, number: int, world: int, timeout: timedelta) -> str:
    """A name for this attempt, on which all ranks agree.

    A torchrun that restarts its ranks keeps the store, with the addresses of ranks that are dead; and it counts
    restarts on each machine by itself. So every rank asks rank 0 by a word of its own, and gets the name as the answer.
    """
    if number != 0:
        word = uuid.uuid4().hex
        store.set(f"imix/asks/{number}", word)
        store.wait([f"imix/answer/{word}"], timeout)
        name: str = store.get(f"imix/answer/{word}").decode()
        store.set(f"{name}/heard/{number}", "")
        return name
    name, deadline = f"imix/{uuid.uuid4().hex}", time.monotonic() + timeout.total_seconds()
    missing = set(range(1, world))
    while missing and time.monotonic() < deadline:
        for other in sorted(missing):
            if store.check([f"{name}/heard/{other}"]):
                missing.remove(other)
            elif store.check([f"imix/asks/{other}"]):  # maybe of an earlier attempt: then nobody hears the answer
                store.set(f"imix/answer/{store.get(f'imix/asks/{other}').decode()}", name)
        time.sleep(0.02)
    if missing:
        raise Interrupted(f"rank {', '.join(map(str, sorted(missing)))} did not come within {timeout}")
    return name


def stop() -> None:
    """Leave the ranks joined by `start`."""
    _heart.stop()
    dist.destroy_process_group()


class _Heart:
    """Signs of life of this rank in the store that all ranks know, and which of the others give none."""

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self.store: Any = None

    def start(self, store: Any) -> None:
        """Give a sign every second from now on."""
        self.stopped, self.store = threading.Event(), store.clone()  # over connections of their own
        threading.Thread(target=self._beat, args=(store.clone(), self.stopped, rank()), daemon=True).start()

    def stop(self) -> None:
        """Give no more signs."""
        self.stopped.set()
        self.store = None

    def lost(self) -> list[int]:
        """The ranks that gave no sign for three beats."""
        counts: list[list[int]] = []
        store, others = self.store, [other for other in range(world_size()) if other != rank()]

        def look() -> None:
            with suppress(RuntimeError, AttributeError):  # the store is gone
                counts.append([store.add(f"alive/{other}", 0) for other in others])

        for looks, pause in ((1, 3 * BEAT), (2, 0)):
            looking = threading.Thread(target=look, daemon=True)  # a store that hangs does so for ever
            looking.start()
            looking.join(3 * BEAT)
            if len(counts) < looks:
                return [0] if 0 in others else []  # which holds the store, where no torchrun does
            time.sleep(pause)
        return [other for other, before, after in zip(others, *counts, strict=True) if before == after]

    def _beat(self, store: Any, stopped: threading.Event, own: int) -> None:
        with suppress(RuntimeError):  # the store is gone, and so will this rank be
            while not stopped.wait(BEAT):
                store.add(f"alive/{own}", 1)


_heart = _Heart()


@contextmanager
def naming_lost_ranks() -> Iterator[None]:
    """Where ranks cannot work together any more, say in one line which of them are gone or hang."""
    try:
        yield
    except RuntimeError as error:
        torn = isinstance(error, dist.DistError) or "gloo" in str(error) or "NCCL" in str(error)
        if world_size() == 1 or not torn:
            raise
        with _undisturbed():  # torchrun, too, sees that a rank is gone, and ends the others
            lost = _heart.lost()
        who = f"rank {', '.join(map(str, lost))} is gone or hangs" if lost else "some rank left or was too slow"
        reason = re.sub(r"^\[\S*\] ", "", first_line(error)).split(". ")[0]
        raise Interrupted(
            f"rank {rank()} of {world_size()} cannot go on, since {who} ({reason}); the run can be resumed from its "
            "last checkpoint"
        ) from error


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Without SIGTERM for a moment."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
