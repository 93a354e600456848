"""Progress messages for long-running work."""

import time

from imix.output import print_message

INTERVAL_SECONDS = 10.0  # seconds between messages


class ProgressLine:
    """Print a progress message to stderr every ten seconds, with the estimated time left.

    Work that takes less than ten seconds prints nothing, unless `always_show_ends` is set: then the first and
    the last call always print.

    Parameters
    ----------
    task : str
        What is being done, e.g. "encoding".
    total : int
        The amount of work; 0 if it is unknown.
    unit : str
        What is counted, e.g. "samples".
    always_show_ends : bool
        Whether the first and the last call always print.

    Examples
    --------
    >>> progress = ProgressLine("encoding", 50_000, "samples")
    >>> progress(12_000)  # after a while: "encoding: 12,000 of 50,000 samples, 3.2 minutes left"
    """

    def __init__(self, task: str, total: int = 0, unit: str = "", *, always_show_ends: bool = False) -> None:
        self.task, self.total, self.unit, self.always_show_ends = task, total, unit, always_show_ends
        started = time.monotonic()
        self.last_printed = started - INTERVAL_SECONDS if always_show_ends else started
        self.first_call: tuple[int, float] | None = None  # amount and time; excludes setup from the estimate

    def __call__(self, done: int, details: str = "") -> None:
        """Report that `done` units are finished, with optional details for the message."""
        now = time.monotonic()
        self.first_call = self.first_call or (done, now)
        if now - self.last_printed < INTERVAL_SECONDS and not (self.always_show_ends and done == self.total):
            return
        self.last_printed = now
        parts = [f"{self.task}: {done:,}{f' of {self.total:,}' if self.total else ''} {self.unit}", details]
        done_before, since = self.first_call
        if self.total > done > done_before:
            parts.append(f"{format_duration((now - since) / (done - done_before) * (self.total - done))} left")
        print_message(", ".join(filter(None, parts)))


def format_duration(seconds: float) -> str:
    """Format a duration in hours, minutes or seconds.

    >>> format_duration(27_355)
    '7.6 hours'
    """
    for unit, size in (("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.{0 if seconds >= 10 else 1}f} seconds"
