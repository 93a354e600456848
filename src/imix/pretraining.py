"""`imix.pretrain`: data and settings in, a run out."""

import json
import platform
import sys
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

import imix
from imix import distributed, files, ranks
from imix.augment import Augment
from imix.augment.image import CropAndColours
from imix.augment.tabular import Cells
from imix.config import read_config
from imix.data import Data, load
from imix.encoders.stored import save_encoder
from imix.errors import InputError
from imix.evaluation.probe import make_probe
from imix.mix import MixOperator
from imix.run import Run, clear
from imix.settings import SMALL_SIDE, SURROUNDINGS, Reading, Settings
from imix.train import checkpoint
from imix.train.build import Made, MakeMethod, make_all
from imix.train.device import uses_bf16
from imix.train.log import Lines, Log, Progress, Sink, TensorBoard, WandB, check_extras
from imix.train.loop import train
from imix.train.stopping import stopping_at_once


def pretrain(
    data: Any,
    settings: Settings = Settings(),
    reading: Reading = Reading(),
    *,
    labels: Any = None,
    out: str | Path | None = None,
    encoder: nn.Module | None = None,
    augment: Augment | None = None,
    method: MakeMethod | None = None,
    mix: MixOperator | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = True,
) -> Run:
    """Learn an encoder from data, and keep everything in the folder `out` if one is given.

    `data` is a name, a path, a frame, arrays or tensors (N, ...), or a `Source`, read as `reading` says; labels are
    optional, except for the supervised methods. Images are (N, C, H, W), sequences (N, C, L). A tensor is standardised,
    fields of a tuple or dict are not. `encoder` is a module of your own, (N, ...) to (N, F), which is trained in place,
    from the weights it has; `augment` a function of your own from a batch to a view of it, with one draw per sample and
    every draw from torch, whose generators the run seeds. `method` makes a `Method` of your own, called as
    `method(encoder, mix, width=F)`; `mix` is an operator of your own.

    >>> run = pretrain(torch.randn(64, 10), Settings(epochs=2, batch_size=32), progress=False)
    >>> run.encoder(torch.randn(5, 10)).shape
    torch.Size([5, 256])
    """
    if not isinstance(settings, Settings):
        raise InputError(f"settings must be imix.Settings(...); got {settings!r}")
    if isinstance(augment, str):
        raise InputError(f"augment must be a function of a batch; a name belongs in Settings(augment={augment!r})")
    joined = ranks.start()
    try:
        folder = None if out is None else Path(out)
        check_extras(settings.tensorboard, settings.wandb)
        if folder is not None:
            _check_folder(folder, resume, overwrite)
            distributed.wait()  # or a quick rank makes the folder that a slow one then finds taken
        elif settings.tensorboard or settings.wandb:
            raise InputError("tensorboard and wandb need a run folder; give out=...")
        with (
            torch.inference_mode(False),
            torch.enable_grad(),
            stopping_at_once(folder is not None),
            ranks.naming_lost_ranks(),
            ExitStack() as held,
        ):
            loaded = load(data, reading, labels=labels)
            made = make_all(loaded, settings, encoder, augment, method, mix)
            return _pretrain(loaded, made, folder, overwrite, progress, held)
    finally:
        if joined:
            ranks.stop()


