"""Progress of long-running work: lines every ten seconds, or a live bar in a terminal or notebook."""

import sys
import time
from datetime import timedelta
from typing import TYPE_CHECKING, TextIO, cast

from imix.errors import printable
from imix.output import NotebookBar, TolerantStream, in_notebook, print_message, stderr_is_terminal

if TYPE_CHECKING:
    from rich.console import Console

INTERVAL_SECONDS = 10.0  # seconds between messages
REFRESH_SECONDS = 0.25  # seconds between updates of a live bar
BAR_WIDTH = 16  # characters


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
        seconds = _seconds_left(self.first_call, done, self.total, now)
        parts += [] if seconds is None else [f"{format_duration(seconds)} left"]
        print_message(", ".join(filter(None, parts)))


class ProgressBar:
    """A live bar in a terminal or notebook, and a `ProgressLine` elsewhere; use it in a `with` statement.

    A live bar is one line with the position, the time left and the details. In a terminal, details that do not fit in
    the line are left out, the last ones first.

    Parameters
    ----------
    task : str
        What is being done, e.g. "training"; not shown by a live bar, as the unit.
    total : int
        The amount of work.
    unit : str
        What is counted, e.g. "steps".
    done : int
        The amount of work that was done before.
    position : str
        The position at the start.

    Examples
    --------
    >>> with ProgressBar("training", 20, "steps", position="epoch 1/2") as bar:
    ...     for step in range(1, 21):
    ...         bar.advance(step)
    ...         if step % 10 == 0:
    ...             bar.show(step, f"epoch {step // 10}/2", "loss 0.1")
    """

    def __init__(self, task: str, total: int, unit: str, *, done: int = 0, position: str = "") -> None:
        self.total, self.done, self.position = total, done, position
        self.details: tuple[str, ...] = ()
        self.line = ProgressLine(task, total, unit, always_show_ends=True)
        self.started = self.last_drawn = time.monotonic()
        self.first_call: tuple[int, float] | None = None
        self.bar: _TerminalBar | NotebookBar | None = None

    def __enter__(self) -> "ProgressBar":
        if in_notebook():
            self.bar = NotebookBar()
        elif stderr_is_terminal():
            self.bar = _TerminalBar.create(self.total)
        self._draw()
        return self

    def __exit__(self, *_: object) -> None:
        self._draw()
        if isinstance(self.bar, _TerminalBar):
            self.bar.stop()

    def show(self, done: int, position: str, *details: str) -> None:
        """Report that `done` units are finished, with the position and details, the most important ones first."""
        self.position, self.details = position, details
        self.advance(done)
        if self.bar is None:
            self.line(done, ", ".join([position, *details]))

    def advance(self, done: int) -> None:
        """Report that `done` units are finished; only a live bar shows this."""
        now = time.monotonic()
        self.first_call, self.done = self.first_call or (done, now), done
        if now - self.last_drawn >= REFRESH_SECONDS:
            self._draw()

    def _draw(self) -> None:
        if self.bar is None:
            return
        self.last_drawn = now = time.monotonic()
        parts = [self.position] if self.position else []
        if self.done >= self.total:
            parts.append(f"took {_clock(now - self.started)}")
        elif self.first_call and (seconds := _seconds_left(self.first_call, self.done, self.total, now)) is not None:
            parts.append(f"{_clock(seconds)} left")
        text = ""
        for part in [*parts, *self.details]:
            longer = f"{text}  {part}" if text else part
            if isinstance(self.bar, _TerminalBar) and len(longer) > self.bar.text_width:
                break
            text = longer
        self.bar.show(self.done, self.total, text)


class _TerminalBar:
    """One line at the bottom of a terminal. Messages that are printed meanwhile are shown above it."""

    def __init__(self, console: "Console", total: int) -> None:
        from rich.progress import BarColumn, Progress, TextColumn
        from rich.table import Column

        text = TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True))
        # Without a thread that refreshes it, the bar costs nothing between updates. rich would redirect what is printed
        # to stdout to the console, which is stderr.
        redirect_stdout = sys.stdout is not None and not sys.stdout.closed and sys.stdout.isatty()
        self.progress = Progress(
            BarColumn(BAR_WIDTH), text, console=console, auto_refresh=False, redirect_stdout=redirect_stdout
        )
        self.task = self.progress.add_task("", total=total)

    @classmethod
    def create(cls, total: int) -> "_TerminalBar | None":
        """Return a bar, or None if the terminal cannot move its cursor."""
        from rich.console import Console

        console = Console(file=cast("TextIO", TolerantStream(sys.stderr)))
        return cls(console, total) if console.is_interactive else None

    @property
    def text_width(self) -> int:
        """Number of characters next to the bar; the last column of the terminal stays empty."""
        return self.progress.console.width - BAR_WIDTH - 2

    def show(self, done: int, total: int, text: str) -> None:
        """Show the bar at `done` of `total`, with a text next to it."""
        self.progress.update(self.task, completed=done, description=printable(text))
        if self.progress.live.is_started:
            self.progress.refresh()
        else:
            self.progress.start()  # draws it too

    def stop(self) -> None:
        """Leave the line as it is, and move to the next one."""
        self.progress.stop()


def _seconds_left(first_call: tuple[int, float], done: int, total: int, now: float) -> float | None:
    """Estimate the time left from the amount that was done since the first call; None if there is none yet."""
    done_before, since = first_call
    return (now - since) / (done - done_before) * (total - done) if total > done > done_before else None


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def format_duration(seconds: float) -> str:
    """Format a duration in hours, minutes or seconds.

    >>> format_duration(27_355)
    '7.6 hours'
    """
    for unit, size in (("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.{0 if seconds >= 10 else 1}f} seconds"
