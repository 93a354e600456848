"""The log of a run: metrics.jsonl, and optionally a progress bar, TensorBoard and Weights & Biases."""

import hashlib
import importlib.util
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from imix.errors import InputError, storage_errors
from imix.files import append_jsonl, read_metrics, write_jsonl
from imix.progress import ProgressBar
from imix.run.config import RunConfig
from imix.run.metrics import describe_metrics
from imix.settings import Settings

Record = dict[str, Any]
Writer = Callable[[Record], object]


def check_loggers(settings: Settings, folder: Path | None) -> None:
    """Raise InputError if a requested logger is not installed, or has no folder to write to."""
    for name in ("tensorboard", "wandb"):
        if getattr(settings, name) and importlib.util.find_spec(name) is None:
            raise InputError(f"`{name}` needs the extra: pip install 'imix-ssl[{name}]'")
        if getattr(settings, name) and folder is None:
            raise InputError(f"`{name}` needs a run folder; pass `out`")


class Log:
    """The records of a run, in memory and in metrics.jsonl, each written immediately and passed to all `writers`.

    `bar` shows the steps between the records.
    """

    def __init__(
        self,
        path: Path | None = None,
        up_to_step: int = 0,
        writers: Sequence[Writer] = (),
        bar: ProgressBar | None = None,
    ) -> None:
        self.path, self.writers, self.bar = path, writers, bar
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

    def advance(self, step: int) -> None:
        """Move the progress bar to a step."""
        if self.bar is not None:
            self.bar.advance(step)

    def flush_to_disk(self) -> None:
        """Force metrics.jsonl to disk."""
        if self.path is not None:
            with storage_errors(self.path), open(self.path, "rb+") as file:
                os.fsync(file.fileno())


@contextmanager
def open_log(folder: Path | None, config: RunConfig, total_steps: int, done: int, progress: bool) -> Iterator[Log]:
    """Open the log of a run at step `done`, with the loggers that its settings request."""
    settings, writers, bar = config.settings, list[Writer](), None
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
            epoch = done * settings.epochs // total_steps
            position = f"epoch {min(epoch + 1, settings.epochs)}/{settings.epochs}"
            bar = stack.enter_context(ProgressBar("training", total_steps, "steps", done=done, position=position))
            writers.append(_RecordDisplay(bar, settings.epochs))
        yield Log(None if folder is None else folder / "metrics.jsonl", done, writers, bar)


def _write_scalars(summary: Any, record: Record) -> None:
    for name in record.keys() - {"step", "epoch"}:
        summary.add_scalar(name, record[name], record["step"])


class _RecordDisplay:
    """Shows the epoch, the loss, health metrics and the speed next to a progress bar."""

    def __init__(self, bar: ProgressBar, epochs: int) -> None:
        self.bar, self.epochs = bar, epochs
        self.latest: Record = {}

    def __call__(self, record: Record) -> None:
        self.latest |= record
        details = [f"{name} {value}" for name, value in describe_metrics(self.latest).items()]
        speed = f"{record['views_per_second']:,.0f} views/s"
        self.bar.show(record["step"], f"epoch {record['epoch']}/{self.epochs}", *details, speed)
