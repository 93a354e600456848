"""The run folder and `Run`, its representation in Python.

    config.json           settings, data, architecture, versions; how table columns are encoded
    metrics.jsonl         training metrics, one record every few steps
    checkpoint.pt         everything needed to resume, replaced atomically
    encoder.safetensors   the trained encoder, including preprocessing, with its architecture in the header
    head.safetensors      the classifier's last layer, if the run was fine-tuned
    evaluations.jsonl     results of `imix evaluate`
    detection.pt          checkpoint of detector fine-tuning; deleted when it finishes
    report.html           the page written by `imix report`
    tensorboard/          TensorBoard logs, if enabled

Nothing in the folder is loaded with unrestricted pickle.
"""

import shutil
import sys
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from imix.data import Table
from imix.data.loading import IN_MEMORY_NAME
from imix.errors import InputError, StorageError, first_line
from imix.files import append_jsonl, read_jsonl, read_metrics
from imix.run.classifier import HEAD_FILE, load_head
from imix.run.config import Architecture, DataConfig, RunConfig, read_config
from imix.run.result import Result
from imix.run.stored_encoder import load_encoder
from imix.settings import DataSettings, Settings

# The checkpoint first: without it a partly deleted run starts over instead of resuming.
RUN_FILES = [
    "checkpoint.pt",
    "metrics.jsonl",
    "encoder.safetensors",
    HEAD_FILE,
    "evaluations.jsonl",
    "detection.pt",
    "report.html",
]


@dataclass(repr=False)
class Run:
    """A training run: its encoder, configuration and metrics.

    Runs are returned by `imix.pretrain` and `imix.load_run`.

    Attributes
    ----------
    encoder : nn.Sequential
        Maps raw inputs (N, ...) to features (N, F). Its submodules are named `preprocess` and `encoder`.
    config : RunConfig
        The content of config.json: settings, data, architecture, versions.
    metrics : list of dict
        The records of metrics.jsonl.
    path : Path or None
        The run folder, or None if the run is only in memory.
    head : nn.Linear or None
        The classifier's last layer, if the run was fine-tuned.

    Examples
    --------
    >>> run = imix.pretrain(torch.randn(64, 5), epochs=1, device="cpu", progress=False)
    >>> run.settings.epochs, run.encoder(torch.randn(8, 5)).shape
    (1, torch.Size([8, 256]))
    """

    encoder: nn.Sequential
    config: RunConfig
    metrics: list[dict[str, Any]] = field(default_factory=list)
    path: Path | None = None
    head: nn.Linear | None = None

    @property
    def settings(self) -> Settings:
        """The training settings."""
        return self.config.settings

    @property
    def data_settings(self) -> DataSettings:
        """The data options that the run was trained with."""
        return self.config.data.settings

    @property
    def user_supplied(self) -> dict[str, str]:
        """Names of the user-supplied components, by role: method, mix, augment."""
        return self.config.user_supplied

    @property
    def table(self) -> Table | None:
        """How table columns are encoded as numbers; None unless the run was trained on a table."""
        return self.config.data.table

    @property
    def evaluations(self) -> list[Result]:
        """Stored results of `imix.evaluate`, oldest first."""
        if self.path is None:
            return []
        results = []
        for line in read_jsonl(self.path / "evaluations.jsonl"):
            try:
                results.append(Result.from_json(line))
            except InputError as error:
                reason = first_line(error)
                print(f"{self.path}/evaluations.jsonl: skipped a line that is not a result: {reason}", file=sys.stderr)
        return results

    def add_result(self, result: Result) -> None:
        """Append a result to evaluations.jsonl, if the run has a folder."""
        if self.path is None:
            return
        try:
            append_jsonl(self.path / "evaluations.jsonl", result.to_json())
        except StorageError as error:  # the result may have taken hours: show it in the error
            raise StorageError(f"{error}; unsaved result: {' '.join(str(result).split())}") from error

    def __repr__(self) -> str:
        settings = self.settings
        folder = "" if self.path is None else f" in {str(self.path)!r}"
        method, mix = self.user_supplied.get("method", settings.method), self.user_supplied.get("mix", settings.mix)
        title = f"{method}{'' if mix == 'none' else f' + {mix}'} on {self.config.data.name}"
        loss = f", loss {self.metrics[-1]['loss']:.4g}" if self.metrics else ""
        return f"<Run{folder}: {title}, {settings.epochs} epochs{loss}>"


def load_run(path: str | Path, encoder: nn.Module | None = None) -> Run:
    """Load a run from its folder.

    Parameters
    ----------
    path : str or Path
        The run folder.
    encoder : nn.Module, optional
        The module to load the weights into. Required if the run was trained with a user-supplied encoder, because the
        folder stores its weights but not its code.

    Returns
    -------
    Run

    Examples
    --------
    >>> import tempfile
    >>> settings = imix.Settings(epochs=1, device="cpu")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = imix.pretrain(torch.randn(64, 5), settings, out=folder, progress=False)
    ...     run = imix.load_run(folder)
    >>> run.settings.epochs
    1
    """
    path = Path(path)
    config = read_config(path)
    head = None if config.fine_tuning is None else load_head(path)
    return Run(load_encoder(path, encoder), config, read_metrics(path / "metrics.jsonl"), path, head)


def as_run(run: "Run | nn.Module | str | Path") -> Run:
    """Return a `Run` from a run, its folder, or a module or `Method` that was trained without `imix.pretrain`."""
    from imix.methods import Method

    if isinstance(run, Run):
        return run
    if not isinstance(run, nn.Module):
        return load_run(run)
    encoder = run.encoder if isinstance(run, Method) else run
    model = nn.Sequential(OrderedDict(preprocess=nn.Identity(), encoder=encoder))
    data = DataConfig(IN_MEMORY_NAME, 0, None, DataSettings(), table=None, fingerprint=None)
    architecture = Architecture("custom", None, groups=(), standardize=False, clip=None)
    return Run(model, RunConfig(Settings(), data, architecture, ranks=1, user_supplied={}, versions={}))


def clear_run_folder(path: Path) -> None:
    """Delete the files of a run. Other files stay, and so does config.json, which marks the folder as a run folder."""
    for name in RUN_FILES:
        (path / name).unlink(missing_ok=True)
    shutil.rmtree(path / "tensorboard", ignore_errors=True)
