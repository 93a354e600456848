"""kNN accuracy of an encoder while it is being trained."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn

from imix.data import Data
from imix.errors import InputError
from imix.probes.features import EncodedSource
from imix.probes.held_out import with_test_split
from imix.probes.knn import knn
from imix.settings import Settings


def build_knn_probe(
    encoder: nn.Module, data: Data, settings: Settings, device: torch.device, held_out: bool = False
) -> Callable[[], dict[str, float]]:
    """A function that measures the encoder's kNN accuracy; without a test set, a fifth of the data is held out.

    With `held_out`, the test set is not used even if there is one.
    """
    if held_out and settings.supervised:
        raise InputError(f"`keep_best='knn'` does not work with method {settings.method!r}: training uses all labels")
    if held_out:
        data = replace(data, test=None)
    if settings.supervised and data.test is None:
        raise InputError(
            f"`knn_every` with method {settings.method!r} needs a test set, because training uses all other labels"
        )
    option = "`keep_best='knn'`" if held_out else "`knn_every`"
    if data.train.is_numeric:
        raise InputError(f"{option} needs classes; the labels of {data.name} are numbers")
    split, _ = with_test_split(data, settings.seed)
    assert split.test is not None
    train, test = EncodedSource(encoder, split.train, device), EncodedSource(encoder, split.test, device)
    n_classes = split.n_classes

    def accuracy() -> dict[str, float]:
        predicted = knn(train.features(), train.labels(), test.features(), n_classes).argmax(1)
        return {"knn": float((predicted == test.labels()).double().mean())}

    return accuracy
