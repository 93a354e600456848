"""`imix.cluster`: groups of similar samples, and how each group differs from the others."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from imix.errors import InputError
from imix.explore.explain import Difference, differences
from imix.explore.neighbors import nearest
from imix.explore.result import Answer, Card, format_table
from imix.explore.samples import ReadOptions, Samples, read_samples
from imix.explore.stability import Choice, choose_k, fit_kmeans
from imix.explore.stored import deliver
from imix.run import Run

if TYPE_CHECKING:
    import polars as pl

MAX_HDBSCAN = 20_000  # HDBSCAN compares all pairs; the other samples join the group of their nearest neighbor
SHOWN = 5  # typical and boundary samples of a group
SHOWN_GROUPS = 30  # in the summary
SHOWN_DIFFERENCES, SHOWN_IN_CARD = 3, 6
COLUMNS = "group|center_similarity|margin"


@dataclass(frozen=True, eq=False, repr=False)
class Clusters(Answer):
    """The answer of `imix.cluster`.

    Parameters
    ----------
    frame : polars.DataFrame
        One row per sample.
    summary : str
        The groups, in a few lines.
    cards : tuple of Card
        The typical and boundary samples of the groups.
    groups : polars.DataFrame
        One row per group: `group`, `size`, `share`; `typical` and `boundary`, the positions in `frame` of the samples
        nearest to its center, and of those nearest to the boundary with another group.
    differences : polars.DataFrame
        For tables, how each group differs from the others, largest effect first: `group`, `column`, `category`,
        `inside` and `outside` (medians, or shares of the category), `effect`.
    choice : polars.DataFrame
        For each number of groups that was tried: `k`, `silhouette`, `stability`, `chosen`.
    """

    groups: "pl.DataFrame"
    differences: "pl.DataFrame"
    choice: "pl.DataFrame"


def cluster(
    run: "Run | nn.Module | str | Path | None",
    data: Any = None,
    out: "str | Path | None" = None,
    *,
    k: "int | Sequence[int] | None" = None,
    method: Literal["kmeans", "hdbscan"] = "kmeans",
    min_size: int | None = None,
    seed: int = 0,
    **options: Unpack[ReadOptions],
) -> Clusters:
    """Divide samples into groups of similar samples.

    By default, the number of groups is chosen by two scores, which the summary shows. The silhouette measures how much
    closer samples are to their own group than to the next one. The stability measures how well the groups of two random
    halves of the data agree. Of the numbers with stable groups, the one with the highest silhouette is chosen. Both
    scores are computed on a subset of the data.

    Parameters
    ----------
    run : Run, nn.Module, str, Path or None
        A run, its folder, or any module from samples (N, ...) to features (N, F). None: `data` is an array of features
        (N, F), or its inputs are compared.
    data : optional
        The data, in any form that `imix.pretrain` accepts. Default: the data that the run was trained on. If it has
        test samples, they are included after the training samples.
    out : str or Path, optional
        A .parquet or .csv file to write.
    k : int or sequence of int, optional
        Number of groups, or the numbers to choose from. Default: up to 20. Only for "kmeans".
    method : {"kmeans", "hdbscan"}
        "hdbscan" finds dense groups of any shape; samples between them have group -1.
    min_size : int, optional
        Smallest group of "hdbscan". Default: 1% of the samples, at least 5.
    seed : int
        Seed of k-means and of the subset on which the scores are computed.
    **options
        `keep`, `label`, `missing_label`, `columns`, `path_column`, `test`, `data_dir` and `device`, as in `imix.embed`
        and `imix.evaluate`.

    Returns
    -------
    Clusters
        `frame` has these columns: those in `keep`; `row`; `split`, `file` and `label`, if there are any; `group`, from
        0 for the largest one; `center_similarity`, the cosine similarity to its center; `margin`, how much
        higher this is than the similarity to the next center.

    Examples
    --------
    >>> groups = imix.cluster(torch.nn.Flatten(), "digits", k=10)
    >>> groups.groups["size"].sum(), len(groups.frame)
    (1797, 1797)
    """
    if method not in ("kmeans", "hdbscan"):
        raise InputError(f"`method` must be kmeans or hdbscan; got {method!r}")
    if method == "hdbscan" and k is not None:
        raise InputError("`k` is for method kmeans; hdbscan has `min_size`")
    samples = read_samples(run, data, out, COLUMNS, **options)
    if len(samples) < 3:
        raise InputError(f"groups need at least 3 samples; {samples.data.name} has {len(samples)}")
    if method == "kmeans":
        choice = choose_k(samples.features, k, seed)
        group = fit_kmeans(samples.features, choice.k, seed)
    else:
        choice, group = Choice(0), _hdbscan(samples, min_size)
    answer = _describe(samples, _by_size(group), choice, method)
    deliver("cluster", answer, samples, out)
    return answer


def _by_size(group: np.ndarray) -> np.ndarray:
    """Number the groups by size, largest first; -1 stays."""
    numbers, sizes = np.unique(group[group >= 0], return_counts=True)
    new = {int(old): i for i, old in enumerate(numbers[np.argsort(-sizes, kind="stable")])}
    return np.array([new.get(int(old), -1) for old in group])


def _hdbscan(samples: Samples, min_size: int | None) -> np.ndarray:
    from sklearn.cluster import HDBSCAN

    n = len(samples)
    min_size = max(5, n // 100) if min_size is None else min_size
    if not 2 <= min_size <= n:
        raise InputError(f"`min_size` must be between 2 and {n:,}, the number of samples; got {min_size}")
    fitted = np.sort(np.random.default_rng(0).permutation(n)[:MAX_HDBSCAN])
    size = max(2, round(min_size * len(fitted) / n))
    # Boundary samples are noise by its rule for single linkage; min_samples smooths the density a little.
    labels = HDBSCAN(min_cluster_size=size, min_samples=min(5, size), copy=True).fit_predict(samples.features[fitted])
    if len(fitted) == n:
        return np.asarray(labels)
    found = nearest(samples.features[fitted], samples.features, 1, samples.device)
    return np.asarray(labels)[found.indices[:, 0]]


def _describe(samples: Samples, group: np.ndarray, choice: Choice, method: str) -> Clusters:
    import polars as pl

    n_groups = int(group.max()) + 1
    similarity, margin = _similarities(samples, group, n_groups)
    frame = samples.columns.with_columns(
        pl.Series("group", group), pl.Series("center_similarity", similarity), pl.Series("margin", margin)
    )
    columns = samples.input_columns()
    rows, found = [], []
    for number in range(n_groups):
        members = np.flatnonzero(group == number)
        typical = members[np.argsort(-similarity[members], kind="stable")[:SHOWN]]
        boundary = members[np.argsort(margin[members], kind="stable")[:SHOWN]] if n_groups > 1 else members[:0]
        rows.append((number, len(members), len(members) / len(group), typical.tolist(), boundary.tolist()))
        found.append(differences(columns, group == number))
    types = {"group": pl.Int64, "size": pl.Int64, "share": pl.Float64}
    lists = {"typical": pl.List(pl.Int64), "boundary": pl.List(pl.Int64)}
    groups = pl.DataFrame(rows, {**types, **lists}, orient="row")
    summary = _summarize(samples, groups, found, choice, method, int((group < 0).sum()))
    return Clusters(frame, summary, _cards(groups, found), groups, _as_frame(found), choice.frame())


def _cards(groups: "pl.DataFrame", found: Sequence[Sequence[Difference]]) -> tuple[Card, ...]:
    cards = []
    for record, items in zip(groups.head(SHOWN_GROUPS).iter_rows(named=True), found, strict=False):
        title = f"Group {record['group']}: {record['size']:,} samples ({100 * record['share']:.1f}%)"
        typical, boundary = record["typical"], record["boundary"]
        captions = ("typical",) * len(typical) + ("boundary",) * len(boundary)
        cards.append(Card(title, "; ".join(map(str, items[:SHOWN_IN_CARD])), (*typical, *boundary), captions))
    return tuple(cards)


def _similarities(samples: Samples, group: np.ndarray, n_groups: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the similarity to the center of the group (N,), and how much higher it is than to any other center."""
    if n_groups == 0:
        return np.full(len(group), np.nan), np.full(len(group), np.nan)
    numbers = torch.from_numpy(group)
    centers = torch.zeros(n_groups, samples.features.shape[1])
    centers.index_add_(0, numbers[numbers >= 0], samples.features[numbers >= 0])
    similarities = samples.features @ F.normalize(centers, dim=1).T
    similarity = similarities.gather(1, numbers.clamp(min=0)[:, None])
    others = similarities.scatter(1, numbers.clamp(min=0)[:, None], -torch.inf).amax(1, keepdim=True)
    outside = numbers[:, None] < 0
    similarity, margin = (
        similarity.masked_fill(outside, torch.nan),
        (similarity - others).masked_fill(outside, torch.nan),
    )
    return similarity[:, 0].numpy(), margin[:, 0].numpy()


