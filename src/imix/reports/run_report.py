"""`imix.report`: an HTML report about runs, which can be updated while they train."""

import time
from collections.abc import Sequence
from pathlib import Path

from imix.errors import InputError
from imix.files import check_output_path, locked
from imix.output import print_message
from imix.reports.groups import evaluate_if_needed, group_runs
from imix.reports.page import write_report
from imix.run import Run, as_run, load_run
from imix.run.stored_encoder import encoder_file, is_export

MIN_SAMPLES = 10
WATCH_SECONDS = 10  # between two updates of the report


def report(
    runs: "Sequence[Run | str | Path] | Run | str | Path",
    out: "str | Path | None" = None,
    *,
    samples: int = 2000,
    names: Sequence[str] = (),
    watch: bool = False,
) -> Path:
    """Write an HTML report about one or several runs: results, training curves, embedding maps, settings.

    The page is a single file that works offline. Runs that differ only in their seed are grouped. A run without results
    is evaluated first if its data has labels. Runs whose training is not finished are shown with their current epoch.
    Runs that have not written a checkpoint yet are skipped.

    Parameters
    ----------
    runs : Run, path, or a sequence of them
        The runs, or their folders.
    out : path, optional
        File to write, ending in .html or .htm. By default report.html in the folder of a single run, or in the
        current folder if there are several runs.
    samples : int
        Maximum number of samples in an embedding map, at least 10. The page contains these samples.
    names : sequence of str
        Names of the runs on the page, one for each. By default the names of their folders.
    watch : bool
        Write the report again whenever a run has new metrics, until none of the runs is training. The page reloads
        itself. Runs are evaluated when they have stopped.

    Returns
    -------
    Path
        The file that was written.

    Examples
    --------
    >>> imix.report(["runs/moco-0", "runs/moco-1", "runs/npair-0"], "report.html")  # doctest: +SKIP
    PosixPath('report.html')
    """
    runs = [runs] if isinstance(runs, Run | str | Path) else list(runs)
    names = [names] if isinstance(names, str) else list(names)
    if not runs:
        raise InputError("a report needs at least one run")
    if names and len(names) != len(runs):
        raise InputError(f"`names` needs one name for each of the {len(runs)} runs; got {len(names)}")
    if samples < MIN_SAMPLES:
        raise InputError(f"`samples` must be at least {MIN_SAMPLES}; got {samples}")
    out = _default_path(runs) if out is None else check_output_path(Path(out), (".html", ".htm"), "a report")
    if watch:
        _watch(runs, names, out, samples)
    return _write(runs, names, out, samples)


def _default_path(runs: "Sequence[Run | str | Path]") -> Path:
    """report.html in the folder of a single run; in the current folder for several runs and for exports."""
    folder = runs[0].path if isinstance(runs[0], Run) else Path(runs[0])
    if len(runs) > 1 or folder is None or is_export(folder):
        return Path("report.html")
    return (folder.parent if folder.suffix == ".safetensors" else folder) / "report.html"


def _write(
    runs: "Sequence[Run | str | Path]", names: Sequence[str], out: Path, samples: int, *, is_final: bool = True
) -> Path:
    """Write the report. One that is not final reloads itself, and its runs are not evaluated."""
    usable = _with_encoder(runs)
    load = as_run if is_final else _load  # the page shows the progress of training
    loaded = [load(runs[i]) for i in usable]
    for run in loaded if is_final else []:
        evaluate_if_needed(run)
    groups = group_runs(loaded, [names[i] for i in usable] if names else [])
    first, *others = {Path(run.config.data.name) for run in loaded}
    if others:
        title = f"{len(loaded)} runs on {1 + len(others)} data sets"
    elif len(groups) == 1:
        title = f"{groups[0].name} on {first.name}"
    else:
        title = f"Comparison of {len(groups)} configurations on {first.name}"
    folders = " ".join(str(run.path) for run in loaded if run.path is not None)
    unfinished = [f"{run.path or 'the exported encoder'} is at {run.progress}" for run in loaded if run.progress]
    note = f"Training is not finished: {'; '.join(unfinished)}." if unfinished else ""
    reload_seconds = 0 if is_final else WATCH_SECONDS
    return write_report(out, title, groups, note, f"imix report {folders}", samples, reload_seconds)


def _with_encoder(runs: "Sequence[Run | str | Path]") -> list[int]:
    """Positions of the runs that have an encoder; if no run has one, of all runs, to let loading fail."""
    usable = [i for i, run in enumerate(runs) if isinstance(run, Run) or not _has_no_encoder(Path(run))]
    for i, run in enumerate(runs) if usable else []:
        if i not in usable:
            print_message(f"skipped {run}: it has not written a checkpoint yet")
    return usable or list(range(len(runs)))


def _load(run: "Run | str | Path") -> Run:
    return run if isinstance(run, Run) else load_run(run)


def _has_no_encoder(folder: Path) -> bool:
    return (folder / "config.json").is_file() and not encoder_file(folder).is_file()


def _watch(runs: "Sequence[Run | str | Path]", names: Sequence[str], out: Path, samples: int) -> None:
    """Write the report whenever there are new metrics, as long as one of the runs is training."""
    paths = [run.path if isinstance(run, Run) else Path(run) for run in runs]
    folders = [path for path in paths if path is not None and path.is_dir()]
    shown: list[int] | None = None
    while any(map(_is_training, folders)):
        state = [file.stat().st_mtime_ns for folder in folders for file in _watched_files(folder) if file.exists()]
        if all(map(_has_no_encoder, folders)):
            if shown is None:
                print_message("waiting for the first checkpoint")
            shown = []
        elif state != shown:
            _write(runs, names, out, samples, is_final=False)
            if not shown:
                print_message(f"open {out}; it is updated until training ends")
            shown = state
        time.sleep(WATCH_SECONDS)


def _watched_files(folder: Path) -> tuple[Path, Path]:
    return folder / "metrics.jsonl", folder / "encoder.safetensors"


def _is_training(folder: Path) -> bool:
    """Whether a process trains in this run folder, and so holds its lock."""
    try:
        with locked(folder, wait=False, shared=True):
            return False
    except BlockingIOError:
        return True
