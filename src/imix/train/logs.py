"""Destinations of a run's metrics: metrics.jsonl, and optionally a progress bar, TensorBoard and Weights & Biases."""

import hashlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any, Protocol

from imix.errors import InputError, storage_errors
from imix.files import append_jsonl, read_metrics, write_jsonl
from imix.progress import ProgressLine


class Sink(Protocol):
    """A destination for records."""

    def write(self, record: dict[str, Any]) -> None:
        """Write one record."""

    def close(self) -> None:
        """Release resources; no more records follow."""


def check_extras(tensorboard: bool, wandb: bool) -> None:
    """Raise InputError if a requested logger is not installed."""
    for requested, module in ((tensorboard, "tensorboard"), (wandb, "wandb")):
        if requested and importlib.util.find_spec(module) is None:
            raise InputError(f"--{module} needs the extra: pip install 'imix-ssl[{module}]'")


class Log:
    """The records of a run, in memory and in every sink."""

    def __init__(self, sinks: list[Sink], records: list[dict[str, Any]] | None = None) -> None:
        self.sinks = sinks
        self.records = records or []

    def write(self, record: dict[str, Any]) -> None:
        """Add a record."""
        self.records.append(record)
        for sink in self.sinks:
            sink.write(record)

    def flush_to_disk(self) -> None:
        """Force metrics.jsonl to disk."""
        for sink in self.sinks:
            if isinstance(sink, MetricsFile):
                sink.flush_to_disk()

    def close(self) -> None:
        """Close every sink."""
        for sink in self.sinks:
            sink.close()


class MetricsFile:
    """metrics.jsonl: one record per line, each written immediately."""

    def __init__(self, path: Path, up_to_step: int) -> None:
        self.path = path
        self.records = read_metrics(path, up_to_step)
        write_jsonl(path, self.records)  # drops records after the checkpoint; training repeats those steps

    def write(self, record: dict[str, Any]) -> None:
        """Append the record."""
        append_jsonl(self.path, record)

    def flush_to_disk(self) -> None:
        """fsync the file."""
        with storage_errors(self.path), open(self.path, "rb+") as file:
            os.fsync(file.fileno())

    def close(self) -> None:
        """Nothing to do: the file is not kept open."""


class ProgressBar:
    """Loss, views per second and time left: a live bar in a terminal, a line every ten seconds elsewhere."""

    def __init__(self, total_steps: int, done: int = 0) -> None:
        self.line = ProgressLine("training", total_steps, "steps", always_show_ends=True)
        self.bar: Any = None
        self.latest: dict[str, str] = {}
        if sys.stderr.isatty():
            try:
                from rich.console import Console
                from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
            except ImportError:
                return
            columns = (BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
            self.bar = Progress(*columns, console=Console(stderr=True))
            self.task = self.bar.add_task("", total=total_steps, completed=done)
            self.bar.start()

    def write(self, record: dict[str, Any]) -> None:
        """Show the record."""
        text = f"epoch {record['epoch']}  loss {record['loss']:.4f}  {record['views_per_second']:,.0f} views/s"
        if "effective_rank" in record:
            self.latest["effective_rank"] = f"  effective rank {record['effective_rank']:.0f}"
        if "batch_1nn" in record:
            self.latest["batch_1nn"] = f"  1-NN in batch {100 * record['batch_1nn']:.0f}%"
        if "knn" in record:
            self.latest["knn"] = f"  kNN {100 * record['knn']:.1f}%"
        text += "".join(self.latest.values())
        if self.bar is not None:
            self.bar.update(self.task, completed=record["step"], description=text)
        else:
            self.line(record["step"], text)

    def close(self) -> None:
        """Remove the bar from the screen."""
        if self.bar is not None:
            self.bar.stop()


class TensorBoard:
    """TensorBoard scalars, in the run folder."""

    def __init__(self, folder: Path, done: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(folder / "tensorboard"), purge_step=done + 1)

    def write(self, record: dict[str, Any]) -> None:
        """Log every number of the record."""
        for name in record.keys() - {"step", "epoch"}:
            self.writer.add_scalar(name, record[name], record["step"])

    def close(self) -> None:
        """Flush and close."""
        self.writer.close()


class WandB:
    """Weights & Biases."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        import wandb

        run_id = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:16]  # the same when the run is resumed
        self.run = wandb.init(
            project="imix", id=run_id, name=folder.name, dir=str(folder), config=config, resume="allow"
        )

    def write(self, record: dict[str, Any]) -> None:
        """Log the record at its step."""
        self.run.log(record, step=record["step"])

    def close(self) -> None:
        """Finish the W&B run."""
        self.run.finish()
