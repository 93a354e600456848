"""What a run does when it is told to stop: SIGTERM of a scheduler, Ctrl-C of a person."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from imix.errors import Interrupted


class _StopNow(KeyboardInterrupt):
    """SIGTERM where there is nothing to save; no error, so that nothing that bears errors bears it."""


@contextmanager
def stopping_at_once(listens: bool) -> Iterator[None]:
    """Make of SIGTERM an `Interrupted`, wherever it comes: for all that is done before and after the training."""
    if not listens or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        raise _StopNow

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except _StopNow:
        raise Interrupted("stopped while not training; the run can be resumed from its last checkpoint") from None
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def stopping(listens: bool) -> Iterator[Any]:
    """A function that tells whether SIGTERM or SIGINT came; a second SIGINT interrupts at once."""
    asked = threading.Event()

    def ask(number: int, frame: Any) -> None:
        if asked.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        asked.set()

    if not listens or threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return
    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
