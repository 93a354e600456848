"""`imix.label_errors`: labels that may be wrong, because they disagree with those of similar samples."""

from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor, nn

from imix.errors import InputError
from imix.explore.neighbors import nearest
from imix.explore.result import Answer, Card, format_table
from imix.explore.samples import ReadOptions, Samples, read_samples
from imix.explore.stored import deliver
from imix.probes.linear import Linear, draw_folds, fit_linear
from imix.run import Run

FOLDS = 5
MIN_SAMPLES = 2 * FOLDS
MAX_FIT = 10_000  # samples that a linear classifier is fitted to
LINEAR = Linear(strengths=(1e-3, 1e-2, 0.1, 1.0), folds=3)
NEIGHBORS, TEMPERATURE = 20, 0.07  # as in `imix.evaluation.KNN`
PRIOR_WEIGHT = 0.5  # weight of the uniform prior; the votes sum to 1 or more
SHOWN, SHOWN_CARDS = 10, 60  # labels in the summary and in the report
COLUMNS = "suggested|p_label|p_suggested|rank"


def label_errors(
    run: "Run | nn.Module | str | Path | None",
    data: Any = None,
    out: "str | Path | None" = None,
    *,
    seed: int = 0,
    **options: Unpack[ReadOptions],
) -> Answer:
    """Rank labels by how likely they are wrong, judging by similar samples.

    The score is the self-confidence of confident learning (Northcutt et al., 2021): the probability of the given label
    according to the other samples. It is predicted by a linear classifier on the features (5-fold cross-validation), by
    the votes of the nearest neighbors, or by the mean of both, whichever has the lowest log loss.

    Parameters
    ----------
    run : Run, nn.Module, str, Path or None
        A run, its folder, or any module from samples (N, ...) to features (N, F). None: `data` is an array of features
        (N, F), or its inputs are compared.
    data : optional
        The data, in any form that `imix.pretrain` accepts, with labels: a label column, or for arrays
        ``imix.data.load(x, labels=y)``. Default: the data that the run was trained on. If it has test samples, their
        labels are ranked as well.
    out : str or Path, optional
        A .parquet or .csv file to write.
    seed : int
        Seed of the folds.
    **options
        `keep`, `label`, `missing_label`, `columns`, `path_column`, `test`, `data_dir` and `device`, as in `imix.embed`
        and `imix.evaluate`.

    Returns
    -------
    Answer
        `frame` has one row per sample, in the order of the data, with these columns: those in `keep`; `row`; `split`
        and `file`, if there are any; `label`; `suggested`, the most probable class; `p_label` and `p_suggested`, the
        probabilities of both; `rank`, 1 for the most suspicious label. They are null for samples without a label.

    Examples
    --------
    >>> data = imix.data.load("digits")
    >>> data.train.labels[3] = 7  # instead of 2
    >>> suspicious = imix.label_errors(torch.nn.Flatten(), data).frame.sort("rank")
    >>> suspicious.select("row", "label", "suggested").row(0)
    (3, '7', '2')
    """
    samples = read_samples(run, data, out, COLUMNS, **options)
    labels, known = _labels(samples)
    features = samples.features[known]
    candidates = {
        "linear classifier": _linear(features, labels, seed),
        "nearest neighbors": _votes(features, labels, samples.device),
    }
    candidates["linear classifier and nearest neighbors"] = torch.stack(list(candidates.values())).mean(0)
    losses = {name: _log_loss(p, labels) for name, p in candidates.items()}
    best = min(losses, key=lambda name: losses[name])
    answer = _describe(samples, labels, known, candidates[best], best)
    deliver("label-errors", answer, samples, out)
    return answer


def _labels(samples: Samples) -> tuple[Tensor, Tensor]:
    """Return the labels (n,) of the samples that have one, and their positions; raise InputError if unusable."""
    name = samples.data.name
    if samples.labels is None or not bool((known := _has_label(samples.labels)).any()):
        raise InputError(f"{name} has no labels; name the label column (`label=NAME`), or load arrays with labels")
    if samples.labels.is_floating_point():
        raise InputError(f"the labels of {name} are numbers, not classes")
    positions = known.nonzero()[:, 0]
    labels = samples.labels[positions]
    if len(labels.unique()) < 2:
        raise InputError(f"all labels of {name} are the same; label errors need at least two classes")
    if len(labels) < MIN_SAMPLES:
        raise InputError(f"label errors need at least {MIN_SAMPLES} labeled samples; {name} has {len(labels)}")
    return labels, positions


