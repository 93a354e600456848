"""`imix.similar`: nearest neighbors of rows, files or other data."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import torch
from torch import nn

from imix.errors import InputError
from imix.explore.neighbors import Neighbors, nearest
from imix.explore.result import Answer, Card, format_table
from imix.explore.samples import ReadOptions, Samples, read_queries, read_samples, short_names
from imix.explore.stored import deliver
from imix.run import Run, as_run

if TYPE_CHECKING:
    import polars as pl

SHOWN_QUERIES, SHOWN_NEIGHBORS = 5, 5  # in the summary
SHOWN_CARDS, SHOWN_IN_CARD = 20, 9  # queries and neighbors in the report
COLUMNS = "query_.*|rank|similarity"


def similar(
    run: "Run | nn.Module | str | Path | None",
    data: Any = None,
    out: "str | Path | None" = None,
    *,
    to: Any = None,
    k: int = 10,
    **options: Unpack[ReadOptions],
) -> Answer:
    """Find the most similar samples by cosine similarity of their features.

    Parameters
    ----------
    run : Run, nn.Module, str, Path or None
        A run, its folder, or any module from samples (N, ...) to features (N, F). None: `data` is an array of features
        (N, F), or its inputs are compared.
    data : optional
        The data to search, in any form that `imix.pretrain` accepts. Default: the data that the run was trained on. If
        it has test samples, they are searched as well.
    out : str or Path, optional
        A .parquet or .csv file to write.
    to : optional
        The queries: other data, in any form; row numbers of training samples in `data`; or names of its files. A sample
        of `data` is not its own neighbor. Default: each sample of `data`.
    k : int
        Number of neighbors of each query.
    **options
        `keep`, `label`, `missing_label`, `columns`, `path_column`, `test`, `data_dir` and `device`, as in `imix.embed`
        and `imix.evaluate`. `keep` copies columns of `data`.

    Returns
    -------
    Answer
        `frame` has k rows per query, the most similar first, with these columns: `query_row`, and `query_split`,
        `query_file` and `query_label` if there are any; `rank`, from 1; of the neighbor: those in `keep`, `row`,
        and `split`, `file` and `label` if there are any; `similarity`, the cosine similarity.

    Examples
    --------
    >>> digits = imix.similar(torch.nn.Flatten(), "digits", to=0, k=3)
    >>> digits.frame.select("query_row", "rank", "row", "label").rows()
    [(0, 1, 1255, '6'), (0, 2, 1084, '6'), (0, 3, 2, '6')]
    """
    run = None if run is None else as_run(run)
    samples = read_samples(run, data, out, COLUMNS, **options)
    rows = _rows_of(samples, to)
    if to is None or rows is not None:
        found = _neighbors_of_rows(samples, rows, k)
        asked = samples.columns if rows is None else samples.columns[rows]
    else:
        queries = read_queries(run, to, samples, **options)
        _check_width(samples, queries)
        found = nearest(samples.features, queries.features, k, samples.device)
        asked = queries.columns
    if rows is None and to is None:
        rows = np.arange(len(samples))
    answer = Answer(_as_frame(samples, asked, found), _summarize(samples, asked, found), _cards(asked, rows, found))
    deliver("similar", answer, samples, out)
    return answer


def _rows_of(samples: Samples, to: Any) -> np.ndarray | None:
    """Return the positions that row numbers or names of files stand for; None if `to` is other data."""
    values = [to] if isinstance(to, int | str | Path) and not isinstance(to, bool) else to
    if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in "iu":
        values = values.tolist()
    if not isinstance(values, list | tuple | range) or not len(values):
        return None
    if all(isinstance(value, int) for value in values):
        n = samples.n_train
        if wrong := [value for value in values if not 0 <= value < n]:
            raise InputError(f"`to` has row {wrong[0]}; rows of {samples.data.name} are numbered 0 to {n - 1:,}")
        return np.array(values)
    if all(isinstance(value, str | Path) for value in values):
        position = {str(name): i for i, name in reversed(list(enumerate(samples.data.sample_names)))}
        if all(str(value) in position for value in values):
            return np.array([position[str(value)] for value in values])
    return None


def _neighbors_of_rows(samples: Samples, rows: np.ndarray | None, k: int) -> Neighbors:
    if rows is None:
        return nearest(samples.features, None, k, samples.device)
    n = len(samples)
    if not (isinstance(k, int) and 1 <= k < n):
        raise InputError(f"`k` must be between 1 and {n - 1:,}, the number of other samples; got {k!r}")
    found = nearest(samples.features, samples.features[torch.from_numpy(rows)], k + 1, samples.device)
    return found.without(rows)


def _check_width(samples: Samples, asked: Samples) -> None:
    widths = samples.features.shape[1], asked.features.shape[1]
    if widths[0] != widths[1]:
        raise InputError(f"`to` has samples of {widths[1]} features; those of {samples.data.name} have {widths[0]}")


def _as_frame(samples: Samples, asked: "pl.DataFrame", found: Neighbors) -> "pl.DataFrame":
    import polars as pl

    n, k = found.indices.shape
    queries = asked.select(name for name in ("row", "split", "file", "label") if name in asked.columns)
    queries = queries.rename({name: f"query_{name}" for name in queries.columns})[np.repeat(np.arange(n), k)]
    ranks = pl.DataFrame({"rank": np.tile(np.arange(1, k + 1), n)})
    scores = pl.DataFrame({"similarity": found.similarities.reshape(-1)})
    return pl.concat([queries, ranks, samples.columns[found.indices.reshape(-1)], scores], how="horizontal")


def _cards(asked: "pl.DataFrame", rows: np.ndarray | None, found: Neighbors) -> tuple[Card, ...]:
    """Each query with its neighbors; `rows` are the positions of the queries, if they are samples of the data."""
    cards = []
    for i, name in enumerate(short_names(asked.head(SHOWN_CARDS))):
        neighbors = [int(position) for position in found.indices[i, :SHOWN_IN_CARD]]
        query, captions = ([], []) if rows is None else ([int(rows[i])], ["query"])
        captions = [*captions, *(f"{similarity:.3f}" for similarity in found.similarities[i, :SHOWN_IN_CARD])]
        cards.append(Card(name, "", (*query, *neighbors), tuple(captions)))
    return tuple(cards)


def _summarize(samples: Samples, asked: "pl.DataFrame", found: Neighbors) -> str:
    n, k = found.indices.shape
    queries = "1 query" if n == 1 else f"{n:,} queries"
    title = f"{k} nearest of {len(samples):,} samples of {samples.data.name} for {queries} ({found.description})"
    rows = [["query", "nearest samples (cosine similarity)"]]
    for i, name in enumerate(short_names(asked.head(SHOWN_QUERIES))):
        nearest_names = samples.names(found.indices[i, :SHOWN_NEIGHBORS])
        pairs = zip(nearest_names, found.similarities[i], strict=False)
        rows.append([name, ", ".join(f"{other} ({similarity:.3f})" for other, similarity in pairs)])
    return "\n".join([title, "", *format_table(rows)])
