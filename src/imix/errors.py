"""What can go wrong and be said in one line: `InputError` for what was given, `TrainingError` for what a run did.

`StorageError` is for what a disk did, `Interrupted` for a run that can go on.
"""

import difflib
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

ALIKE = 0.75  # of 1, by difflib: words that one may have mistaken for each other
LONGEST = 300  # letters of another library's message: some quote what they could not read


class InputError(ValueError):
    """Something given by the user cannot be used; the message names it, what was given and what is allowed."""


class TrainingError(RuntimeError):
    """A run that must not go on (loss not finite, collapse); the message says where and the likely cause."""


class StorageError(OSError):
    """Something could not be written; the message names the file, why, and the room it needs."""


class Interrupted(RuntimeError):
    """A run was stopped, or lost its ranks; the same command goes on from its last checkpoint, if there is one."""


def first_line(error: Exception) -> str:
    """What an error says, in one line."""
    line = (str(error).splitlines() or [type(error).__name__])[0]
    return line if len(line) <= LONGEST else f"{line[:LONGEST]} ..."


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """A question about the known words that are nearest, if some are near; capitals do not count.

    >>> did_you_mean("pretrian", ["pretrain", "embed"])
    " (did you mean 'pretrain'?)"
    """
    near = difflib.get_close_matches(word.lower(), {other.lower() for other in known}, cutoff=ALIKE)
    meant = sorted((other for other in known if other.lower() in near), key=lambda other: near.index(other.lower()))
    return f" (did you mean {' or '.join(map(repr, meant))}?)" if meant else ""


def printable(text: str) -> str:
    """Text in one line that every terminal, page and file can show: what it cannot is written as Python would.

    >>> printable("two\\nlines")
    'two\\\\nlines'
    """
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


@contextmanager
def storing(path: Path, need: int | None = None) -> Iterator[None]:
    """Say which file cannot be written, why, and how much room it needs."""
    try:
        yield
    except (OSError, RuntimeError) as error:  # torch wraps what a disk says
        reason = _of_the_disk(error)
        if reason is None or isinstance(reason, StorageError):
            raise
        room = "" if need is None else f"it needs {_megabytes(need)}"
        with suppress(OSError):
            free = f"{_megabytes(shutil.disk_usage(path.parent).free)} are free in {str(path.parent)!r}"
            room = f"{room}, and {free}" if room else free
        room = f" ({room})" if room else ""
        raise StorageError(f"cannot write {str(path)!r}: {reason.strerror or reason}{room}") from error


def _of_the_disk(error: BaseException | None) -> OSError | None:
    """What the disk said, if an error came of that."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__ or error.__context__
    return error


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 50_000 else f"{count / 1e3:,.1f} kB"