def _has_label(labels: Tensor) -> Tensor:
    return ~labels.isnan() if labels.is_floating_point() else labels >= 0


def _linear(features: Tensor, labels: Tensor, seed: int) -> Tensor:
    """Return class probabilities (n, C) of a linear classifier that was fitted to other samples."""
    std = features.std(0, correction=0)
    x = (features - features.mean(0)) / torch.where(std > 1e-6 * std.max(), std, torch.inf)
    n_classes = int(labels.max()) + 1
    fold = draw_folds(labels, FOLDS, seed, len(labels))
    generator = torch.Generator().manual_seed(seed)
    probabilities = torch.empty(len(labels), n_classes)
    for i in range(FOLDS):
        others = (fold != i).nonzero()[:, 0]
        others = others[torch.randperm(len(others), generator=generator)[:MAX_FIT]]
        model = fit_linear(x[others][None], labels[others][None], n_classes, LINEAR)
        probabilities[fold == i] = model(x[fold == i][None])[0].softmax(1)
    return probabilities


def _votes(features: Tensor, labels: Tensor, device: str) -> Tensor:
    """Return class probabilities (n, C): the weighted votes of the nearest other samples, and a uniform prior."""
    found = nearest(features, None, min(NEIGHBORS, len(features) - 1), device)
    similarities, n_classes = torch.from_numpy(found.similarities), int(labels.max()) + 1
    weights = ((similarities - similarities[:, :1]) / TEMPERATURE).exp()
    votes = torch.full((len(labels), n_classes), PRIOR_WEIGHT / n_classes)
    votes.scatter_add_(1, labels[torch.from_numpy(found.indices)], weights)
    return votes / votes.sum(1, keepdim=True)


def _log_loss(probabilities: Tensor, labels: Tensor) -> float:
    return -float(probabilities.gather(1, labels[:, None]).clamp(min=1e-9).log().mean())


def _describe(samples: Samples, labels: Tensor, known: Tensor, probabilities: Tensor, model: str) -> Answer:
    import polars as pl

    p_label = probabilities.gather(1, labels[:, None])[:, 0].numpy()
    p_suggested, suggested = probabilities.max(1)
    order = np.argsort(p_label, kind="stable")
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(1, len(order) + 1)
    scores = pl.DataFrame(
        {
            "suggested": samples.label_names(suggested),
            "p_label": p_label,
            "p_suggested": p_suggested.numpy(),
            "rank": ranks,
            "_position": known.numpy(),
        }
    )
    positions = pl.DataFrame({"_position": np.arange(len(samples))})
    scores = positions.join(scores, "_position", how="left", maintain_order="left").drop("_position")
    frame = pl.concat([samples.columns, scores], how="horizontal")
    agree = 100 * float((suggested == labels).double().mean())
    lines = [
        f"labels of {len(labels):,} samples of {samples.data.name}, the least probable ones first",
        f"{agree:.1f}% agree with the most probable class ({model})",
    ]
    rows = [["p", "sample", "label", "suggested"]]
    disagreeing = known.numpy()[order[(suggested != labels).numpy()[order]]]
    top = disagreeing[:SHOWN]
    for name, record in zip(samples.names(top), frame[top].iter_rows(named=True), strict=True):
        rows.append([f"{record['p_label']:.3f}", name, str(record["label"]), str(record["suggested"])])
    cards = []
    for position in disagreeing[:SHOWN_CARDS].tolist():
        record = frame.row(position, named=True)
        title = f"{record['label']}, suggested: {record['suggested']}"
        cards.append(Card(title, f"probability of the label: {record['p_label']:.3f}", (position,)))
    return Answer(frame, "\n".join([*lines, "", *format_table(rows)]), tuple(cards))
