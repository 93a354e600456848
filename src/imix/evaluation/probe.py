"""What an encoder is worth while it is still being trained: the nearest neighbours' accuracy, along the way."""

from collections.abc import Callable

import torch
from torch import nn

from imix.data import Data
from imix.errors import InputError
from imix.evaluation.features import Encoded
from imix.evaluation.held_out import with_test
from imix.evaluation.knn import knn
from imix.settings import Settings


def make_probe(
    encoder: nn.Module, data: Data, settings: Settings, device: torch.device
) -> Callable[[], dict[str, float]]:
    """A function that measures the encoder as it is then; data without a test part has a fifth held out of it."""
    if settings.supervised and data.test is None:
        raise InputError(
            f"knn_every with method {settings.method!r} needs test samples: it has learned all other labels"
        )
    split, _ = with_test(data, settings.seed)
    assert split.test is not None
    train, test = Encoded(encoder, split.train, device), Encoded(encoder, split.test, device)
    classes = split.classes
    return lambda: {"knn": knn(train, test, classes)}
