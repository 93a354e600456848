"""Result files, one CSV per experiment, and means over seeds.

Each line is one number of one run (`ResultRow`):

row, column     the cell of the table, or the point of the figure
seed, budget    of the run
value           percent, or 10^-4 for FED; empty for maps. For linear evaluation: the test accuracy with the learning
                rate that is best on held-out training samples
best_on_test    the same with the learning rate that is best on the test samples, as the authors did; equal to `value`
                if there is no learning rate to choose
knn             kNN accuracy in percent, for cells measured by linear evaluation
run             name of the run folder; it contains a hash of the settings, so other settings cannot match this cell
seconds         training and measuring, in the process that finished the job
machine, version, date
"""

import csv
import io
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from imix.errors import InputError
from imix.files import locked, write_text
from imix.reproduce.experiment import Ambiguities, Cell, Number


@dataclass(frozen=True)
class ResultRow:
    """One line of a result file; the module's docstring describes the columns."""

    row: str
    column: str
    seed: int
    budget: str
    value: float | None
    best_on_test: float | None
    knn: float | None
    run: str
    seconds: float
    machine: str
    version: str
    date: str

    @property
    def key(self) -> tuple[str, str, str]:
        """Identifies the line: a file contains each key once."""
        return self.row, self.column, self.run


def read_results(path: Path) -> list[ResultRow]:
    """All lines of a result file; an empty list if the file does not exist."""
    if not path.exists():
        return []
    try:
        with open(path, newline="", encoding="utf-8") as file:
            return [_parse(line) for line in csv.DictReader(file)]
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{str(path)!r} is not a result file of this version of imix ({error})") from error


def _parse(line: dict[str, Any]) -> ResultRow:
    numbers = {k: float(line[k]) if line[k] else None for k in ("value", "best_on_test", "knn")}
    return ResultRow(**line | numbers | {"seed": int(line["seed"]), "seconds": float(line["seconds"])})


def add_result(path: Path, row: ResultRow) -> None:
    """Add a line to a result file and replace the one with the same key; safe to call from several processes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.parent):
        by_key = {row.key: row for row in (*read_results(path), row)}
        text = io.StringIO()
        writer = csv.DictWriter(text, [field.name for field in fields(ResultRow)], lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: "" if v is None else v for k, v in asdict(row).items()} for row in by_key.values())
        write_text(path, text.getvalue())


def rows_for_cell(results: Iterable[ResultRow], cell: Cell) -> list[ResultRow]:
    """The lines of one cell: one for each seed."""
    rows = [row for row in results if (row.row, row.column) == (cell.label, cell.column)]
    return [row for row in rows if row.run == cell.training.name(row.seed)]


def summarize(cell: Cell, results: Iterable[ResultRow], ambiguities: Ambiguities) -> Number | None:
    """Mean and standard deviation of a cell over its runs; None if there are none."""
    rows = [row for row in rows_for_cell(results, cell) if row.value is not None]
    if not rows:
        return None
    held_out = [row.value or 0.0 for row in rows]
    on_test = [row.best_on_test or 0.0 for row in rows]
    chosen, other = (on_test, held_out) if ambiguities.choose_on == "test" else (held_out, on_test)
    std = statistics.stdev(chosen) if len(chosen) > 1 else None
    return Number(statistics.mean(chosen), std, statistics.mean(other))
