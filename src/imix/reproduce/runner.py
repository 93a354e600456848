"""Runs the training and measurements for tables and figures, and compares the numbers with the paper's.

    OUT/runs/            one folder per training run; tables and figures share them
    OUT/table1.csv       results, one line per number of each run
    OUT/maps/            maps of features
    OUT/table1.md        one table next to the paper's numbers
    OUT/figure2.svg      one figure

Existing results are not recomputed, so repeating an interrupted command continues it.
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from imix.errors import InputError, RunFolderBusy, TrainingError
from imix.output import print_message
from imix.reports.figure import require_matplotlib
from imix.reproduce.experiment import Ambiguities
from imix.reproduce.jobs import list_jobs
from imix.reproduce.page import write_pages
from imix.reproduce.parallel import run_jobs
from imix.reproduce.requests import Budget, select_requests
from imix.reproduce.worker import Failure, Worker
from imix.runtime.device import pick_device
from imix.runtime.interrupts import stop_on_sigterm


def reproduce(
    names: Sequence[str] | str,
    *,
    budget: Budget = "short",
    ambiguities: Ambiguities = Ambiguities(),
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    seeds: int | None = None,
    data_dir: str | Path | None = None,
    devices: Sequence[str] = ("auto",),
    shard: tuple[int, int] = (0, 1),
    out: str | Path = "imix-paper",
    progress: bool = True,
) -> list[Path]:
    """Reproduce tables and figures of the paper; existing results are not recomputed.

    Parameters
    ----------
    names : str or sequence of str
        Tables and figures, such as "table1" or "figureC1", or "all".
    budget : {"short", "paper", "smoke"}
        "paper" trains at full length, "short" for minutes per run on a GPU, "smoke" on tiny fake data.
    ambiguities : Ambiguities
        Choices for the points the paper leaves open.
    rows, columns : sequence of str
        Only these rows (full names, or components between commas and arrows) and columns; by default all.
    seeds : int, optional
        Number of seeds; by default the paper's number for the "paper" budget and 1 otherwise.
    data_dir : path, optional
        Folder that contains a folder for each data set, by name, or the files of a data set. Other data sets are
        downloaded.
    devices : sequence of str
        Devices to use in parallel; list a device twice to run two jobs on it at a time.
    shard : tuple (i, n)
        Run only shard i of n, counted from 0.
    out : path
        Folder for runs, results and pages.
    progress : bool
        Whether to print progress.

    Returns
    -------
    list of Path
        The Markdown pages that compare the results with the paper, one for each table or figure.

    Raises
    ------
    InputError, TrainingError
        If some runs or measurements failed; all others are finished and written first.
    """
    out = Path(out)
    if not devices:
        raise InputError("`devices` is empty; pass at least one device, such as auto or cuda:0")
    if data_dir is not None and not Path(data_dir).is_dir():
        raise InputError(f"`data_dir` must be an existing folder; got {str(data_dir)!r}")
    for device in devices:
        pick_device(device)  # raises if it is not available
    requests = select_requests([names] if isinstance(names, str) else names, budget, ambiguities, rows, columns, seeds)
    if any(request.experiment.name.startswith("figure") for request in requests):
        require_matplotlib()
    index, n_shards = shard
    if not 0 <= index < n_shards:
        raise InputError(f"`shard` must be I/N with I from 0 to N - 1; got {index}/{n_shards}")
    names_in_shard = {job.name for job in list_jobs(requests)[index::n_shards]}
    jobs = [job for job in list_jobs(requests, out) if job.name in names_in_shard]
    out.mkdir(parents=True, exist_ok=True)

    def log(message: str) -> None:
        if progress:
            print_message(message)

    log(f"{len(jobs)} of {len(names_in_shard)} runs remaining; results in {out}")
    worker = Worker(out, budget, None if data_dir is None else Path(data_dir), progress=progress)
    failures: list[Failure] = []
    with stop_on_sigterm(True), closing(run_jobs(jobs, worker, devices)) as outcomes:
        for n_done, (job, outcome) in enumerate(outcomes, 1):
            failures += outcome.failures
            status = "; ".join([f"{outcome.seconds:.0f} s", *map(str, outcome.failures)])
            log(f"[{n_done}/{len(jobs)}] {job.name}: {status}")
    pages = write_pages(out, requests, budget, ambiguities)
    if failures:
        raise _combine(failures, len(jobs))
    return pages


def _combine(failures: Sequence[Failure], n_jobs: int) -> Failure:
    """Combine failures into one error that states each reason once, of the most serious type among them."""
    counts = Counter(map(str, failures)).items()
    reasons = "; ".join(f"{reason} ({count} of {n_jobs} runs)" for reason, count in counts)
    error_types = (TrainingError, InputError, RunFolderBusy)
    error_type = next(t for t in error_types if any(isinstance(failure, t) for failure in failures))
    return error_type(f"not everything could be reproduced: {reasons}")
