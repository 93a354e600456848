"""Test samples for evaluation: those of the data, or a part of the training samples that is held out."""

from dataclasses import replace

import torch
from torch import Tensor

from imix.data import Data, Source
from imix.errors import InputError
from imix.run.result import Split

TEST_FRACTION = 0.2  # held out of data that has no test samples


def with_test_split(
    data: Data, seed: int, labeled: bool = True, group: Tensor | None = None, time: Tensor | None = None
) -> tuple[Data, Split]:
    """Return data that has test samples, and its sizes and how it was split.

    Data without test samples has a fifth of its training samples held out: a random part of each class, or whole groups
    (numbers (N,) in `group`), or the latest samples (by `time` (N,)). With `labeled`, samples without a label are
    removed, and data that has no labels raises InputError.
    """
    n_samples = len(data.train) + len(data.test or ())
    if data.test is not None and (group is not None or time is not None):
        raise InputError(f"{data.name} has test samples, so it cannot be split by `group` or `time`")
    if labeled:
        group, time = (None if values is None else values[data.train.has_label] for values in (group, time))
    if labeled:
        train = labeled_samples(data)
        test_name = data.settings.test or f"the test samples of {data.name}"
        test = None if data.test is None else _labeled(data.test, test_name, data)
        data = replace(data, train=train, test=test)
        if data.n_classes < 2 and not data.train.is_numeric:
            raise InputError(f"all samples of {data.name} have the same class; evaluation needs at least two classes")
    unlabeled = n_samples - len(data.train) - len(data.test or ())
    if data.test is not None:
        return data, Split(len(data.train), len(data.test), test_file=data.settings.test, unlabeled=unlabeled)
    if len(data.train) < 5:
        raise InputError(
            f"{data.name} has no test samples, and its {len(data.train)} training samples are too few to split"
        )
    stratified = labeled and not data.train.is_numeric
    labels = data.train.labels if stratified and data.train.labels is not None else torch.zeros(len(data.train))
    if time is not None:
        kept, held_out = _latest(time, TEST_FRACTION)
    elif group is not None:
        kept, held_out = _whole_groups(group, TEST_FRACTION, seed)
    else:
        kept, held_out = stratified_split(labels, TEST_FRACTION, seed)
    train, test = data.train.take(kept), data.train.take(held_out)
    by = "time" if time is not None else "group" if group is not None else None
    split = Split(len(train), len(test), held_out=True, seed=seed, unlabeled=unlabeled, by=by)
    return replace(data, train=train, test=test), split


def _whole_groups(group: Tensor, fraction: float, seed: int) -> tuple[Tensor, Tensor]:
    """Return the rows to keep and to hold out, so that no group is in both: random groups up to `fraction` of rows."""
    numbers, index, sizes = group.unique(return_inverse=True, return_counts=True)
    if len(numbers) < 2:
        raise InputError("cannot split by group, because all samples are in the same group")
    order = torch.randperm(len(numbers), generator=torch.Generator().manual_seed(seed))
    n_held_out = int((sizes[order].cumsum(0) <= fraction * len(group)).sum())
    held_out = torch.isin(index, order[: max(1, n_held_out)])
    return (~held_out).nonzero()[:, 0], held_out.nonzero()[:, 0]


def _latest(time: Tensor, fraction: float) -> tuple[Tensor, Tensor]:
    """Return the rows to keep and to hold out: every sample later than the quantile 1 - `fraction`."""
    threshold = time.double().quantile(1 - fraction, interpolation="lower")
    held_out = time > threshold
    if not held_out.any():
        raise InputError("cannot split by time, because the latest fifth of the samples all have the same time")
    return (~held_out).nonzero()[:, 0], held_out.nonzero()[:, 0]


def stratified_split(labels: Tensor, fraction: float, seed: int) -> tuple[Tensor, Tensor]:
    """Return the rows to keep and the rows to hold out: a random `fraction` of each class, and at least one row."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(labels), generator=generator).to(labels.device)
    by_class = order[labels[order].argsort(stable=True)]
    # Hold out the rows at which i * fraction passes an integer, which spreads them evenly over the classes.
    passed = (torch.arange(len(labels) + 1, device=labels.device, dtype=torch.float64) * fraction).floor()
    held_out = torch.zeros(len(labels), dtype=torch.bool, device=labels.device)
    held_out[by_class[passed.diff() > 0]] = True
    held_out[order[0]] |= not held_out.any()
    return (~held_out).nonzero()[:, 0], held_out.nonzero()[:, 0]


def majority_accuracy(data: Data) -> float:
    """Return the test accuracy of always predicting the most frequent class of the training samples."""
    assert data.test is not None
    train_labels, test_labels = data.train.labels, data.test.labels
    assert train_labels is not None
    assert test_labels is not None
    return float((test_labels == train_labels.mode().values.to(test_labels)).double().mean())


def labeled_samples(data: Data) -> Source:
    """Return the training samples that have a label; raise InputError if there are none."""
    return _labeled(data.train, f"the training samples of {data.name}", data)


def _labeled(source: Source, name: str, data: Data) -> Source:
    """Return the samples that have a label; raise InputError if there are none."""
    if source.labels is None:
        if data.table is not None:
            hint = "name the label column in pretraining (`label=NAME`), or here if it was not an input of the run"
        elif data.sample_names:
            hint = (
                "put the files of each class into their own subfolder, name the label column of a table of files "
                "(`label=NAME`), or pass `labels` with a list of paths"
            )
        else:
            hint = "pass `labels` together with the samples"
        raise InputError(f"{name} have no labels; {hint}")
    has_label = source.has_label
    if not has_label.any():
        raise InputError(f"none of {name} has a label")
    return source if has_label.all() else source.take(has_label.nonzero()[:, 0])
