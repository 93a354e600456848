"""A fine-tuned model: an encoder with a linear head that predicts classes or a number."""

from pathlib import Path

import torch
from torch import Tensor, nn

from imix.batch import Batch
from imix.errors import InputError, first_line
from imix.files import write_bytes

HEAD_FILE = "head.safetensors"


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
        n_classes, width = state["weight"].shape
        head = nn.Linear(width, n_classes, device="meta")  # without memory, because the shape may be malicious
        head.load_state_dict(state, assign=True)
    except (SafetensorError, OSError, KeyError, ValueError, RuntimeError) as error:
        raise InputError(f"{str(folder / HEAD_FILE)!r} is not a head written by imix: {first_line(error)}") from error
    return head
