"""Transfer: what runs are worth on data that they were not trained on, as a table (the paper's tables 4a, C.1, C.2)."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from imix.errors import InputError
from imix.evaluation import Result, evaluate
from imix.run import Run, as_run


def transfer(
    runs: "Sequence[Run | str | Path] | Run | str | Path",
    data: Sequence[str | Path] | str | Path,
    protocol: str = "linear",
    *,
    label: str | None = None,
    columns: Mapping[str, str] | None = None,
    data_dir: str | None = None,
    augment: bool = False,
    standardise: bool = False,
    device: str = "auto",
    seed: int = 0,
) -> list[list[Result]]:
    """Evaluate every run, or one, on every data set; a row for each run. What is given further is as for `evaluate`.

    `label` is the column of tables that holds the classes; what each run was told unless given.
    """
    runs = [runs] if isinstance(runs, Run | str | Path) else runs
    data = [data] if isinstance(data, str | Path) else data
    if not runs or not data:
        raise InputError("transfer needs runs and the data to evaluate them on")
    loaded = [as_run(run) for run in runs]

    def worth(run: Run, name: str | Path) -> Result:
        return evaluate(
            run,
            name,
            protocol,
            label=label,
            columns=columns,
            data_dir=data_dir,
            augment=augment,
            standardise=standardise,
            device=device,
            seed=seed,
        )

    return [[worth(run, name) for name in data] for run in loaded]


def as_table(names: Sequence[str], data: Sequence[str], results: Sequence[Sequence[Result]]) -> str:
    """Results as lines of text, a line for each run and a column for each data set."""
    heads = [Path(name).name for name in data]
    widths = [max(len(head), 12) + 2 for head in heads]
    first = max(len(name) for name in names) + 2
    lines = [" " * first + "".join(f"{head:>{width}}" for head, width in zip(heads, widths, strict=True))]
    for name, row in zip(names, results, strict=True):
        cells = "".join(f"{result.shown:>{width}}" for result, width in zip(row, widths, strict=True))
        lines.append(f"{name:<{first}}{cells}")
    return "\n".join(lines)
