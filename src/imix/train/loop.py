"""The training loop: read it top to bottom.

Order, learning rate and random numbers follow from where the run is, so a run resumed at any step is the run that was
never stopped. With many ranks each takes its rows of the same global batch.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from imix import distributed
from imix.batch import Batch, as_floats, fields, map_fields, size
from imix.data import Source
from imix.errors import InputError, Interrupted
from imix.train import checkpoint
from imix.train.build import Made
from imix.train.health import health
from imix.train.log import Log
from imix.train.randomness import epoch_order
from imix.train.schedule import learning_rate, warmup_epochs
from imix.train.step import make_optimizer, make_ready, taking_steps
from imix.train.stopping import stopping
from imix.train.watch import Watch, advice

RECORD_EVERY = 50  # steps; and at the end of each epoch
LARGE = 1e4  # deviations beyond which a value may well make a loss overflow


def train(
    made: Made,
    log: Log,
    checkpoint_path: Path | None = None,
    state: dict[str, Any] | None = None,
    probe: Callable[[], dict[str, float]] | None = None,
) -> None:
    """Train the learner in place, from the beginning or from a checkpoint's `state`.

    What `probe` finds every `knn_every` epochs goes into the record.
    """
    world, rank = distributed.world_size(), distributed.rank()
    settings, device, learner, source = made.settings, made.device, made.learner, made.source
    batch_size, steps = made.batch_size, made.steps

    views = make_ready(made)
    if world > 1 and settings.sync_bn:
        distributed.SyncBatchNorm.convert(learner)
    optimizer, epoch, step, losses = _begin(made, state)
    peak = learning_rate(settings, batch_size, warmup_epochs(settings), 0, steps)
    total = settings.epochs * steps
    warm = warmup_epochs(settings) * steps
    watch = Watch(learner.chance(batch_size), advice(peak), total, warm, lambda step: _batch_of(made, step))

    def save() -> None:
        pending = distributed.mean_over_ranks(torch.stack(losses)) if losses else torch.empty(0)
        watch.finite(pending.tolist(), epoch * steps + step)
        watch.weights(learner, epoch * steps + step)
        if rank == 0 and checkpoint_path is not None:
            log.settle()
            checkpoint.save(
                checkpoint_path,
                {
                    "learner": learner.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "epoch": epoch,
                    "step": step,
                    "losses": pending.cpu(),
                },
            )

    saved = last_record = time.monotonic()
    steps_since = 0
    rounds = distributed.Rounds()
    stop_asked: Callable[[], bool] | None = None
    with (
        taking_steps(views, distributed.joined(learner), optimizer, made) as take_step,
        ExitStack() as listening,
    ):
        while epoch < settings.epochs:
            begun = epoch
            order = epoch_order(settings.seed, epoch, len(source))
            own = order[: steps * batch_size].view(steps, world, batch_size // world)[step:, rank]
            for batch, known in source.batches(own):
                if (given := size(batch)) != own.shape[1]:
                    raise InputError(f"a source gave {given} samples where {own.shape[1]} were asked for")
                lr = learning_rate(settings, batch_size, epoch, step, steps)
                batch = map_fields(lambda x: x.to(device, non_blocking=True), batch)
                known = None if known is None else known.to(device)  # to be measured by, not to be learned from
                labels = known if learner.supervised else None
                losses.append(take_step(batch, labels, lr, (settings.seed, epoch, step, rank)))
                step, steps_since = step + 1, steps_since + 1
                done = epoch * steps + step
                if stop_asked is None:  # before, there was nothing new to save
                    stop_asked = listening.enter_context(stopping(checkpoint_path is not None))

                if step == steps or done % RECORD_EVERY == 0:
                    values = distributed.mean_over_ranks(torch.stack(losses)).tolist()
                    watch.finite(values, done)
                    now = time.monotonic()
                    record = {
                        "step": done,
                        "epoch": epoch + 1,
                        "loss": sum(values) / len(values),
                        "lr": lr,
                        "views_per_second": learner.views * batch_size * steps_since / (now - last_record),
                    }
                    if probe is not None and step == steps and (epoch + 1) % settings.knn_every == 0:
                        record |= probe()
                    before = max((done - 1) // RECORD_EVERY * RECORD_EVERY, (done - 1) // steps * steps)
                    if watch.due(done, before):
                        record |= _look(made, watch, batch, known, record)
                    log.write(record)
                    losses, last_record, steps_since = [], time.monotonic(), 0
                if step == steps:
                    epoch, step = epoch + 1, 0
                stop, due = rounds.ask(done, stop_asked(), time.monotonic() - saved > 60 * settings.checkpoint_minutes)
                if stop or due:
                    save()
                    saved = time.monotonic()
                if stop:
                    distributed.wait()  # none leaves before the checkpoint is written
                    raise Interrupted(f"stopped at step {done} of {total}; the run can be resumed from there")
            if epoch == begun:
                raise InputError(f"a source gave {step} of the {steps} batches of an epoch")
        save()


def _begin(made: Made, state: dict[str, Any] | None) -> tuple[torch.optim.Optimizer, int, int, list[Tensor]]:
    """The optimiser, and epoch, step and losses not yet told, as a checkpoint has them or from the beginning."""
    settings, device, learner = made.settings, made.device, made.learner
    epoch, step, losses = 0, 0, list[Tensor]()
    try:
        if state is not None:
            learner.load_state_dict(state["learner"])
            epoch, step, losses = state["epoch"], state["step"], list(state["losses"].to(device))
        optimizer = make_optimizer(learner, settings, device, None if state is None else state["optimizer"])
    except (RuntimeError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        reason = (str(error).splitlines() or [""])[-1].strip()
        raise InputError(f"the checkpoint is of another encoder: {reason}") from error
    if not (0 <= epoch <= settings.epochs and 0 <= step < made.steps):
        raise InputError(f"the checkpoint is of another run: it was made in epoch {epoch}, before step {step}")
    return optimizer, epoch, step, losses


def _look(made: Made, watch: Watch, batch: Batch, labels: Tensor | None, record: dict[str, Any]) -> dict[str, float]:
    """How the features of a batch fare; a run that learns nothing is stopped."""
    first, second = (made.learner.encode(made.view(as_floats(batch))) for _ in range(2))
    watch.features(first, record["step"])
    found = health(first, second, labels)
    watch.alive(record["step"], record["loss"], first)
    return found


def _batch_of(made: Made, step: int) -> tuple[str, str]:
    """Which batch a step took, and what is odd in it, in words."""
    epoch, at = divmod(step - 1, made.steps)
    order = epoch_order(made.settings.seed, epoch, len(made.source))
    rows = order[at * made.batch_size : (at + 1) * made.batch_size]
    shown = ", ".join(map(str, rows[:8].tolist())) + (f" and {len(rows) - 8} more" if len(rows) > 8 else "")
    return f" (epoch {epoch + 1}, batch {at + 1} of {made.steps}: samples {shown})", odd_sample(made.source, rows)


def odd_sample(source: Source, rows: Tensor) -> str:
    """The first of these samples that has values that are no numbers or very large, in words, if one has."""
    for field in fields(next(source.batches([rows]))[0]):
        if not field.is_floating_point():
            continue
        values = field.flatten(1).float().cpu()
        bad = ~values.isfinite().all(1)
        if bad.any():
            return f"sample {int(rows[bad.long().argmax()])} has values that are NaN or infinite"
        largest = values.abs().amax(1)
        if largest.max() > LARGE:
            return f"sample {int(rows[largest.argmax()])} has values up to {float(largest.max()):.3g}"
    return ""
