"""The library's error classes, and helpers that turn errors into one-line messages. Imports no torch."""

import difflib
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

SIMILARITY_CUTOFF = 0.75  # difflib ratio above which a word is suggested as a correction
MAX_MESSAGE_LENGTH = 300  # characters; some libraries quote the whole input they failed to read


class InputError(ValueError):
    """Invalid user input. The message names the parameter, the value and what is allowed.

    Messages have options in backticks, as Python arguments; the command line shows them as flags.

    Examples
    --------
    >>> imix.Settings(epochs=0)
    Traceback (most recent call last):
    imix.errors.InputError: `epochs` must be above 0; got 0
    """

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))  # it may quote names from files


class TrainingError(RuntimeError):
    """Training cannot continue, e.g. the loss is not finite. The message names the step and the likely cause.

    Examples
    --------
    >>> identical_samples = torch.ones(64, 5)
    >>> options = {"epochs": 100, "encoder": "mlp:8", "device": "cpu", "progress": False}
    >>> imix.pretrain(identical_samples, **options)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    imix.errors.TrainingError: collapse: the loss stays at chance (4.1589) at step 30: all embeddings are the same, ...
    """


class StorageError(OSError):
    """A file could not be written. The message names the file, the reason and the disk space it needs.

    Examples
    --------
    >>> imix.embed("runs/customers", "customers.csv", out="/full/z.npy")  # doctest: +SKIP
    Traceback (most recent call last):
    imix.errors.StorageError: cannot write '/full/z.npy': No space left on device (it needs 10.2 MB, and 2.1 MB are ...
    """


class Interrupted(RuntimeError):
    """A run was stopped or lost some of its ranks. It can be resumed from its last checkpoint, if it wrote one.

    Examples
    --------
    >>> try:  # doctest: +SKIP
    ...     imix.pretrain("customers.csv", out="runs/customers", resume=True)
    ... except imix.Interrupted as error:  # SIGTERM from a job scheduler, or Ctrl-C
    ...     print(error)
    stopped at step 5140 of 20000; the run can be resumed
    """


class RunFolderBusy(Interrupted):
    """Another command is training in the run folder. The same command works when that one has ended.

    Examples
    --------
    >>> imix.pretrain("customers.csv", out="runs/customers")  # doctest: +SKIP
    Traceback (most recent call last):
    imix.errors.RunFolderBusy: another command is training in 'runs/customers'; wait, or change `out`
    """


def first_line(error: Exception) -> str:
    """Return the first line of an error message, shortened if it is very long."""
    line = (str(error).splitlines() or [type(error).__name__])[0]
    return line if len(line) <= MAX_MESSAGE_LENGTH else f"{line[:MAX_MESSAGE_LENGTH]} ..."


def out_of_memory(error: Exception) -> str | None:
    """Return the reason if memory could not be allocated ("" if unknown), or None for other errors.

    On a CPU, torch raises a plain RuntimeError.
    """
    for allocator in ("DefaultCPUAllocator: ", "Storage size calculation"):
        if isinstance(error, RuntimeError) and allocator in str(error):
            return first_line(error).split("DefaultCPUAllocator: ")[-1]
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # torch's, for a GPU
        return first_line(error) if str(error) else ""
    return None


def did_you_mean(word: str, candidates: Sequence[str]) -> str:
    """Suggest the candidates most similar to a misspelled word, ignoring case; empty if none is similar.

    >>> did_you_mean("pretrian", ["pretrain", "embed"])
    " (did you mean 'pretrain'?)"
    """
    lowercase = {candidate.lower() for candidate in candidates}
    similar = difflib.get_close_matches(word.lower(), lowercase, cutoff=SIMILARITY_CUTOFF)
    suggestions = [candidate for candidate in candidates if candidate.lower() in similar]
    suggestions.sort(key=lambda candidate: similar.index(candidate.lower()))
    return f" (did you mean {' or '.join(map(repr, suggestions))}?)" if suggestions else ""


def printable(text: str) -> str:
    """Escape characters that a terminal or file may not be able to show, so that the text fits on one line.

    >>> printable("two\\nlines")
    'two\\\\nlines'
    """
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


@contextmanager
def storage_errors(path: Path, size: int | None = None) -> Iterator[None]:
    """Turn errors from writing `path` into a `StorageError`; `size` is the number of bytes to be written, if known."""
    try:
        yield
    except (OSError, RuntimeError) as error:  # torch wraps the OSError in a RuntimeError
        cause = _find_os_error(error)
        if cause is None or isinstance(cause, StorageError):
            raise
        details = "" if size is None else f"it needs {_format_bytes(size)}"
        with suppress(OSError):
            free = f"{_format_bytes(shutil.disk_usage(path.parent).free)} are free in {str(path.parent)!r}"
            details = f"{details}, and {free}" if details else free
        details = f" ({details})" if details else ""
        raise StorageError(f"cannot write {str(path)!r}: {cause.strerror or cause}{details}") from error


def _find_os_error(error: BaseException | None) -> OSError | None:
    """Return the first OSError in a chain of exceptions."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__ or error.__context__
    return error


def _format_bytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 50_000 else f"{count / 1e3:,.1f} kB"
