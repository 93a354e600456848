"""What a run tells while it goes: metrics.jsonl always, a progress line, TensorBoard and Weights & Biases if asked."""

import hashlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any, Protocol

from imix.errors import InputError, storing
from imix.files import append_line, read_metrics, write_lines
from imix.progress import Told


class Sink(Protocol):
    """Somewhere records go."""

    def write(self, record: dict[str, Any]) -> None:
        """Take one record."""

    def close(self) -> None:
        """No more will come."""


def check_extras(tensorboard: bool, wandb: bool) -> None:
    """Refuse to log where what is needed for it is not installed."""
    for wanted, module in ((tensorboard, "tensorboard"), (wandb, "wandb")):
        if wanted and importlib.util.find_spec(module) is None:
            raise InputError(f"--{module} needs the extra: pip install 'imix-ssl[{module}]'")


class Log:
    """Records of a run, in memory and in every sink."""

    def __init__(self, sinks: list[Sink], records: list[dict[str, Any]] | None = None) -> None:
        self.sinks = sinks
        self.records = records or []

    def write(self, record: dict[str, Any]) -> None:
        """Add a record."""
        self.records.append(record)
        for sink in self.sinks:
            sink.write(record)

    def settle(self) -> None:
        """See that a checkpoint that is written now never knows of more than metrics.jsonl."""
        for sink in self.sinks:
            if isinstance(sink, Lines):
                sink.settle()

    def close(self) -> None:
        """Close every sink."""
        for sink in self.sinks:
            sink.close()


class Lines:
    """metrics.jsonl: one record a line, each written at once."""

    def __init__(self, path: Path, up_to_step: int) -> None:
        self.path = path
        self.records = read_metrics(path, up_to_step)
        write_lines(path, self.records)  # what came after the checkpoint is made again

    def write(self, record: dict[str, Any]) -> None:
        """Append the record."""
        append_line(self.path, record)

    def settle(self) -> None:
        """See that the records outlast the machine."""
        with storing(self.path), open(self.path, "rb+") as file:
            os.fsync(file.fileno())

    def close(self) -> None:
        """Nothing is held open."""


class Progress:
    """Loss, views per second and time left: a live bar on a terminal, a line every ten seconds elsewhere."""

    def __init__(self, total_steps: int, done: int = 0) -> None:
        self.told = Told("training", total_steps, "steps", ends=True)
        self.bar: Any = None
        self.last: dict[str, str] = {}
        if sys.stderr.isatty():
            try:
                from rich.console import Console
                from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
                from rich.progress import Progress as Bar
            except ImportError:
                return
            columns = (BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
            self.bar = Bar(*columns, console=Console(stderr=True))
            self.task = self.bar.add_task("", total=total_steps, completed=done)
            self.bar.start()

    def write(self, record: dict[str, Any]) -> None:
        """Show the record."""
        text = f"epoch {record['epoch']}  loss {record['loss']:.4f}  {record['views_per_second']:,.0f} views/s"
        if "rank" in record:
            self.last["rank"] = f"  rank {record['rank']:.0f}"
        if "nearest" in record:
            self.last["nearest"] = f"  nearest alike {100 * record['nearest']:.0f} %"
        if "knn" in record:
            self.last["knn"] = f"  kNN {100 * record['knn']:.1f} %"
        text += "".join(self.last.values())
        if self.bar is not None:
            self.bar.update(self.task, completed=record["step"], description=text)
        else:
            self.told(record["step"], text)

    def close(self) -> None:
        """Take the bar off the screen."""
        if self.bar is not None:
            self.bar.stop()


class TensorBoard:
    """Scalars for TensorBoard, in the run folder."""

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
    """Records for Weights & Biases."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        import wandb

        key = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:16]  # the same when the run is resumed
        self.run = wandb.init(project="imix", id=key, name=folder.name, dir=str(folder), config=config, resume="allow")

    def write(self, record: dict[str, Any]) -> None:
        """Log the record at its step."""
        self.run.log(record, step=record["step"])

    def close(self) -> None:
        """Finish the W&B run."""
        self.run.finish()
