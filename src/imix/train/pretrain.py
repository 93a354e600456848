"""`imix.pretrain`: trains an encoder on data and returns the run."""

import platform
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Unpack

import torch
from torch import nn

from imix import files
from imix._version import __version__
from imix.augment.image import CropAndColorJitter
from imix.augment.tabular import Cells
from imix.data import Data, load
from imix.data.tables.stream import TableStream
from imix.errors import InputError, RunFolderBusy
from imix.output import print_message
from imix.run import Run, checkpoint, clear_run_folder, refuse_export
from imix.run.config import DataConfig, RunConfig, read_config
from imix.run.initial_weights import find_initial_weights
from imix.runtime import distributed, launch
from imix.runtime.device import uses_bf16
from imix.runtime.interrupts import stop_on_sigterm
from imix.settings import RESUME_SAFE_SETTINGS, SMALL_IMAGE_SIZE, DataSettings, Settings
from imix.train.auto import check_minutes, resolve_auto
from imix.train.best import build_best_encoder
from imix.train.callbacks import Callback, Callbacks
from imix.train.knn_probe import build_knn_probe
from imix.train.lengthen import is_longer, lengthen
from imix.train.logs import check_loggers, open_log
from imix.train.loop import check_position, train
from imix.train.options import Options, collect_options
from imix.train.setup import TrainingSetup, build_setup

MIN_SAMPLES = 32  # fewer give a warning: 16 times the smallest batch, which has two samples


def pretrain(
    data: Any,
    settings: Settings | None = None,
    data_settings: DataSettings | None = None,
    *,
    labels: Any = None,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    minutes: float | None = None,
    progress: bool = True,
    on_step: Callback | None = None,
    on_epoch: Callback | None = None,
    on_checkpoint: Callback | None = None,
    **options: Unpack[Options],
) -> Run:
    """Train an encoder on data, without labels unless the method is supervised.

    Parameters
    ----------
    data : str, Path, list of paths, data frame, array, Tensor, tuple or dict of tensors, Dataset or Source
        The name of a data set; a path (CSV, Parquet, .npy, .npz); a folder, pattern or list of images or audio files; a
        folder or pattern of tables or tar shards, which are streamed; a data frame (pandas, polars, arrow) or Hugging
        Face data set; a torch Dataset or DataLoader; or samples (N, ...): rows (N, F), sequences (N, C, L) or images
        (N, C, H, W). A single tensor is standardized; the fields of a tuple or dict are not.
    settings : Settings, optional
        Training options, collected in an object.
    data_settings : DataSettings, optional
        Data options, collected in an object.
    labels : array of shape (N,), optional
        Labels of in-memory data. The supervised methods need them; the others only use them to log metrics.
    out : str or Path, optional
        The run folder. Without it nothing is written.
    resume : bool
        Continue the run in `out` from its last checkpoint, if there is one.
    overwrite : bool
        Replace the run in `out`.
    minutes : float, optional
        With ``epochs="auto"``, the time that training may take: the number of epochs is limited to what fits.
    progress : bool
        Show progress: a bar in a terminal (on stderr) or notebook, a line every ten seconds elsewhere.
    on_step, on_epoch, on_checkpoint : function, optional
        Called with a `TrainingState` after every step, after every epoch, and after every checkpoint, when the encoder
        is in the run folder too (`on_checkpoint` needs `out`). An exception ends the run, which can be resumed from its
        last checkpoint.
    **options
        Any field of `Settings` and `DataSettings`, for example ``method="moco", epochs=100, label="churned"``. They
        override the objects. `encoder`, `augment`, `method` and `mix` take a name or an object:

        - encoder: an nn.Module from samples (N, ...) to features (N, F). It is trained in place, starting from its
          current weights; afterwards it is on the CPU, in evaluation mode.
        - augment: a function that maps a batch to one view of it. It should draw independently for each sample, from
          torch's generators, which the run seeds.
        - method: a factory for a custom `imix.methods.Method`, called as ``method(encoder, mix, width=F)``.
        - mix: a mixing operator, from a batch to (mixed batch, `Mix`).

    Returns
    -------
    Run
        The trained encoder, its configuration and its metrics.

    Examples
    --------
    >>> run = imix.pretrain(torch.randn(64, 10), method="moco", queue=64, epochs=2, batch_size=32, progress=False)
    >>> run.encoder(torch.randn(5, 10)).shape
    torch.Size([5, 256])
    """
    settings, data_settings, components = collect_options(settings, data_settings, options)
    check_minutes(settings, minutes)
    callbacks = Callbacks(on_step, on_epoch, on_checkpoint)
    folder = None if out is None else Path(out)
    with (
        launch.join_ranks(),
        torch.inference_mode(False),
        torch.enable_grad(),
        stop_on_sigterm(folder is not None),
        ExitStack() as locks,
    ):
        check_loggers(settings, folder)
        if folder is None:
            _check_without_folder(settings, callbacks)
        stored, has_checkpoint = None, False
        if folder is not None:
            stored = _check_folder(folder, resume, overwrite)
            has_checkpoint = (folder / "checkpoint.pt").exists()
            distributed.barrier()  # otherwise a fast rank creates the folder before a slow one has checked it
        settings, initial = find_initial_weights(
            settings, stored, has_checkpoint=has_checkpoint, custom_encoder=components.encoder is not None
        )
        dataset = load(data, data_settings, labels=labels, table=None if initial is None else initial.table)
        has_table = initial is not None and initial.table is not None  # so the label column may be missing
        if has_table and dataset.settings.label is not None and dataset.train.labels is None:
            raise InputError(f"{dataset.name} has no labels in a column {dataset.settings.label!r}")
        resolved, choice = resolve_auto(settings, dataset, components, initial, stored, minutes)
        setup = build_setup(dataset, resolved, components, initial)
        probe = build_knn_probe(setup.model, dataset, resolved, setup.device) if resolved.knn_every else None
        best = build_best_encoder(setup, dataset)
        config = _run_config(dataset, setup)
        state = None if folder is None else _open_folder(folder, config, overwrite, setup.steps_per_epoch, locks)
        done = 0
        if state is not None:
            check_position(state, setup)  # before the log drops what comes after this position
            done = state["epoch"] * setup.steps_per_epoch + state["step"]
        is_rank_0 = distributed.rank() == 0
        if is_rank_0 and progress:
            print_message(*choice, *startup_messages(dataset, setup))
        total_steps = resolved.epochs * setup.steps_per_epoch
        log_folder = folder if is_rank_0 else None
        with open_log(log_folder, config, total_steps, done, progress and is_rank_0) as log:
            train(setup, log, folder, state, probe, callbacks, best)
        setup.model.eval().cpu()  # as `load_run` returns it
        distributed.barrier()
        return Run(setup.model, config, log.records, folder)


