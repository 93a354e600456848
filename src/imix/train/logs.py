"""The log of a run: metrics.jsonl, and optionally a progress bar, TensorBoard and Weights & Biases."""

import hashlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TextIO, cast

from imix.errors import InputError, storage_errors
from imix.files import append_jsonl, read_metrics, write_jsonl
from imix.output import TolerantStream, stderr_is_terminal
from imix.progress import ProgressLine
from imix.run.config import RunConfig
from imix.settings import Settings

Record = dict[str, Any]
Writer = Callable[[Record], object]
PROGRESS_METRICS = {  # shown from their first record on
    "effective_rank": "effective rank {:.0f}",
    "batch_1nn": "1-NN in batch {:.0%}",
    "knn": "kNN {:.1%}",
}


def check_loggers(settings: Settings, folder: Path | None) -> None:
    """Raise InputError if a requested logger is not installed, or has no folder to write to."""
    for name in ("tensorboard", "wandb"):
        if getattr(settings, name) and importlib.util.find_spec(name) is None:
            raise InputError(f"`{name}` needs the extra: pip install 'imix-ssl[{name}]'")
        if getattr(settings, name) and folder is None:
            raise InputError(f"`{name}` needs a run folder; pass `out`")


class Log:
    """The records of a run, in memory and in metrics.jsonl, each written immediately and passed to all `writers`."""

    def __init__(self, path: Path | None = None, up_to_step: int = 0, writers: Sequence[Writer] = ()) -> None:
        self.path, self.writers = path, writers
        self.records: list[Record] = []
        if path is not None:
            self.records = read_metrics(path, up_to_step)
            write_jsonl(path, self.records)  # drops records after the checkpoint; training repeats those steps

    def write(self, record: Record) -> None:
        """Add a record."""
        self.records.append(record)
        if self.path is not None:
            append_jsonl(self.path, record)
        for write in self.writers:
            write(record)

    def flush_to_disk(self) -> None:
        """Force metrics.jsonl to disk."""
        if self.path is not None:
            with storage_errors(self.path), open(self.path, "rb+") as file:
                os.fsync(file.fileno())


@contextmanager
def open_log(folder: Path | None, config: RunConfig, total_steps: int, done: int, progress: bool) -> Iterator[Log]:
    """Open the log of a run at step `done`, with the loggers that its settings request."""
    settings, writers = config.settings, list[Writer]()
    with ExitStack() as stack:
        if folder is not None and settings.tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            summary = stack.enter_context(SummaryWriter(str(folder / "tensorboard"), purge_step=done + 1))
            writers.append(lambda record: _write_scalars(summary, record))
        if folder is not None and settings.wandb:
            import wandb

            run_id = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:16]  # the same when the run is resumed
            options = {"project": "imix", "id": run_id, "name": folder.name, "dir": str(folder), "resume": "allow"}
            wandb_run = stack.enter_context(wandb.init(config=config.to_json(), **options))
            writers.append(lambda record: wandb_run.log(record, step=record["step"]))
        if progress:
            writers.append(stack.enter_context(_progress_bar(total_steps, done)))
        yield Log(None if folder is None else folder / "metrics.jsonl", done, writers)


def _write_scalars(summary: Any, record: Record) -> None:
    for name in record.keys() - {"step", "epoch"}:
        summary.add_scalar(name, record[name], record["step"])


@contextmanager
def _progress_bar(total_steps: int, done: int) -> Iterator[Writer]:
    """Loss, views per second and time left: a live bar in a terminal, a line every ten seconds elsewhere."""
    latest: Record = {}

    def describe(record: Record) -> str:
        latest.update(record)
        text = f"epoch {record['epoch']}  loss {record['loss']:.4f}  {record['views_per_second']:,.0f} views/s"
        metrics = [template.format(latest[name]) for name, template in PROGRESS_METRICS.items() if name in latest]
        return "  ".join([text, *metrics])

    if not stderr_is_terminal():
        line = ProgressLine("training", total_steps, "steps", always_show_ends=True)
        yield lambda record: line(record["step"], describe(record))
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    with Progress(*columns, console=Console(file=cast("TextIO", TolerantStream(sys.stderr)))) as bar:
        task = bar.add_task("", total=total_steps, completed=done)
        yield lambda record: bar.update(task, completed=record["step"], description=describe(record))
