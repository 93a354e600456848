"""`imix.outliers`: samples that are far from all others, and the reasons."""

from pathlib import Path
from typing import Any, Unpack

import numpy as np
from torch import nn

from imix.explore.explain import reasons
from imix.explore.neighbors import Neighbors, nearest
from imix.explore.result import Answer, Card, format_table
from imix.explore.samples import ReadOptions, Samples, read_samples
from imix.explore.stored import deliver
from imix.run import Run

EXPLAINED = 1000  # outliers with a reason
SHOWN, SHOWN_CARDS = 10, 30  # outliers in the summary and in the report
COLUMNS = "score|percentile|rank|nearest_.*|reason"


def outliers(
    run: "Run | nn.Module | str | Path | None",
    data: Any = None,
    out: "str | Path | None" = None,
    *,
    k: int = 10,
    **options: Unpack[ReadOptions],
) -> Answer:
    """Find the samples that are least similar to all others.

    The score is the distance to the k nearest neighbors: the geometric mean of their mean distances in features
    (cosine) and in inputs (columns, thumbnails or mel spectrograms), each divided by its median over all samples. A
    score of 3 means three times the median distance. For tables, the reason names the columns with the most extreme
    values. If no value is extreme by itself, it names the columns in which the row differs most from its neighbors.

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
    k : int
        Number of neighbors. Up to k unusual samples that are similar to each other still count as outliers.
    **options
        `keep`, `label`, `missing_label`, `columns`, `path_column`, `test`, `data_dir` and `device`, as in `imix.embed`
        and `imix.evaluate`.

    Returns
    -------
    Answer
        `frame` has one row per sample, in the order of the data, with these columns: those in `keep`; `row`; `split`,
        `file` and `label`, if there are any; `score`; `percentile`, the percentage of samples with a lower score;
        `rank`, 1 for the highest score; `nearest_row`, and `nearest_split` or `nearest_file` if there are any: the
        nearest neighbor; `reason`, for the 1,000 highest scores of a table.

    Examples
    --------
    >>> x = torch.randn(200, 3)
    >>> x[7, 1] = 40.0
    >>> answer = imix.outliers(None, x)
    >>> answer.frame.sort("rank").select("row", "reason").row(0)
    (7, '1 = 40 (z +42.9)')
    """
    samples = read_samples(run, data, out, COLUMNS, **options)
    found = nearest(samples.features, None, k, samples.device)
    inputs = samples.comparable_inputs().neighbor_distances(np.arange(len(samples)), found.indices)
    scores = np.sqrt(_relative(1 - found.similarities) * _relative(inputs))
    order = np.argsort(-scores, kind="stable")
    answer = _describe(samples, found, scores, order)
    deliver("outliers", answer, samples, out)
    return answer


def _relative(distances: np.ndarray) -> np.ndarray:
    """Return mean distances (N,) to neighbors, divided by their median; by the mean if most are 0."""
    means = distances.astype(np.float64).mean(1).clip(min=0)
    return means / (np.median(means) or means.mean() or 1.0)


def _describe(samples: Samples, found: Neighbors, scores: np.ndarray, order: np.ndarray) -> Answer:
    import polars as pl

    n = len(scores)
    ranks = np.empty(n, np.int64)
    ranks[order] = np.arange(1, n + 1)
    lower = np.searchsorted(scores[order[::-1]], scores)  # number of samples with a lower score
    explained = order[:EXPLAINED]
    texts: list[str | None] = [None] * n
    for position, text in zip(
        explained, reasons(samples.input_columns(), explained, found.indices[explained]), strict=True
    ):
        texts[position] = text or None
    neighbors = samples.columns[found.indices[:, 0]]
    neighbors = neighbors.select(pl.col(name).alias(f"nearest_{name}") for name in samples.id_columns)
    frame = samples.columns.with_columns(
        pl.Series("score", scores),
        pl.Series("percentile", 100 * lower / n),
        pl.Series("rank", ranks),
        *neighbors,
        pl.Series("reason", texts, dtype=pl.String),
    )
    title = f"outliers among {n:,} samples of {samples.data.name}"
    scale = f"score: distance to {found.indices.shape[1]} neighbors relative to the median ({found.description})"
    rows = [["score", "sample", "reason" if any(texts) else "nearest sample"]]
    top = order[:SHOWN]
    nearest_names = samples.names(found.indices[top, 0])
    for position, name, neighbor in zip(top, samples.names(top), nearest_names, strict=True):
        rows.append([f"{scores[position]:.2f}", name, texts[position] or neighbor])
    cards = tuple(
        Card(
            f"Score {scores[position]:.2f}",
            texts[position] or "",
            (int(position), int(found.indices[position, 0])),
            ("outlier", "nearest neighbor"),
        )
        for position in order[:SHOWN_CARDS]
    )
    return Answer(frame, "\n".join([title, scale, "", *format_table(rows)]), cards)
