"""Functions that a user passes to `imix.pretrain`, and the state they are called with."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from imix.errors import InputError


@dataclass(frozen=True)
class TrainingState:
    """How far a run is, as passed to `on_step`, `on_epoch` and `on_checkpoint`. It is read-only.

    Parameters
    ----------
    epoch, epochs : int
        The epoch of the last step, counted from 1, and the number of epochs.
    step, steps : int
        The number of steps taken, and the total.
    lr : float
        Learning rate of the last step.
    metrics : mapping of str to float
        The latest record of metrics.jsonl; empty before the first.
    path : Path or None
        The run folder.

    Examples
    --------
    >>> def show(state):
    ...     print(f"epoch {state.epoch} of {state.epochs}, step {state.step}: {sorted(state.metrics)[:3]}")
    >>> options = {"epochs": 2, "batch_size": 32, "device": "cpu", "progress": False}
    >>> run = imix.pretrain(torch.randn(64, 5), on_epoch=show, **options)
    epoch 1 of 2, step 2: ['epoch', 'loss', 'lr']
    epoch 2 of 2, step 4: ['epoch', 'loss', 'lr']
    """

    epoch: int
    epochs: int
    step: int
    steps: int
    lr: float
    metrics: Mapping[str, float]
    path: Path | None
    _loss: Tensor = field(repr=False)

    @property
    def loss(self) -> float:
        """Loss of the last step on this rank. Reading it in every step slows down training on a GPU."""
        return float(self._loss)


Callback = Callable[[TrainingState], object]


@dataclass(frozen=True)
class Callbacks:
    """The callbacks of a run; they are called on rank 0."""

    on_step: Callback | None = None
    on_epoch: Callback | None = None
    on_checkpoint: Callback | None = None

    def __post_init__(self) -> None:
        for name, callback in vars(self).items():
            if callback is not None and not callable(callback):
                raise InputError(f"`{name}` must be a function of a TrainingState; got {callback!r}")
