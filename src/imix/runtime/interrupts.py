"""Handling of SIGTERM (sent by schedulers), SIGHUP (the terminal was closed) and SIGINT (Ctrl-C)."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from imix.errors import Interrupted

STOP_SIGNALS = signal.SIGTERM, signal.SIGHUP


class _Terminated(KeyboardInterrupt):
    """Raised on SIGTERM and SIGHUP. Subclasses KeyboardInterrupt so that `except Exception` cannot swallow it."""


@contextmanager
def handle_signals(handler: Any, *signals: int, enabled: bool = True) -> Iterator[None]:
    """Set the handler of these signals inside a block; does nothing outside the main thread.

    If SIGHUP is ignored, for example by `nohup`, it stays ignored.
    """
    if not enabled or threading.current_thread() is not threading.main_thread():
        yield
        return
    ignored = {signal.SIGHUP} if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else set()
    previous = {signum: signal.signal(signum, handler) for signum in signals if signum not in ignored}
    try:
        yield
    finally:
        for signum, previous_handler in previous.items():
            signal.signal(signum, previous_handler)


@contextmanager
def stop_on_sigterm(enabled: bool) -> Iterator[None]:
    """Raise `Interrupted` on SIGTERM or SIGHUP; used before and after training, when there is nothing to save."""

    def terminate(signum: int, frame: Any) -> None:
        raise _Terminated

    with handle_signals(terminate, *STOP_SIGNALS, enabled=enabled):
        try:
            yield
        except _Terminated:
            message = "stopped before or after training; the run can be resumed, from its last checkpoint if it has one"
            raise Interrupted(message) from None


@contextmanager
def stop_requested(enabled: bool) -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether a signal to stop was received; a second SIGINT interrupts immediately."""
    requested = threading.Event()

    def request(signum: int, frame: Any) -> None:
        if requested.is_set() and signum == signal.SIGINT:
            raise KeyboardInterrupt
        requested.set()

    with handle_signals(request, *STOP_SIGNALS, signal.SIGINT, enabled=enabled):
        yield requested.is_set
