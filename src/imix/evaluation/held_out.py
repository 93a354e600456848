"""Data to evaluate on: labelled samples, and a test part that was held out where there is none."""

from dataclasses import replace
from typing import Any

import torch

from imix.data import Data, Source
from imix.errors import InputError


def with_test(data: Data, seed: int, labelled: bool = True) -> tuple[Data, dict[str, Any]]:
    """Data that surely has test samples, `labelled` ones unless said otherwise, and how it got them."""
    if labelled:
        train = _labelled("training", data.train, data.name)
        test = None if data.test is None else _labelled("test", data.test, data.name)
        data = replace(data, train=train, test=test)
    sizes = {"train": len(data.train)}
    if data.test is not None:
        return data, sizes | {"test": len(data.test)}
    if len(data.train) < 5:
        raise InputError(f"{data.name} has no test samples, and {len(data.train)} are too few to hold some out")
    order = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(seed))
    cut = len(order) // 5
    train, test = data.train.take(order[cut:]), data.train.take(order[:cut])
    told = {"train": len(train), "test": f"{cut} held out of train", "seed": seed}
    return replace(data, train=train, test=test), told


def classes_of(data: Data) -> int:
    """Number of classes of training and test samples together: one that is rare may be in the test part alone."""
    return max(part.classes for part in (data.train, data.test) if part is not None)


def _labelled(part: str, source: Source, name: str) -> Source:
    """Those samples that have a label."""
    if source.labels is None:
        raise InputError(f"the {part} samples of {name} have no labels, and every protocol needs them (--label NAME)")
    has = source.labels >= 0
    if not has.any():
        raise InputError(f"no {part} sample of {name} has a label")
    return source if has.all() else source.take(has.nonzero()[:, 0])
