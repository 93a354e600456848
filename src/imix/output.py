"""Printing: control characters are escaped, and a closed terminal does not stop a run."""

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
