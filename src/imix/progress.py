"""A line now and then about work that takes long."""

import sys
import time

EVERY = 10.0  # seconds


class Told:
    """Says on stderr, every ten seconds, how far a piece of work is and how long it will take.

    Nothing is said of what is done sooner, unless `ends`, the beginning and the end, are to be told in any case.

    >>> told = Told("encoding", 50_000, "samples")
    >>> told(1024)
    """

    def __init__(self, what: str, total: int = 0, unit: str = "", *, ends: bool = False) -> None:
        self.what, self.total, self.unit, self.ends = what, total, unit, ends
        self.started = time.monotonic()
        self.last = self.started - EVERY if ends else self.started
        self.first: tuple[int, float] | None = None  # from which time is reckoned: what comes before is set-up

    def __call__(self, done: int, more: str = "") -> None:
        """So much is done, and `more` is to be said of it."""
        now = time.monotonic()
        self.first = self.first or (done, now)
        if now - self.last < EVERY and not (self.ends and done == self.total):
            return
        self.last = now
        parts = [f"{self.what}: {done:,}{f' of {self.total:,}' if self.total else ''} {self.unit}", more]
        if self.total > done > self.first[0]:
            parts.append(f"{duration((now - self.first[1]) / (done - self.first[0]) * (self.total - done))} left")
        print("  ".join(filter(None, parts)), file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """A time in the unit that suits it.

    >>> duration(27_355)
    '7.6 hours'
    """
    for unit, size in (("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.{0 if seconds >= 10 else 1}f} seconds"
