"""A line now and then about work that takes long."""

import sys
import time

EVERY = 10.0  # seconds


class Told:
    """Says on stderr, every ten seconds, how far a piece of work is and how long it will take.

    Nothing is said of what is done sooner, unless `ends`, the beginning and the end, are to be told in any case.
    `begun` is what was done before.

    >>> told = Told("encoding", 50_000, "samples")
    >>> told(1024)
    """

    def __init__(self, what: str, total: int = 0, unit: str = "", *, begun: int = 0, ends: bool = False) -> None:
        self.what, self.total, self.unit, self.begun, self.ends = what, total, unit, begun, ends
        self.started = time.monotonic()
        self.last = self.started - EVERY if ends else self.started

    def __call__(self, done: int, more: str = "") -> None:
        """So much is done, and `more` is to be said of it."""
        now = time.monotonic()
        if now - self.last < EVERY and not (self.ends and done == self.total):
            return
        self.last = now
        parts = [f"{self.what}: {done:,}{f' of {self.total:,}' if self.total else ''} {self.unit}", more]
        if self.total and done > self.begun:
            parts.append(f"{(now - self.started) / (done - self.begun) * (self.total - done):.0f} s left")
        print("  ".join(filter(None, parts)), file=sys.stderr, flush=True)
