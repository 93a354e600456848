"""`imix reproduce`: run the trainings behind tables and figures, measure them, and set them beside the paper's numbers.

    OUT/runs/            a run folder for each training; tables and figures share them
    OUT/table1.csv       what was found, a line for each number of each run
    OUT/maps/            pictures of features
    OUT/paper.html       paper and ours side by side, all that is known; OUT/table1.md the same for a single table

Whatever is found already is not run again, so a command that was stopped goes on where it was when it is given again.
"""

import datetime
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import imix
from imix.errors import InputError, TrainingError
from imix.paper.budget import Budget, Job, Wanted, all_jobs, remaining, wanted
from imix.paper.page import write_pages
from imix.paper.processes import do_all
from imix.paper.results import Found, add
from imix.paper.switches import Switches
from imix.paper.work import Outcome, Value, Worker
from imix.train.device import pick_device
from imix.train.stopping import stopping_at_once


def reproduce(
    names: Sequence[str] | str,
    *,
    budget: Budget = "short",
    switches: Switches = Switches(),
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    seeds: int | None = None,
    data_dir: str | Path | None = None,
    devices: Sequence[str] = ("auto",),
    part: tuple[int, int] = (0, 1),
    out: str | Path = "imix-paper",
    progress: bool = True,
) -> Path:
    """Run what is not done yet of tables and figures, and write the page that compares them with the paper.

    `data_dir` has a folder for each data set that is not to be downloaded, by its name, or the files themselves. With
    several `devices`, or one of them several times, as many trainings run side by side. `part` (i, n) does the i-th of
    n shares of the trainings.
    """
    out = Path(out)
    if not devices:
        raise InputError("name at least one device")
    if data_dir is not None and not Path(data_dir).is_dir():
        raise InputError(f"no folder {str(data_dir)!r}, which was given as data_dir")
    for device in devices:
        pick_device(device)  # which says so where there is none
    asked = wanted([names] if isinstance(names, str) else names, budget, switches, rows, columns, seeds)
    share, shares = part
    if not 0 <= share < shares:
        raise InputError(f"part must be I/N with I from 0 to N - 1; got {share}/{shares}")
    mine = {job.name for job in all_jobs(asked)[share::shares]}
    jobs = [job for job in remaining(asked, out) if job.name in mine]
    out.mkdir(parents=True, exist_ok=True)
    if progress:
        print(f"{len(jobs)} of {len(mine)} trainings are to be done; results go to {out}", file=sys.stderr, flush=True)
    worker = Worker(out, budget, None if data_dir is None else Path(data_dir), progress=progress)
    failures: list[InputError | TrainingError] = []
    with stopping_at_once(True), closing(do_all(jobs, worker, devices)) as doing:
        for done, (job, outcome) in enumerate(doing, 1):
            _keep(asked, job, outcome, budget, out)
            failures += outcome.failures
            said = "; ".join([f"{outcome.seconds:.0f} s", *map(str, outcome.failures)])
            if progress:
                print(f"[{done}/{len(jobs)}] {job.name}: {said}", file=sys.stderr, flush=True)
    page = write_pages(out, asked, budget, switches)
    if failures:
        counts = Counter(map(str, failures)).items()
        reasons = "; ".join(f"{reason} ({many} of {len(jobs)} trainings)" for reason, many in counts)
        kind = TrainingError if any(isinstance(failure, TrainingError) for failure in failures) else InputError
        raise kind(f"not all could be done: {reasons}")
    return page


def _keep(asked: Sequence[Wanted], job: Job, outcome: Outcome, budget: Budget, out: Path) -> None:
    """Write what a job found to the file of every experiment that asks for it."""
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    for experiment, cells, seeds in asked:
        lines = []
        for cell in cells:
            asks = cell.measure, cell.on
            if job.seed >= seeds or cell.training.name(job.seed) != job.name or asks not in outcome.values:
                continue
            values = Value(*(None if found is None else round(found, 3) for found in outcome.values[asks]))
            where = (cell.label, cell.column, job.seed, budget, *values, job.name)
            lines.append(Found(*where, round(outcome.seconds, 1), outcome.machine, imix.__version__, date))
        if lines:
            add(out / f"{experiment.name}.csv", lines)