def _pretrain(data: Data, made: Made, folder: Path | None, overwrite: bool, progress: bool, held: ExitStack) -> Run:
    settings = made.settings
    config = {
        "settings": asdict(settings),
        "data": {
            "name": data.name,
            "samples": len(data.train),
            "shape": data.train.shape,
            "reading": asdict(data.reading),
            "table": None if data.table is None else data.table.to_json(),
            "fingerprint": data.train.fingerprint(),
        },
        "machine": {"ranks": distributed.world_size()},
        "architecture": made.architecture,
        "own": made.own,
        "versions": {
            "imix": imix.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    }
    config = json.loads(json.dumps(config))  # as it will be read
    probe = make_probe(made.whole, data, settings, made.device) if settings.knn_every else None

    state = None if folder is None else _open_folder(folder, config, overwrite, held)
    done = state["epoch"] * made.steps + state["step"] if state else 0
    log = _open_log(folder, config, settings, made.steps, done, progress)
    if distributed.rank() == 0 and progress:
        print(*_said_before(data, made), sep="\n", file=sys.stderr)
    try:
        train(made, log, folder / "checkpoint.pt" if folder else None, state, probe)
    finally:
        log.close()
    made.whole.eval().cpu()  # as `Run.load` gives it
    if folder is not None and distributed.rank() == 0:
        save_encoder(folder / "encoder.safetensors", made.whole, made.architecture)
    distributed.wait()
    return Run(made.whole, config, log.records, folder)


def _check_folder(folder: Path, resume: bool, overwrite: bool) -> None:
    """Refuse a folder that holds something else than a run, or a run that was not to be touched."""
    for place in (folder, *folder.parents):
        if place.exists() and not place.is_dir():
            raise InputError(f"cannot make a run folder {str(folder)!r}: {str(place)!r} is a file; give a folder")
    taken = folder.exists() and any(not entry.name.startswith(".") for entry in folder.iterdir())
    if taken:
        read_config(folder)
    if taken and not (resume or overwrite):
        raise InputError(
            f"{str(folder)!r} already holds a run; give --resume to go on with it or --overwrite to replace it"
        )
    if resume and overwrite:
        raise InputError("give --resume or --overwrite, not both")


def _open_folder(folder: Path, config: dict[str, Any], overwrite: bool, held: ExitStack) -> dict[str, Any] | None:
    """Make the folder ready; gives the state to go on from, if it holds a checkpoint of the same run.

    As long as `held` is, no other command can train in it.
    """
    if distributed.rank() == 0:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            held.enter_context(files.locked(folder, wait=False))
        except BlockingIOError as error:
            raise InputError(f"another command is training in {str(folder)!r}; wait for it, or give --out") from error
        for left in folder.glob(".*.unfinished"):  # by a run that was killed; none writes but this one
            left.unlink(missing_ok=True)
        if overwrite:
            clear(folder)
        if overwrite or not (folder / "config.json").exists():
            files.write_json(folder / "config.json", config)
    distributed.wait()
    _check_same(folder, read_config(folder), config)
    path = folder / "checkpoint.pt"
    return checkpoint.load(path) if path.exists() else None


def _check_same(folder: Path, before: dict[str, Any], config: dict[str, Any]) -> None:
    """Refuse to go on with a run that was another one, by the name of what differs."""
    for was, given in zip(_parts(before), _parts(config), strict=True):
        for name in given | was:
            if was.get(name) == given.get(name) or name in SURROUNDINGS:
                continue
            if name == "table":
                raise InputError(f"cannot resume {str(folder)!r}: its table had other columns or values")
            if name == "fingerprint":
                if was.get(name) and given.get(name):  # or it is older, or its data is not in memory
                    raise InputError(f"cannot resume {str(folder)!r}: its data had other values")
                continue
            now = f"{given[name]!r} was given" if name in given else "this version of imix does not know that"
            more = "; a run cannot be lengthened, since its learning rate follows from it" if name == "epochs" else ""
            raise InputError(f"cannot resume {str(folder)!r}: its {name} is {was.get(name)!r}, and {now}{more}")


def _parts(config: dict[str, Any]) -> list[dict[str, Any]]:
    """What makes a run the one it is, by name."""
    data = {name: value for name, value in config["data"].items() if name != "reading"}
    own = {f"own {name}": value for name, value in config["own"].items()}
    return [config["settings"], data, config["data"]["reading"], config["architecture"], config["machine"], own]


def _open_log(
    folder: Path | None, config: dict[str, Any], settings: Settings, steps: int, done: int, progress: bool
) -> Log:
    if distributed.rank() != 0:
        return Log([])
    sinks: list[Sink] = []
    records: list[dict[str, Any]] = []
    if folder is not None:
        lines = Lines(folder / "metrics.jsonl", up_to_step=done)
        records = list(lines.records)
        sinks.append(lines)
        sinks += [TensorBoard(folder, done)] if settings.tensorboard else []
        sinks += [WandB(folder, config)] if settings.wandb else []
    if progress:
        sinks.append(Progress(settings.epochs * steps, done))
    return Log(sinks, records)


def _said_before(data: Data, made: Made) -> list[str]:
    """What a user should know before a training begins."""
    settings, n, shape = made.settings, len(data.train), data.train.shape or ()
    said = [] if data.table is None else [f"{data.name}: {data.table}"]
    said.append(_headline(data, made))
    own = [*made.own, *(["encoder"] if made.architecture["encoder"] == "custom" else [])]
    if idle := settings.passed_over(own):
        said.append(f"{made.title} has no use for {', '.join(idle)}: passed over")
    if settings.method == "moco" and settings.queue > n:
        less = 1 << max(0, (n // 2).bit_length() - 1)
        times = f"the queue holds {settings.queue / n:.3g} keys of every sample"
        said.append(f"{times}; a smaller one, as queue={less} (--queue {less}), may do better")
    if made.device.type == "cpu" and len(shape) == 3 and max(shape[1:]) > SMALL_SIDE:
        large = f"images of {max(shape[1:])} pixels are slow on a CPU"
        said.append(f"{large}; try --image-size {SMALL_SIDE} --batch-size {SMALL_SIDE}")
    return said


def _headline(data: Data, made: Made) -> str:
    """What is about to run, the effective batch included."""
    batch_size, steps, world = made.batch_size, made.steps, distributed.world_size()
    parts = made.view.modules() if isinstance(made.view, nn.Module) else []
    steps_of_views = ", ".join(
        str(part)
        for part in parts
        if type(part).__module__.startswith("imix.augment") and not isinstance(part, Cells | CropAndColours)
    )
    views = f"views by {steps_of_views}, " if steps_of_views else ""
    if not steps_of_views and "augment" not in made.own and made.learner.views > 1:
        views = "no views but the samples themselves, "
    weights = sum(parameter.numel() for parameter in made.learner.encoder.parameters())
    precision = "bf16" if uses_bf16(made.settings, made.device) else "fp32"
    left = len(data.train) - steps * batch_size  # others in each epoch
    return (
        f"{made.title} on {data.name}: {len(data.train):,} samples of "
        f"{data.train.shape or 'several fields'}, "
        f"{views}effective batch {batch_size} = {world} rank(s) x {batch_size // world}, "
        f"{made.settings.epochs} epochs x {steps} steps"
        f"{f' ({left} samples left out of each, others each time)' if left else ''}, "
        f"encoder {made.network} ({weights / 1e6:.2f} M weights, {made.learner.width} features), "
        f"{made.device}, {precision}"
    )
