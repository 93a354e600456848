"""The run folder and `Run`, its representation in Python.

    config.json           settings, data, architecture, versions; how table columns are encoded
    metrics.jsonl         training metrics, one record every few steps
    checkpoint.pt         everything needed to resume, replaced atomically
    before_decay.pt       the checkpoint at the start of the decay of the wsd schedule
    encoder.safetensors   the encoder, including preprocessing, with its architecture in the header; written with
                          every checkpoint
    best_encoder.safetensors  the encoder of the best epoch, with `keep_best`
    head.safetensors      the classifier's last layer, if the run was fine-tuned
    evaluations.jsonl     results of `imix evaluate`
    answers/              answers of `imix cluster` and the like, for the report
    detection.pt          checkpoint of detector fine-tuning; deleted when it finishes
    report.html           the page written by `imix report`
    tensorboard/          TensorBoard logs, if enabled

Nothing in the folder is loaded with unrestricted pickle.
"""

import shutil
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from imix.data import Table
from imix.data.loading import IN_MEMORY_NAME
from imix.errors import InputError, StorageError, first_line
from imix.files import append_jsonl, read_jsonl, read_metrics, remove
from imix.html_table import html_table
from imix.output import print_message
from imix.run.classifier import HEAD_FILE, load_head
from imix.run.config import Architecture, DataConfig, RunConfig, read_config
from imix.run.metrics import describe_metrics
from imix.run.result import Result
from imix.run.stored_encoder import ENCODER_FILE, is_export, load_with_progress
from imix.settings import DataSettings, ResolvedSettings

ANSWERS = "answers"
# The checkpoint first: without it a partly deleted run starts over instead of resuming.
RUN_FILES = [
    "checkpoint.pt",
    "before_decay.pt",
    "metrics.jsonl",
    "encoder.safetensors",
    "best_encoder.safetensors",
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
        The run folder; None if the run is only in memory, or an export, to which no results are added.
    head : nn.Linear or None
        The classifier's last layer, if the run was fine-tuned.
    progress : str or None
        How far the training was when the encoder was written, for example "epoch 12 of 200, step 57 of 1000"; None if
        it was finished.
    encoder_file : str
        The file in the run folder that the encoder was loaded from.

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
    progress: str | None = None
    encoder_file: str = ENCODER_FILE

    @property
    def settings(self) -> ResolvedSettings:
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
        """Stored results of `imix.evaluate` on this encoder, oldest first; not those on encoders of other epochs."""
        if self.path is None:
            return []
        results = []
        for line in read_jsonl(self.path / "evaluations.jsonl"):
            try:
                result = Result.from_json(line)
            except InputError as error:
                reason = first_line(error)
                print_message(f"{self.path}/evaluations.jsonl: skipped a line that is not a result: {reason}")
                continue
            if result.progress == self.progress:
                results.append(result)
        return results

    def add_result(self, *results: Result) -> None:
        """Append the results of an evaluation to evaluations.jsonl, if the run has a folder."""
        if self.path is None:
            return
        try:
            append_jsonl(self.path / "evaluations.jsonl", *(result.to_json() for result in results))
        except StorageError as error:  # the results may have taken hours: show them in the error
            unsaved = " ".join(" ".join(map(str, results)).split())
            raise StorageError(f"{error}; unsaved result: {unsaved}") from error

    @property
    def _method(self) -> str:
        method, mix = (self.user_supplied.get(name, getattr(self.settings, name)) for name in ("method", "mix"))
        return f"{method}{'' if mix == 'none' else f' + {mix}'}"

    @property
    def _training(self) -> str:
        return self.progress or f"{self.settings.epochs} epochs"

    def __repr__(self) -> str:
        folder = "" if self.path is None else f" in {str(self.path)!r}"
        loss = f", loss {self.metrics[-1]['loss']:.4g}" if self.metrics else ""
        return f"<Run{folder}: {self._method} on {self.config.data.name}, {self._training}{loss}>"

    def _repr_html_(self) -> str:
        """A table, for notebooks."""
        data, latest = self.config.data, {name: value for record in self.metrics for name, value in record.items()}
        shape = "several fields" if data.shape is None else f"shape {data.shape}"
        rows = {
            "method": self._method,
            "data": f"{data.name}: {data.samples:,} samples, {shape}",
            "encoder": self.config.architecture.encoder,
            "training": self._training,
            **describe_metrics(latest),
            "folder": "in memory" if self.path is None else str(self.path),
        }
        return html_table([[name, value] for name, value in rows.items()], title="Run")


def load_run(path: str | Path, encoder: nn.Module | None = None) -> Run:
    """Load a run from its folder. It may still be training, or have been stopped: `progress` says how far it is.

    Parameters
    ----------
    path : str or Path
        The run folder, or an encoder in it, such as best_encoder.safetensors; or a folder written by `imix.export`.
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
    folder = path = Path(path)
    if path.suffix == ".safetensors" and path.is_file():
        folder = path.parent
    config = read_config(folder)
    head = None if config.fine_tuning is None else load_head(folder)
    model, progress = load_with_progress(path, encoder)
    if is_export(folder):
        return Run(model, config, head=head, progress=progress)
    name = ENCODER_FILE if folder == path else path.name
    return Run(model, config, read_metrics(folder / "metrics.jsonl"), folder, head, progress, name)


def as_run(run: "Run | nn.Module | str | Path") -> Run:
    """Return a `Run` from a run, its folder, or a module or `Method` that was trained without `imix.pretrain`."""
    from imix.methods import Method

    if isinstance(run, Run):
        return run
    if not isinstance(run, nn.Module):
        loaded = load_run(run)
        report_progress(run, loaded.progress)
        return loaded
    encoder = run.encoder if isinstance(run, Method) else run
    model = nn.Sequential(OrderedDict(preprocess=nn.Identity(), encoder=encoder))
    data = DataConfig(IN_MEMORY_NAME, 0, None, DataSettings(), table=None, fingerprint=None)
    architecture = Architecture("custom", None, groups=(), standardize=False, clip=None)
    return Run(model, RunConfig(ResolvedSettings(), data, architecture, ranks=1, user_supplied={}, versions={}))


def report_progress(path: str | Path, progress: str | None) -> None:
    """Print which encoder is used, unless it is the last one of a run whose training is finished."""
    if progress is not None:
        print_message(f"{path}: using the encoder of {progress}")


def refuse_export(folder: Path) -> None:
    """Raise InputError for a folder written by `imix.export`, in which no run can be trained."""
    if is_export(folder):
        raise InputError(
            f"{str(folder)!r} is an exported encoder, not a run folder; choose another `out` (`init` starts from the "
            "weights of an export)"
        )


def clear_run_folder(path: Path) -> None:
    """Delete the files of a run. Other files stay, and so does config.json, which marks the folder as a run folder."""
    for file in [*(path / name for name in RUN_FILES), *path.glob(".*.unfinished")]:
        remove(file)
    for folder in ("tensorboard", ANSWERS):
        shutil.rmtree(path / folder, ignore_errors=True)
