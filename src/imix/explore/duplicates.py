"""`imix.duplicates`: exact and near-duplicates, also between training and test samples."""

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import torch
from torch import Tensor, nn

from imix.batch import fields
from imix.errors import InputError
from imix.explore.neighbors import nearest
from imix.explore.result import Answer, Card, format_table
from imix.explore.samples import ReadOptions, Samples, read_samples
from imix.explore.stored import deliver
from imix.run import Run

if TYPE_CHECKING:
    import polars as pl

CANDIDATES = 10  # nearest neighbors of each sample that are compared with it
DEVIATIONS = 6.0  # robust standard deviations below the usual distance at which a pair is a near-duplicate
MAX_THRESHOLD = 1 / 3
MIN_THRESHOLD = {"audio": 0.25, "image": 0.02, "vector": 0.02}  # a shift by half a frame changes a spectrogram
SHOWN, SHOWN_CARDS = 5, 40  # pairs in the summary and in the report
COLUMNS = "other_.*|kind|relative_distance|feature_similarity|group"


def duplicates(
    run: "Run | nn.Module | str | Path | None",
    data: Any = None,
    out: "str | Path | None" = None,
    *,
    threshold: float | None = None,
    **options: Unpack[ReadOptions],
) -> Answer:
    """Find exact and near-duplicates.

    Exact duplicates have the same values after loading. Candidates for near-duplicates are the nearest neighbors of
    each sample in feature space. Their inputs are then compared: encoded columns, thumbnails, or mel spectrograms with
    small shifts. A pair is a near-duplicate if the distance of its inputs is far below the typical distance between
    neighbors.

    Parameters
    ----------
    run : Run, nn.Module, str, Path or None
        A run, its folder, or any module from samples (N, ...) to features (N, F). None: `data` is an array of features
        (N, F), or its inputs are compared.
    data : optional
        The data, in any form that `imix.pretrain` accepts. Default: the data that the run was trained on. If it has
        test samples, pairs of a training and a test sample are found as well.
    out : str or Path, optional
        A .parquet or .csv file to write.
    threshold : float, optional
        Largest relative distance of a near-duplicate: the distance of the inputs divided by the median distance to the
        neighbors; between 0 and 1. Default: six robust standard deviations below the median relative distance of
        nearest neighbors (on a log scale), and at most 1/3.
    **options
        `keep`, `label`, `missing_label`, `columns`, `path_column`, `test`, `data_dir` and `device`, as in `imix.embed`
        and `imix.evaluate`.

    Returns
    -------
    Answer
        `frame` has one row per pair, the closest first, with these columns: those in `keep`, `row`, and `split`, `file`
        and `label`, if there are any; the same for the other sample, with the prefix ``other_``; `kind` ("exact" or
        "near"); `relative_distance`; `feature_similarity`; `group`, a number that all copies of a sample share. Each
        exact duplicate is paired with the first sample that has the same values.

    Examples
    --------
    >>> x = torch.randn(100, 5)
    >>> pairs = imix.duplicates(None, torch.cat([x, x[:2], x[2:3] + 1e-4])).frame
    >>> pairs.select("row", "other_row", "kind").rows()
    [(0, 100, 'exact'), (1, 101, 'exact'), (2, 102, 'near')]
    """
    if threshold is not None and not 0 <= threshold <= 1:
        raise InputError(f"`threshold` must be between 0 and 1; got {threshold!r}")
    samples = read_samples(run, data, out, COLUMNS, **options)
    first = _first_equal(samples)
    exact = np.flatnonzero(first != np.arange(len(first)))
    pairs, relative, threshold, search = _near(samples, np.flatnonzero(first == np.arange(len(first))), threshold)
    pairs = np.concatenate([np.stack([first[exact], exact], 1), pairs])
    relative = np.concatenate([np.zeros(len(exact)), relative])
    order = np.lexsort((pairs[:, 1], pairs[:, 0], relative))
    is_exact = np.arange(len(pairs)) < len(exact)
    frame = _as_frame(samples, pairs[order], is_exact[order], relative[order])
    summary = _summarize(samples, frame, pairs[order], threshold, search)
    answer = Answer(frame, summary, _cards(samples, frame, pairs[order]))
    deliver("duplicates", answer, samples, out)
    return answer


def _first_equal(samples: Samples) -> np.ndarray:
    """Return for each sample the position (N,) of the first one with the same values."""
    first: dict[bytes, int] = {}
    positions: list[int] = []
    for batch in samples.batches():
        flat = [np.ascontiguousarray(x.cpu().numpy()).reshape(len(x), -1) for x in fields(batch)]
        for i in range(len(flat[0])):
            digest = hashlib.blake2b(digest_size=16)
            for part in flat:
                digest.update(part[i].tobytes())
            positions.append(first.setdefault(digest.digest(), len(positions)))
    return np.array(positions)


