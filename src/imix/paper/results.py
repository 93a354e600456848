"""What was found: one tidy file for each experiment, a line for each number of each run; and means over runs."""

import csv
import io
import statistics
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from imix.errors import InputError
from imix.files import locked, write_text
from imix.paper.experiment import Cell
from imix.paper.switches import Switches


@dataclass(frozen=True)
class Found:
    """One number of one run; per cent, or units of 0.0001 for FED. A map has none."""

    row: str
    column: str
    seed: int
    budget: str
    value: float | None  # the linear classifier's rate chosen on held-out training samples
    paper_way: float | None  # chosen on the test samples, as the authors did; the same where nothing is chosen
    knn: float | None  # the nearest neighbours' vote, where accuracy is measured by a linear classifier
    run: str
    seconds: float  # of training and measuring, in the process that finished it
    machine: str
    version: str
    date: str

    @property
    def key(self) -> tuple[str, str, str]:
        """What there is one number of."""
        return self.row, self.column, self.run


def read(path: Path) -> list[Found]:
    """All lines of a file; none where there is no file."""
    if not path.exists():
        return []
    kinds: dict[str, Callable[[str], Any]] = {
        "seed": int,
        "seconds": float,
        "value": _number,
        "paper_way": _number,
        "knn": _number,
    }
    try:
        with open(path, newline="", encoding="utf-8") as file:
            return [Found(**{k: kinds.get(k, str)(v) for k, v in line.items()}) for line in csv.DictReader(file)]
    except (TypeError, ValueError) as error:
        raise InputError(f"{str(path)!r} is not a file of results of this version of imix ({error})") from error


def add(path: Path, found: Iterable[Found]) -> None:
    """Add lines, in place of those of the same number; many processes may do so at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.parent):
        lines = {line.key: line for line in read(path)} | {line.key: line for line in found}
        text = io.StringIO()
        writer = csv.DictWriter(text, [field.name for field in fields(Found)], lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: "" if v is None else v for k, v in asdict(line).items()} for line in lines.values())
        write_text(path, text.getvalue())


def of_cell(lines: Iterable[Found], cell: Cell, seeds: int) -> list[Found]:
    """What is known of a cell, seed by seed."""
    names = {cell.training.name(seed) for seed in range(seeds)}
    found = [line for line in lines if (line.row, line.column) == (cell.label, cell.column) and line.run in names]
    return sorted(found, key=lambda line: line.seed)


class Ours(NamedTuple):
    """What was found of a cell over seeds, and the other reading of it."""

    mean: float
    spread: float | None
    other: float

    def __str__(self) -> str:
        spread = "" if self.spread is None else f" ± {self.spread:.1f}"
        other = "" if f"{self.other:.1f}" == f"{self.mean:.1f}" else f" ({self.other:.1f})"
        return f"{self.mean:.1f}{spread}{other}"


def ours(cell: Cell, lines: Iterable[Found], seeds: int, switches: Switches) -> Ours | None:
    """Mean and standard deviation of what was found; None where nothing was."""
    found = [line for line in of_cell(lines, cell, seeds) if line.value is not None]
    if not found:
        return None
    chosen = [line.value or 0.0 for line in found]
    papers = [line.paper_way or 0.0 for line in found]
    first, other = (papers, chosen) if switches.choose_on == "test" else (chosen, papers)
    spread = statistics.stdev(first) if len(first) > 1 else None
    return Ours(statistics.mean(first), spread, statistics.mean(other))


def _number(text: str) -> float | None:
    return float(text) if text else None