def _run_config(data: Data, setup: TrainingSetup) -> RunConfig:
    train = data.train
    return RunConfig(
        setup.settings,
        DataConfig(data.name, len(train), train.shape, data.settings, data.table, train.fingerprint()),
        setup.architecture,
        distributed.world_size(),
        setup.user_supplied,
        {"imix": __version__, "torch": torch.__version__, "python": platform.python_version()},
    )


def _check_without_folder(settings: Settings, callbacks: Callbacks) -> None:
    """Raise InputError for options that do nothing without a run folder."""
    if settings.keep_best is not None and not settings.patience:
        raise InputError("`keep_best` writes best_encoder.safetensors to the run folder; pass `out`")
    if callbacks.on_checkpoint is not None:
        raise InputError("`on_checkpoint` is called when a checkpoint is written to the run folder; pass `out`")


def _check_folder(folder: Path, resume: bool, overwrite: bool) -> RunConfig | None:
    """Raise InputError if the folder contains other files, or a run that is neither resumed nor overwritten.

    Returns the config of the run to resume, if there is one.
    """
    for path in (folder, *folder.parents):
        if path.exists() and not path.is_dir():
            raise InputError(f"cannot create the run folder {str(folder)!r}: {str(path)!r} is a file")
    in_use = folder.exists() and any(not entry.name.startswith(".") for entry in folder.iterdir())
    stored = read_config(folder) if in_use else None
    refuse_export(folder)
    if in_use and not (resume or overwrite):
        with _refused_if_busy(folder), files.locked(folder, wait=False, shared=True):
            pass
        hint = "use `resume=True` to continue it or `overwrite=True` to replace it"
        raise InputError(f"{str(folder)!r} already contains a run; {hint}")
    if resume and overwrite:
        raise InputError("`resume` and `overwrite` are mutually exclusive")
    return stored if resume else None


def _open_folder(
    folder: Path, config: RunConfig, overwrite: bool, steps_per_epoch: int, locks: ExitStack
) -> dict[str, Any] | None:
    """Prepare the folder; returns the state to resume from, if it has a checkpoint of the same run.

    The folder stays locked against other training processes as long as `locks` is open.
    """
    if distributed.rank() == 0:
        folder.mkdir(parents=True, exist_ok=True)
        with _refused_if_busy(folder):
            locks.enter_context(files.locked(folder, wait=False))
        for leftover in folder.glob(".*.unfinished"):  # of a killed run; only the owner of the lock writes here
            files.remove(leftover)
        if overwrite:
            clear_run_folder(folder)
        if overwrite or not (folder / "config.json").exists():
            files.write_json(folder / "config.json", config.to_json())
    distributed.barrier()
    stored = read_config(folder)
    _check_same_run(folder, stored, config)
    distributed.barrier()
    if is_longer(stored, config) and distributed.rank() == 0:
        lengthen(folder, stored, config.settings.epochs, steps_per_epoch)
    distributed.barrier()
    path = folder / "checkpoint.pt"
    return checkpoint.load(path) if path.exists() else None