def _near(samples: Samples, distinct: np.ndarray, threshold: float | None) -> tuple[np.ndarray, np.ndarray, float, str]:
    """Return pairs (P, 2) of near-duplicates among distinct samples, their relative distances, and the threshold."""
    if len(distinct) < 3:
        return np.empty((0, 2), int), np.empty(0), threshold or 0.0, "exact search"
    k = min(CANDIDATES, len(distinct) - 1)
    found = nearest(samples.features[torch.from_numpy(distinct)], None, k, samples.device)
    inputs, neighbors = samples.comparable_inputs(), distinct[found.indices]
    distances = inputs.neighbor_distances(distinct, neighbors)
    usual = np.median(distances, 1)
    usual = np.maximum(usual, np.median(usual) / 2)  # so that many copies of a sample do not make the median small
    relative = distances / np.maximum(np.minimum(usual[:, None], usual[found.indices]), 1e-12)
    if threshold is None:
        logs = np.log(np.maximum(relative.min(1), 1e-9))
        deviation = 1.4826 * np.median(np.abs(logs - np.median(logs)))
        lowest = float(np.exp(np.median(logs) - DEVIATIONS * deviation))
        threshold = min(max(lowest, MIN_THRESHOLD[inputs.kind]), MAX_THRESHOLD)
    near = relative <= threshold
    both = np.stack([np.broadcast_to(distinct[:, None], neighbors.shape)[near], neighbors[near]], 1)
    pairs, index = np.unique(np.sort(both, 1), axis=0, return_index=True)
    return pairs, relative[near][index], threshold, found.description


def _groups(pairs: np.ndarray) -> np.ndarray:
    """Number the connected pairs (P, 2) in order of appearance."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n = int(pairs.max()) + 1 if len(pairs) else 0
    labels = connected_components(coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), (n, n)))[1]
    _, first, inverse = np.unique(labels[pairs[:, 0]], return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]


def _as_frame(samples: Samples, pairs: np.ndarray, is_exact: np.ndarray, relative: np.ndarray) -> "pl.DataFrame":
    import polars as pl

    columns, features = samples.columns, samples.features
    one, other = columns[pairs[:, 0]], columns[pairs[:, 1]]
    other = other.rename({name: f"other_{name}" for name in columns.columns})
    similarity = _similarities(features, pairs)
    return pl.concat([one, other], how="horizontal").with_columns(
        pl.Series("kind", np.where(is_exact, "exact", "near").tolist(), dtype=pl.String),
        pl.Series("relative_distance", relative, dtype=pl.Float64),
        pl.Series("feature_similarity", similarity, dtype=pl.Float32),
        pl.Series("group", _groups(pairs) if len(pairs) else [], dtype=pl.Int64),
    )


def _similarities(features: Tensor, pairs: np.ndarray) -> np.ndarray:
    i, j = torch.from_numpy(pairs).T
    return (features[i] * features[j]).sum(1).numpy()


def _cards(samples: Samples, frame: "pl.DataFrame", pairs: np.ndarray) -> tuple[Card, ...]:
    cards = []
    for position in _near_first(frame)[:SHOWN_CARDS]:
        record, pair = frame.row(int(position), named=True), pairs[position].tolist()
        distance = f"Relative distance {record['relative_distance']:.3f}"
        title = "Exact duplicate" if record["kind"] == "exact" else distance
        text = "training and test sample" if pair[0] < samples.n_train <= pair[1] else ""
        cards.append(Card(title, text, tuple(pair)))
    return tuple(cards)


def _near_first(frame: "pl.DataFrame") -> np.ndarray:
    return np.argsort(frame["kind"].to_numpy() == "exact", kind="stable")


def _summarize(samples: Samples, frame: "pl.DataFrame", pairs: np.ndarray, threshold: float, search: str) -> str:
    exact = int((frame["kind"] == "exact").sum())
    copies = len(np.unique(pairs)) - frame["group"].n_unique() if len(frame) else 0
    lines = [
        f"duplicate pairs among {len(samples):,} samples of {samples.data.name}: {exact:,} exact, "
        f"{len(frame) - exact:,} near",
        f"near-duplicates: relative distance up to {threshold:.3f}; candidates from {search}",
    ]
    lines += [f"removing {copies:,} samples would leave no duplicates"] if copies else []
    if "split" in frame.columns:
        crossing = int((frame["split"] != frame["other_split"]).sum())
        lines.append(f"{crossing:,} pairs consist of a training and a test sample (leakage)")
    if "label" in frame.columns and (different := int((frame["label"] != frame["other_label"]).sum())):
        lines.append(f"{different:,} pairs have different labels")
    rows = [["sample", "duplicate", "kind", "relative distance"]]
    for position in _near_first(frame)[:SHOWN]:
        record = frame.row(int(position), named=True)
        rows.append([*samples.names(pairs[position]), record["kind"], f"{record['relative_distance']:.3f}"])
    return "\n".join([*lines, *(["", *format_table(rows)] if len(rows) > 1 else [])])
