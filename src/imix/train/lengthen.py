"""A run with the schedule wsd can be made longer: it continues from the checkpoint that was kept before the decay."""

from dataclasses import replace
from pathlib import Path

from imix import files
from imix.errors import InputError
from imix.output import print_message
from imix.run import checkpoint
from imix.run.config import RunConfig
from imix.run.stored_encoder import format_progress, read_encoder, save_encoder
from imix.train.schedule import warmup_epochs

BEFORE_DECAY = "before_decay.pt"  # the checkpoint at the start of the decay


def is_longer(stored: RunConfig, config: RunConfig) -> bool:
    """Whether `config` makes the stored run longer, which only the schedule wsd allows."""
    return config.settings.schedule == "wsd" and config.settings.epochs > stored.settings.epochs


def lengthen(folder: Path, stored: RunConfig, epochs: int, steps_per_epoch: int) -> None:
    """Prepare the folder of a run for more epochs.

    config.json is written last: if this is interrupted, the folder still has the shorter run, which can be resumed or
    lengthened again.
    """
    settings, path = replace(stored.settings, epochs=epochs), folder / "checkpoint.pt"
    if (old := warmup_epochs(stored.settings)) != (new := warmup_epochs(settings)):
        raise InputError(
            f"cannot lengthen {str(folder)!r}: by default, its warmup of {old} epochs would be {new} epochs with "
            f"`epochs={epochs}`; start such a short run with `warmup`"
        )
    state = checkpoint.load(path) if path.exists() else None
    if state is not None and (state["epoch"], state["step"]) > (stored.settings.decay_start, 0):
        kept = folder / BEFORE_DECAY
        state = checkpoint.load(kept) if kept.exists() else state
        if (state["epoch"], state["step"]) != (stored.settings.decay_start, 0):
            raise InputError(f"cannot lengthen {str(folder)!r}: it has no checkpoint from before the decay")
        _mark_as_shorter(folder, stored.settings.epochs, steps_per_epoch)
        checkpoint.save(path, state)
        print_message(f"continuing from epoch {state['epoch']}, before the learning rate decayed")
    files.write_json(folder / "config.json", replace(stored, settings=settings).to_json())


def _mark_as_shorter(folder: Path, epochs: int, steps_per_epoch: int) -> None:
    """Note in the encoder and its results that they are of the end of the shorter run."""
    architecture, weights, progress = read_encoder(folder)
    if progress is None:
        progress = format_progress(epochs * steps_per_epoch, epochs, steps_per_epoch)
        path = folder / "evaluations.jsonl"
        if path.exists():
            lines = files.read_jsonl(path)
            files.write_jsonl(path, [line | {"progress": line.get("progress") or progress} for line in lines])
        save_encoder(folder / "encoder.safetensors", weights, architecture, progress)
