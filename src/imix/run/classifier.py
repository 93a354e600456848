"""A fine-tuned model: an encoder with a linear head that predicts classes or a number."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from imix.batch import Batch
from imix.errors import InputError, first_line
from imix.files import write_bytes

HEAD_FILE = "head.safetensors"


@dataclass(frozen=True)
class FineTuning:
    """What a fine-tuned model predicts, and how it was fine-tuned.

    Parameters
    ----------
    classes : tuple of str
        Names of the classes; empty if the model predicts a number.
    include_inputs : bool
        Whether the head sees the inputs beside the features.
    epochs : int
        Number of epochs.
    batch_size : int
        Batch size.
    lr, encoder_lr : float
        Peak learning rates of the head and of the encoder.
    weight_decay : float
        Weight decay of AdamW.
    mix : {"none", "mixup"}
        Whether inputs and labels are mixed.
    alpha : float
        Parameter of the Beta distribution of the mixing weight.
    class_weights : bool
        Whether rare classes weigh more, so that all classes weigh the same.
    unlabeled_weight : float
        Weight of the pretraining loss on all samples, which is added if it is above 0.
    held_out : float
        Fraction of the labels by which the number of epochs is chosen; 0 trains for all epochs.
    patience : int
        Epochs without improvement on the held-out labels after which training stops.
    seed : int
        Random seed.
    """

    classes: tuple[str, ...] = ()
    include_inputs: bool = False
    epochs: int = 60
    batch_size: int = 64
    lr: float = 1e-3
    encoder_lr: float = 1e-4
    weight_decay: float = 1e-2
    mix: Literal["none", "mixup"] = "none"
    alpha: float = 0.2
    class_weights: bool = False
    unlabeled_weight: float = 0.0
    held_out: float = 0.2
    patience: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "lr", "encoder_lr", "alpha", "patience"):
            if not getattr(self, name) > 0:
                raise InputError(f"`{name}` must be above 0; got {getattr(self, name)!r}")
        for name in ("weight_decay", "unlabeled_weight", "seed"):
            if getattr(self, name) < 0:
                raise InputError(f"`{name}` must be at least 0; got {getattr(self, name)!r}")
        if not 0 <= self.held_out < 1:
            raise InputError(f"`held_out` must be at least 0 and less than 1; got {self.held_out!r}")
        if self.mix not in ("none", "mixup"):
            raise InputError(f"`mix` must be 'none' or 'mixup'; got {self.mix!r}")


class Classifier(nn.Module):
    """Maps raw inputs (N, ...) to class scores (N, C), or to predictions (N, 1).

    `encoder` is a run's model, `Sequential(preprocess, encoder)`; `head` sees its features, and before them the
    preprocessed inputs if `include_inputs` is set.
    """

    def __init__(self, encoder: nn.Sequential, head: nn.Linear, include_inputs: bool) -> None:
        super().__init__()
        self.encoder, self.head, self.include_inputs = encoder, head, include_inputs

    def forward(self, x: Batch) -> Tensor:
        """Return the scores of raw inputs."""
        return self.score(self.encoder[0](x))

    def score(self, preprocessed: Batch) -> Tensor:
        """Return the scores of preprocessed inputs."""
        return self.head(self.represent(preprocessed))

    def represent(self, preprocessed: Batch) -> Tensor:
        """Return what the head sees, (N, F)."""
        features = self.encoder[1](preprocessed)
        if not self.include_inputs:
            return features
        assert isinstance(preprocessed, Tensor)  # checked before training
        return torch.cat([preprocessed.flatten(1), features], 1)


def save_head(folder: Path, head: nn.Linear) -> None:
    """Write the head's weights to the run folder."""
    from safetensors.torch import save

    write_bytes(folder / HEAD_FILE, save({name: value.detach().cpu() for name, value in head.state_dict().items()}))


def load_head(folder: Path) -> nn.Linear:
    """Read the head's weights from the run folder."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        state = load_file(folder / HEAD_FILE)
        head = nn.Linear(*reversed(state["weight"].shape))
        head.load_state_dict(state)
    except (SafetensorError, OSError, KeyError, TypeError, RuntimeError) as error:
        raise InputError(f"{str(folder / HEAD_FILE)!r} is not a head written by imix: {first_line(error)}") from error
    return head
