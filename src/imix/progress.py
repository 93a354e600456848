"""A line now and then about work that takes long."""

import sys
import time

EVERY = 10.0  # seconds


class Told:
    """Says on stderr, every ten seconds, how far a piece of work is; nothing about what is done sooner.

    >>> told = Told("encoding", 50_000, "samples")
    >>> told(1024)
    """

    def __init__(self, what: str, total: int | None = None, unit: str = "") -> None:
        self.what, self.total, self.unit = what, total, unit
        self.last = time.monotonic()

    def __call__(self, done: int) -> None:
        """So much is done."""
        now = time.monotonic()
        if now - self.last >= EVERY:
            self.last = now
            of = f" of {self.total:,}" if self.total else ""
            print(f"{self.what}: {done:,}{of} {self.unit}", file=sys.stderr, flush=True)