@contextmanager
def _refused_if_busy(folder: Path) -> Iterator[None]:
    try:
        yield
    except BlockingIOError as error:
        raise RunFolderBusy(f"another command is training in {str(folder)!r}; wait, or change `out`") from error


def _check_same_run(folder: Path, stored: RunConfig, config: RunConfig) -> None:
    """Raise InputError if settings or data differ from those of the stored run, and name the difference."""
    before, now = _identity(stored), _identity(config)
    for name in now | before:
        if before.get(name) == now.get(name) or name in RESUME_SAFE_SETTINGS:
            continue
        if name == "epochs" and is_longer(stored, config):
            continue
        difference = f"its {name} was {before.get(name)!r}, now it is {now.get(name)!r}"
        if name == "epochs":
            difference += "; `epochs` cannot change: the learning rate schedule depends on them (`schedule='wsd'` "
            difference += "allows more epochs)"
        if name == "table":
            difference = "its table had different columns or values"
        if name == "fingerprint":
            if before[name] is None or now[name] is None:  # streamed data has none
                continue
            difference = "its data was different"
        raise InputError(f"cannot resume {str(folder)!r}: {difference}")


def _identity(config: RunConfig) -> dict[str, Any]:
    """Everything that must be the same when a run is resumed, by name."""
    value = config.to_json()
    custom = value["user_supplied"] | ({"encoder": True} if config.architecture.is_custom else {})
    return {
        **value["settings"],
        **value["data"].pop("settings"),
        **value["data"],
        "ranks": config.ranks,
        **{f"custom {name}": component for name, component in custom.items()},
    }


def startup_messages(data: Data, setup: TrainingSetup) -> list[str]:
    """What a user should know before training starts."""
    settings, n, shape = setup.settings, len(data.train), data.train.shape or ()
    messages = [] if data.table is None else [f"{data.name}: {data.table}"]
    messages += [f"{data.name}: {data.train}"] if isinstance(data.train, TableStream) else []
    messages.append(_headline(data, setup))
    custom_encoder = ["encoder"] if setup.architecture.is_custom else []
    if unused := settings.unused_settings([*setup.user_supplied, *custom_encoder]):
        messages.append(f"{setup.title} ignores these settings: {', '.join(unused)}")
    if n < MIN_SAMPLES:
        messages.append(f"only {n} samples: too few to learn from; use at least {MIN_SAMPLES}")
    if settings.method == "moco" and settings.queue > n:
        smaller = 1 << max(0, (n // 2).bit_length() - 1)
        messages.append(
            f"the queue holds {settings.queue / n:.3g} keys per sample; a smaller queue ({smaller}) may be better"
        )
    if setup.device.type == "cpu" and len(shape) == 3 and max(shape[1:]) > SMALL_IMAGE_SIZE:
        messages.append(
            f"images of {max(shape[1:])} pixels are slow on a CPU; try an image size and a batch "
            f"size of {SMALL_IMAGE_SIZE}"
        )
    return messages


def _headline(data: Data, setup: TrainingSetup) -> str:
    """One line about the run, with its effective batch size."""
    batch_size, steps, world = setup.batch_size, setup.steps_per_epoch, distributed.world_size()
    modules = setup.view.modules() if isinstance(setup.view, nn.Module) else []
    augmentations = ", ".join(
        str(module)
        for module in modules
        if type(module).__module__.startswith("imix.augment") and not isinstance(module, Cells | CropAndColorJitter)
    )
    views = f"augmentation: {augmentations}, " if augmentations else ""
    if not augmentations and "augment" not in setup.user_supplied and setup.learner.n_views > 1:
        views = "no augmentation, "
    weights = sum(parameter.numel() for parameter in setup.learner.encoder.parameters())
    precision = "bf16" if uses_bf16(setup.settings, setup.device) else "fp32"
    left_out = len(data.train) - steps * batch_size
    return (
        f"{setup.title} on {data.name}: {len(data.train):,} samples of shape "
        f"{data.train.shape or '(several fields)'}, "
        f"{views}effective batch {batch_size} = {world} rank(s) x {batch_size // world}, "
        f"{setup.settings.epochs} epochs x {steps} steps"
        f"{f' ({left_out} random samples skipped in each epoch)' if left_out else ''}, "
        f"encoder {setup.encoder_name} ({weights / 1e6:.2f} M parameters, {setup.learner.width} features), "
        f"{setup.device}{f' with {setup.threads} thread(s)' if setup.device.type == 'cpu' else ''}, {precision}"
    )
