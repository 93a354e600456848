"""The training loop; read it from top to bottom. What happens to a batch is in `step.TrainingStep.run`.

Sample order, learning rate and random numbers depend only on (seed, epoch, step, rank), so a run that is resumed at any
step gives the same result as an uninterrupted run. Each rank processes its rows of the global batch.
"""

import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from imix.batch import fields, to_float
from imix.data import Source
from imix.errors import InputError, Interrupted
from imix.output import print_message
from imix.run import checkpoint
from imix.run.stored_encoder import format_progress, save_encoder
from imix.runtime import distributed
from imix.runtime.interrupts import stop_requested
from imix.runtime.sync_bn import convert_sync_bn
from imix.train.best import BEST_ENCODER, BestEncoder
from imix.train.callbacks import Callback, Callbacks, TrainingState
from imix.train.health import health
from imix.train.lengthen import BEFORE_DECAY
from imix.train.logs import Log
from imix.train.monitor import TrainingMonitor, training_advice
from imix.train.schedule import learning_rate, warmup_epochs
from imix.train.setup import TrainingSetup
from imix.train.step import build_optimizer, prepare, training_step

RECORD_EVERY = 50  # steps between records in metrics.jsonl; there is also one at the end of each epoch
LARGE_VALUE = 1e4  # larger standardized inputs may make the loss overflow


def train(
    setup: TrainingSetup,
    log: Log,
    folder: Path | None = None,
    state: dict[str, Any] | None = None,
    probe: Callable[[], dict[str, float]] | None = None,
    callbacks: Callbacks = Callbacks(),
    best: BestEncoder | None = None,
) -> None:
    """Train the learner in place, from scratch or from a checkpoint's `state`.

    `folder` is the run folder that checkpoints are written to. `probe` is called every `knn_every` epochs; the metrics
    it returns are logged. `best` keeps the best encoder and may stop the run early.
    """
    settings, learner = setup.settings, setup.learner
    batch_size, steps_per_epoch = setup.batch_size, setup.steps_per_epoch
    total_steps, warmup_steps = settings.epochs * steps_per_epoch, warmup_epochs(settings) * steps_per_epoch

    make_views = prepare(setup)
    if distributed.world_size() > 1 and settings.sync_bn:
        convert_sync_bn(learner, setup.device)
    optimizer = build_optimizer(learner, settings, setup.device)
    epoch, step, losses = 0, 0, list[Tensor]()  # losses: those not yet recorded
    lr, loss = 0.0, torch.tensor(math.nan)  # of the last step
    if state is not None:
        checkpoint.restore(state, learner, optimizer)
        epoch, step, losses = state["epoch"], state["step"], list(state["losses"].to(setup.device))
        if best is not None:
            best.restore(state)
    peak_lr = learning_rate(settings, batch_size, warmup_epochs(settings), 0, steps_per_epoch)
    monitor = TrainingMonitor(
        learner.chance_loss(batch_size),
        training_advice(peak_lr),
        total_steps,
        warmup_steps,
        lambda step: _describe_batch(setup, step),
    )

    def call(callback: Callback | None) -> None:
        if callback is not None and distributed.rank() == 0:
            done = epoch * steps_per_epoch + step
            position = math.ceil(done / steps_per_epoch), settings.epochs, done, total_steps
            metrics = MappingProxyType(dict(log.records[-1]) if log.records else {})
            callback(TrainingState(*position, lr, metrics, folder, loss))

    def is_finished() -> bool:
        return epoch == settings.epochs or (best is not None and best.should_stop(epoch))

    def save_checkpoint(*names: str) -> None:
        done = epoch * steps_per_epoch + step
        unrecorded = distributed.mean_over_ranks(torch.stack(losses)) if losses else torch.empty(0, dtype=torch.float32)
        monitor.check_losses(unrecorded.tolist(), done)
        monitor.check_weights(learner, done)
        if distributed.rank() == 0 and folder is not None:
            log.flush_to_disk()  # metrics.jsonl must never lag behind the checkpoint
            position = {"epoch": epoch, "step": step, "losses": unrecorded.cpu()}
            position |= {} if best is None else best.state()
            for name in names:
                checkpoint.save(folder / name, checkpoint.snapshot(learner, optimizer) | position)
            progress = None if is_finished() else format_progress(done, settings.epochs, steps_per_epoch)
            save_encoder(folder / "encoder.safetensors", setup.model.state_dict(), setup.architecture, progress)
            if best is not None and best.weights:
                progress = format_progress(best.epoch * steps_per_epoch, settings.epochs, steps_per_epoch)
                save_encoder(folder / BEST_ENCODER, best.weights, setup.architecture, progress)
            call(callbacks.on_checkpoint)

    recorded_at = time.monotonic()
    saved_at = (
        recorded_at - 54 * settings.checkpoint_minutes
    )  # the first checkpoint comes after a tenth of the interval
    steps_since_record = 0
    poll = distributed.RankPoll()
    is_stop_requested: Callable[[], bool] | None = None
    with (
        training_step(make_views, distributed.wrap_ddp(learner), optimizer, setup) as take_step,
        ExitStack() as signal_handlers,
    ):
        while not is_finished():
            for batch, labels in setup.batches(epoch, step):
                lr = learning_rate(settings, batch_size, epoch, step, steps_per_epoch)
                loss = take_step(batch, labels, lr, (settings.seed, epoch, step, distributed.rank()))
                losses.append(loss)
                step, steps_since_record = step + 1, steps_since_record + 1
                done = epoch * steps_per_epoch + step
                if is_stop_requested is None:  # before the first step there is nothing to save
                    is_stop_requested = signal_handlers.enter_context(stop_requested(folder is not None))

                if step == steps_per_epoch or done % RECORD_EVERY == 0:
                    values = distributed.mean_over_ranks(torch.stack(losses)).tolist()
                    monitor.check_losses(values, done)
                    elapsed = time.monotonic() - recorded_at
                    record = {
                        "step": done,
                        "epoch": epoch + 1,
                        "loss": sum(values) / len(values),
                        "lr": lr,
                        "views_per_second": learner.n_views * batch_size * steps_since_record / elapsed,
                    }
                    if probe is not None and step == steps_per_epoch and (epoch + 1) % settings.knn_every == 0:
                        record |= probe()
                    if best is not None and step == steps_per_epoch:
                        record |= best.update(epoch + 1)
                    if monitor.is_due(done, _previous_record(done, steps_per_epoch)):
                        first, second = (learner.encode(setup.view(to_float(batch))) for _ in range(2))
                        monitor.check_features(done, record["loss"], first)
                        record |= health(first, second, labels)
                    log.write(record)
                    losses, recorded_at, steps_since_record = [], time.monotonic(), 0
                log.advance(done)
                call(callbacks.on_step)
                if step == steps_per_epoch:
                    epoch, step = epoch + 1, 0
                    call(callbacks.on_epoch)
                    if settings.schedule == "wsd" and epoch == settings.decay_start:
                        save_checkpoint(BEFORE_DECAY, "checkpoint.pt")
                save_due = time.monotonic() - saved_at > 60 * settings.checkpoint_minutes
                stop, save_due = poll.any(done, is_stop_requested(), save_due)
                if stop or save_due:
                    save_checkpoint("checkpoint.pt")
                    saved_at = time.monotonic()
                if stop:
                    distributed.barrier()  # no rank exits before the checkpoint is written
                    raise Interrupted(f"stopped at step {done} of {total_steps}; the run can be resumed")
        save_checkpoint("checkpoint.pt")
    if best is not None and epoch < settings.epochs and distributed.rank() == 0:
        print_message(
            f"stopped after epoch {epoch} of {settings.epochs}: {best.metric} was not better than after epoch "
            f"{best.epoch} for {best.patience} epochs"
        )


