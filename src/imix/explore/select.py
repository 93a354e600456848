"""`imix.select`: which samples to label next, so that the labels cover the data."""

from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from imix.errors import InputError
from imix.explore.result import Answer, Card, format_table
from imix.explore.samples import ReadOptions, Samples, read_samples
from imix.explore.stability import fit_kmeans
from imix.explore.stored import deliver
from imix.run import Run

MAX_GROUPS = 500  # in addition to the n groups of new labels; if more samples have labels, they share groups
SHOWN, SHOWN_IN_CARD = 10, 60  # samples in the summary and in the report
COLUMNS = "rank|represents|group_labels"


def select(
    run: "Run | nn.Module | str | Path | None",
    data: Any = None,
    out: "str | Path | None" = None,
    *,
    n: int,
    seed: int = 0,
    **options: Unpack[ReadOptions],
) -> Answer:
    """Choose the samples to label next: typical samples of groups that have few or no labels.

    As in TypiClust (Hacohen et al., 2022), k-means divides all training samples into as many groups as there will be
    labels. The groups with the fewest labels come first, large ones before small ones. Of each group, the most typical
    unlabeled sample is chosen. Test samples are not chosen.

    Parameters
    ----------
    run : Run, nn.Module, str, Path or None
        A run, its folder, or any module from samples (N, ...) to features (N, F). None: `data` is an array of features
        (N, F), or its inputs are compared.
    data : optional
        The data, in any form that `imix.pretrain` accepts. Default: the data that the run was trained on.
    out : str or Path, optional
        A .parquet or .csv file to write.
    n : int
        Number of samples to choose.
    seed : int
        Seed of k-means.
    **options
        `keep`, `label`, `missing_label`, `columns`, `path_column`, `test`, `data_dir` and `device`, as in `imix.embed`
        and `imix.evaluate`. With `label`, samples that have a label count as covered; by default, all
        samples count as unlabeled.

    Returns
    -------
    Answer
        `frame` has n rows, the most useful sample first, with these columns: those in `keep`; `row`; `split`, `file`
        and `label`, if there are any; `rank`, from 1; `represents`, the size of the sample's group; `group_labels`, how
        many samples of the group had a label.

    Examples
    --------
    >>> chosen = imix.select(torch.nn.Flatten(), "digits", n=20)
    >>> len(chosen.frame), chosen.frame["label"].n_unique()
    (20, 10)
    """
    samples = read_samples(run, data, out, COLUMNS, **options)
    has_label = _has_label(samples, options.get("label"))
    unlabeled = int((~has_label).sum())
    if not (isinstance(n, int) and 1 <= n <= unlabeled):
        raise InputError(f"`n` must be between 1 and {unlabeled:,}, the number of samples without a label; got {n!r}")
    features = samples.features[: samples.n_train]
    n_groups = min(n + min(int(has_label.sum()), MAX_GROUPS), len(features))
    group = fit_kmeans(features, n_groups, seed)
    chosen, sizes, labeled = _choose(features, group, has_label, n)
    answer = _describe(samples, chosen, sizes, labeled, int(has_label.sum()))
    deliver("select", answer, samples, out)
    return answer


def _has_label(samples: Samples, label: str | None) -> np.ndarray:
    """Return which training samples count as labeled, (N,)."""
    train = samples.data.train
    return train.has_label.cpu().numpy() if label is not None else np.zeros(len(train), bool)


def _choose(features: Tensor, group: np.ndarray, has_label: np.ndarray, n: int) -> tuple[np.ndarray, ...]:
    """Return the positions (n,) of the chosen samples, and the sizes and numbers of labels of their groups."""
    n_groups = int(group.max()) + 1
    numbers = torch.from_numpy(group).long()
    centers = torch.zeros(n_groups, features.shape[1]).index_add_(0, numbers, features)
    typicality = (features * F.normalize(centers, dim=1)[numbers]).sum(1).numpy()
    sizes, labels = np.bincount(group, minlength=n_groups), np.bincount(group[has_label], minlength=n_groups)
    free = np.flatnonzero(~has_label)
    free = free[np.lexsort((-typicality[free], group[free]))]  # by group, the most typical first
    starts = np.flatnonzero(np.r_[True, np.diff(group[free]) > 0])
    place = np.arange(len(free)) - np.repeat(starts, np.diff(np.r_[starts, len(free)]))  # within the group
    # A sample that is chosen counts as a label for the next one of its group.
    order = np.lexsort((-sizes[group[free]], labels[group[free]] + place))[:n]
    chosen = free[order]
    return chosen, sizes[group[chosen]], labels[group[chosen]]


def _describe(samples: Samples, chosen: np.ndarray, sizes: np.ndarray, labels: np.ndarray, n_labeled: int) -> Answer:
    import polars as pl

    frame = samples.columns[chosen].with_columns(
        pl.Series("rank", np.arange(1, len(chosen) + 1)),
        pl.Series("represents", sizes),
        pl.Series("group_labels", labels),
    )
    n = samples.n_train
    known = f"; {n_labeled:,} already have a label" if n_labeled else ""
    rows = [["rank", "sample", "represents"]]
    for i, name in enumerate(samples.names(chosen[:SHOWN])):
        rows.append([str(i + 1), name, f"{sizes[i]:,} samples"])
    lines = [f"{len(chosen):,} of {n:,} training samples of {samples.data.name} to label{known}"]
    captions = tuple(f"represents {size:,}" for size in sizes[:SHOWN_IN_CARD])
    card = Card("Most useful first", "", tuple(chosen[:SHOWN_IN_CARD].tolist()), captions)
    return Answer(frame, "\n".join([*lines, "", *format_table(rows)]), (card,))
