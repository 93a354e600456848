"""Handling of SIGTERM (sent by schedulers) and SIGINT (Ctrl-C)."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from imix.errors import Interrupted


class _Terminated(KeyboardInterrupt):
    """Raised on SIGTERM. Subclasses KeyboardInterrupt so that `except Exception` cannot swallow it."""


@contextmanager
def stop_on_sigterm(enabled: bool) -> Iterator[None]:
    """Raise `Interrupted` on SIGTERM; used before and after training, when there is nothing to save."""
    if not enabled or threading.current_thread() is not threading.main_thread():
        yield
        return

    def terminate(signum: int, frame: Any) -> None:
        raise _Terminated

    previous = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    except _Terminated:
        raise Interrupted("stopped before or after training; the run can be resumed from its last checkpoint") from None
    finally:
        signal.signal(signal.SIGTERM, previous)


@contextmanager
def stop_requested(enabled: bool) -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether SIGTERM or SIGINT was received; a second SIGINT interrupts immediately."""
    requested = threading.Event()

    def request(signum: int, frame: Any) -> None:
        if requested.is_set() and signum == signal.SIGINT:
            raise KeyboardInterrupt
        requested.set()

    if not enabled or threading.current_thread() is not threading.main_thread():
        yield requested.is_set
        return
    previous = {signum: signal.signal(signum, request) for signum in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield requested.is_set
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)