def _as_frame(found: Sequence[Sequence[Difference]]) -> "pl.DataFrame":
    import polars as pl

    rows = [(group, *vars(each).values()) for group, items in enumerate(found) for each in items]
    texts = {"group": pl.Int64, "column": pl.String, "category": pl.String}
    return pl.DataFrame(
        rows, {**texts, "inside": pl.Float64, "outside": pl.Float64, "effect": pl.Float64}, orient="row"
    )


def _summarize(
    samples: Samples,
    groups: "pl.DataFrame",
    found: Sequence[Sequence[Difference]],
    choice: Choice,
    method: str,
    n_none: int,
) -> str:
    lines = [f"{len(groups)} groups of {len(samples):,} samples of {samples.data.name} ({method})"]
    lines += choice.lines()
    lines += [f"{n_none:,} samples are in no group (-1)"] if n_none else []
    explained = any(found)
    rows = [
        [
            "group",
            "size",
            "share",
            "differences" if explained else "typical",
            *([] if explained else ["boundary"]),
        ]
    ]
    for record, items in zip(groups.head(SHOWN_GROUPS).iter_rows(named=True), found, strict=False):
        cells = [str(record["group"]), f"{record['size']:,}", f"{100 * record['share']:.1f}%"]
        if explained:
            cells.append("; ".join(map(str, items[:SHOWN_DIFFERENCES])) or "no clear difference")
        else:
            cells += [", ".join(samples.names(record[name][:2])) for name in ("typical", "boundary")]
        rows.append(cells)
    hidden = len(groups) - SHOWN_GROUPS
    return "\n".join([*lines, "", *format_table(rows), *([f"and {hidden} smaller groups"] if hidden > 0 else [])])
