"""Data to evaluate on: labelled samples, and a test part that was held out where there is none."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from imix.data import Data, Source
from imix.errors import InputError

HELD_OUT = 0.2  # of the samples of data that has no test part


def with_test(data: Data, seed: int, labelled: bool = True) -> tuple[Data, dict[str, Any]]:
    """Data that surely has test samples, `labelled` ones unless said otherwise, and how it got them."""
    given = len(data.train) + len(data.test or ())
    if labelled:
        train = _labelled(data.train, f"the training samples of {data.name}", data)
        place = data.reading.test or f"the test samples of {data.name}"
        test = None if data.test is None else _labelled(data.test, place, data)
        data = replace(data, train=train, test=test)
        if data.classes < 2:
            raise InputError(f"all samples of {data.name} are of one class, so there is nothing to tell apart")
    without = given - len(data.train) - len(data.test or ())
    unlabelled = {"unlabelled": without} if without else {}
    sizes = {"train": len(data.train)}
    if data.test is not None:
        file = {"test_file": data.reading.test} if data.reading.test else {}
        return data, sizes | {"test": len(data.test)} | file | unlabelled
    if len(data.train) < 5:
        raise InputError(f"{data.name} has no test samples, and {len(data.train)} are too few to hold some out")
    labels = data.train.labels if labelled else None
    kept, held_out = divided(torch.zeros(len(data.train)) if labels is None else labels, HELD_OUT, seed)
    train, test = data.train.take(kept), data.train.take(held_out)
    told = {"train": len(train), "test": f"{len(test)} held out of train", "seed": seed} | unlabelled
    return replace(data, train=train, test=test), told


def divided(labels: Tensor, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Rows to keep and rows to hold out: a share of each class, at random, spread evenly over the rows by class."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(labels), generator=generator).to(labels.device)
    by_class = order[labels[order].argsort(stable=True)]
    passed = (torch.arange(len(labels) + 1, device=labels.device, dtype=torch.float64) * share).floor()
    held_out = torch.zeros(len(labels), dtype=torch.bool, device=labels.device)
    held_out[by_class[passed.diff() > 0]] = True
    held_out[order[0]] |= not held_out.any()
    return (~held_out).nonzero()[:, 0], held_out.nonzero()[:, 0]


def majority(data: Data) -> float:
    """Accuracy on the test samples of what always answers the most frequent class of the training samples."""
    assert data.test is not None
    known, asked = data.train.labels, data.test.labels
    assert known is not None
    assert asked is not None
    return float((asked == known.mode().values.to(asked)).double().mean())


def _labelled(source: Source, called: str, data: Data) -> Source:
    """Those samples that have a label."""
    if source.labels is None:
        if data.table is not None:
            how = "name their column when the run is trained (--label NAME), or here if it was no input"
        elif data.names:
            how = "put each file in a folder of its class"
        else:
            how = "give them with the samples"
        raise InputError(f"{called} have no labels, without which there is no accuracy: {how}")
    has = source.labels >= 0
    if not has.any():
        raise InputError(f"none of {called} has a label")
    return source if has.all() else source.take(has.nonzero()[:, 0])
