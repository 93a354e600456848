"""`imix.transfer`: evaluates runs on other data sets and returns a table (tables 4a, C.1 and C.2 of the paper)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from imix.errors import InputError
from imix.evaluation import EvaluateOptions, Result, evaluate
from imix.run import Run, as_run


def transfer(
    runs: "Sequence[Run | str | Path] | Run | str | Path",
    data: Sequence[str | Path] | str | Path,
    protocol: str = "linear",
    **options: Unpack[EvaluateOptions],
) -> list[list[Result]]:
    """Evaluate every run on every data set.

    Parameters
    ----------
    runs : Run, str, Path or a sequence of these
        Runs or run folders.
    data : str, Path or a sequence of these
        Names or paths of data sets.
    protocol : str
        A protocol of `imix.evaluate`.
    **options
        Options of `imix.evaluate`.

    Returns
    -------
    list of list of Result
        One row per run, one column per data set.

    Examples
    --------
    >>> settings = imix.Settings(epochs=1, batch_size=1024, encoder="mlp:16-32", device="cpu")
    >>> run = imix.pretrain("digits", settings, progress=False)
    >>> [[result]] = imix.transfer(run, "digits", "knn", device="cpu")
    >>> result.split.test
    500
    """
    runs = [runs] if isinstance(runs, Run | str | Path) else runs
    data = [data] if isinstance(data, str | Path) else data
    if not runs or not data:
        raise InputError("transfer needs at least one run and one data set")
    loaded = [as_run(run) for run in runs]
    return [[evaluate(run, name, protocol, **options) for name in data] for run in loaded]


def format_table(names: Sequence[str], data: Sequence[str], results: Sequence[Sequence[Result]]) -> list[str]:
    """Format results as the lines of a table, with one line per run and one column per data set."""
    headers = [Path(name).name for name in data]
    widths = [max(len(header), 12) + 2 for header in headers]
    name_width = max(len(name) for name in names) + 2
    lines = [" " * name_width + "".join(f"{header:>{width}}" for header, width in zip(headers, widths, strict=True))]
    for name, row in zip(names, results, strict=True):
        cells = "".join(f"{result.formatted:>{width}}" for result, width in zip(row, widths, strict=True))
        lines.append(f"{name:<{name_width}}{cells}")
    return lines