def check_position(state: dict[str, Any], setup: TrainingSetup) -> None:
    """Raise InputError unless a checkpoint's epoch, step and unrecorded losses can occur in this run."""
    epoch, step, losses = state["epoch"], state["step"], state["losses"]
    if not (0 <= epoch <= setup.settings.epochs and 0 <= step < setup.steps_per_epoch):
        raise InputError("the checkpoint does not match the run: its epoch or step is out of range")
    n_losses = min(step, (epoch * setup.steps_per_epoch + step) % RECORD_EVERY)
    checkpoint.check_tensor("losses", losses, torch.empty(n_losses, dtype=torch.float32))


def _previous_record(done: int, steps_per_epoch: int) -> int:
    """The step of the record before the one at step `done`."""
    return max((done - 1) // RECORD_EVERY * RECORD_EVERY, (done - 1) // steps_per_epoch * steps_per_epoch)


def _describe_batch(setup: TrainingSetup, step: int) -> tuple[str, str]:
    """Describe the batch of a step, and any unusual values in it."""
    epoch, index = divmod(step - 1, setup.steps_per_epoch)
    rows = setup.rows(epoch)[index]
    shown = ", ".join(map(str, rows[:8].tolist())) + (f" and {len(rows) - 8} more" if len(rows) > 8 else "")
    batch = f" (epoch {epoch + 1}, batch {index + 1} of {setup.steps_per_epoch}: samples {shown})"
    return batch, describe_unusual_sample(setup.source, rows)


def describe_unusual_sample(source: Source, rows: Tensor) -> str:
    """Describe the first of these samples that has non-finite or very large values; empty if none has."""
    for field in fields(next(source.batches([rows]))[0]):
        if not field.is_floating_point():
            continue
        values = field.flatten(1).float().cpu()
        bad = ~values.isfinite().all(1)
        if bad.any():
            return f"sample {int(rows[bad.long().argmax()])} has values that are NaN or infinite"
        largest = values.abs().amax(1)
        if largest.max() > LARGE_VALUE:
            return f"sample {int(rows[largest.argmax()])} has values up to {float(largest.max()):.3g}"
    return ""
