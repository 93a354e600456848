"""Printing: control characters are escaped, and a closed terminal does not stop a run."""

import html
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from imix.errors import StorageError, printable

lost_messages: list[Exception] = []  # the first error while writing to stderr, if any


def print_message(*lines: object) -> None:
    """Print each argument as one line to stderr; an error is stored in `lost_messages` instead of being raised."""
    with _ignored_errors():
        _write(sys.stderr, lines)


def print_result(*lines: object) -> None:
    """Print each argument as one line to stdout; raises StorageError if that fails."""
    try:
        _write(sys.stdout, lines)
    except BrokenPipeError:  # the reader, such as `head`, closed the pipe
        raise
    except (OSError, ValueError) as error:  # ValueError: the stream was closed in Python
        raise StorageError(f"cannot write to stdout: {error}") from error


def stderr_is_terminal() -> bool:
    """Whether stderr is a terminal; False if it is closed."""
    return sys.stderr is not None and not sys.stderr.closed and sys.stderr.isatty()


def in_notebook() -> bool:
    """Whether the code runs in a Jupyter kernel."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


class NotebookBar:
    """A progress bar in the output of a notebook cell, which each call replaces. Needs no ipywidgets."""

    def __init__(self) -> None:
        self.handle: Any = None

    def show(self, done: int, total: int, text: str) -> None:
        """Show the bar at `done` of `total`, with a text next to it."""
        display: Any = importlib.import_module("IPython.display").display  # a kernel has it, others need not

        text = printable(text)
        page = f'<div><progress value="{done}" max="{total}"></progress> {html.escape(text)}</div>'
        content = {"text/html": page, "text/plain": text}
        with _ignored_errors():
            if self.handle is None:
                self.handle = display(content, raw=True, display_id=True)
            else:
                self.handle.update(content, raw=True)


class TolerantStream:
    """A text stream that ignores write errors, like `print_message`."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> None:
        """Write if possible."""
        with _ignored_errors():
            self.stream.write(text)

    def flush(self) -> None:
        """Flush if possible."""
        with _ignored_errors():
            self.stream.flush()


@contextmanager
def _ignored_errors() -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        if not lost_messages:
            lost_messages.append(error)


def _write(stream: TextIO | None, lines: tuple[object, ...]) -> None:
    if stream is not None:  # None if the descriptor was closed when Python started
        stream.write("".join(f"{printable(str(line))}\n" for line in lines))
        stream.flush()
