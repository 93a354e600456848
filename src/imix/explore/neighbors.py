"""Nearest neighbors by cosine similarity: exact search in chunks, or approximate search with faiss."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from imix.errors import InputError
from imix.output import print_message
from imix.progress import ProgressLine
from imix.runtime.device import pick_device

EXACT_SAMPLES = 100_000  # with more samples, the search is approximate if faiss is installed and there is no GPU
MAX_SIMILARITIES = 1 << 28  # on a GPU at a time
TARGET_RECALL = 0.98  # of the approximate search
RECALL_QUERIES = 500  # queries that are also searched exactly
TRAINING_SAMPLES_PER_CELL = 64
MIN_CELLS = 4  # that a query visits
MAX_VISITED = 1 / 16  # of all cells; if the recall is still low, the features have little cluster structure
CHUNK = 16_384  # queries between two progress messages


@dataclass(frozen=True)
class Neighbors:
    """The k most similar samples of each query, most similar first.

    Parameters
    ----------
    indices : ndarray of shape (Q, k)
        Positions of the neighbors.
    similarities : ndarray of shape (Q, k)
        Cosine similarities.
    recall : float or None
        Fraction of the true neighbors that were found, measured on some queries; None if the search was exact.
    """

    indices: np.ndarray
    similarities: np.ndarray
    recall: float | None = None

    def without(self, rows: np.ndarray) -> "Neighbors":
        """Remove the queries' own rows (Q,) of the bank from their k + 1 neighbors."""
        return Neighbors(*_without(rows, self.indices, self.similarities), self.recall)

    @property
    def description(self) -> str:
        """How the neighbors were found."""
        return "exact search" if self.recall is None else f"approximate search, recall {100 * self.recall:.1f}%"


def nearest(bank: Tensor, queries: Tensor | None, k: int, device: str = "auto") -> Neighbors:
    """Find the k rows of `bank` (N, F) with the highest cosine similarity to each of the `queries` (Q, F).

    All rows are L2-normalized. If `queries` is None, all rows of the bank are queries, and none is its own neighbor.
    """
    available = len(bank) - (queries is None)
    if not (isinstance(k, int) and 1 <= k <= available):
        raise InputError(f"`k` must be between 1 and {available:,}, the number of other samples; got {k!r}")
    torch_device = pick_device(device)
    many = len(bank) > EXACT_SAMPLES and (queries is None or len(queries) > RECALL_QUERIES)
    if many and torch_device.type == "cpu" and (faiss := _import_faiss()) is not None:
        return _approximate(faiss, bank, queries, k)
    rows = np.arange(len(bank)) if queries is None else None
    query_features = bank if queries is None else queries
    search = _on_gpu if torch_device.type == "cuda" else _exact
    return Neighbors(*search(bank.to(torch_device), query_features.to(torch_device), rows, k))


def _exact(bank: Tensor, queries: Tensor, rows: np.ndarray | None, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return positions and similarities (Q, k); `rows` (Q,) are the queries' own rows of the bank, if they have any."""
    from sklearn.neighbors import NearestNeighbors

    index = NearestNeighbors(algorithm="brute").fit(bank.numpy())  # by Euclidean distance: the same order
    parts, progress = [], ProgressLine("searching", len(queries), "samples")
    for chunk in _slices(len(queries), CHUNK):
        distances, indices = index.kneighbors(queries[chunk].numpy(), k + (rows is not None))
        similarities = (1 - distances**2 / 2).astype(np.float32)
        parts.append((indices, similarities) if rows is None else _without(rows[chunk], indices, similarities))
        progress(min(chunk.stop, len(queries)))
    indices, similarities = (np.concatenate(part) for part in zip(*parts, strict=True))
    return indices, similarities


def _on_gpu(bank: Tensor, queries: Tensor, rows: np.ndarray | None, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The same as `_exact`, with matrix products on a GPU."""
    parts = []
    for chunk in _slices(len(queries), max(1, MAX_SIMILARITIES // len(bank))):
        found = (queries[chunk] @ bank.T).topk(k + (rows is not None), dim=1)
        indices, similarities = found.indices.cpu().numpy(), found.values.cpu().numpy()
        parts.append((indices, similarities) if rows is None else _without(rows[chunk], indices, similarities))
    indices, similarities = (np.concatenate(part) for part in zip(*parts, strict=True))
    return indices, similarities


def _slices(n: int, size: int) -> list[slice]:
    return [slice(start, start + size) for start in range(0, n, size)]


def _without(rows: np.ndarray, indices: np.ndarray, similarities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Remove the queries' own rows (Q,) from their neighbors (Q, k + 1); returns (Q, k)."""
    is_self = indices == rows[:, None]
    is_self[~is_self.any(1), -1] = True  # among many equal samples the query itself may be missing: drop the last
    shape = len(rows), -1
    return indices[~is_self].reshape(shape), similarities[~is_self].reshape(shape)


def _import_faiss() -> Any:
    try:
        import faiss
    except ImportError:
        print_message(
            f"exact search among more than {EXACT_SAMPLES:,} samples is slow; faster: pip install 'imix-ssl[faiss]'"
        )
        return None
    return faiss


def _approximate(faiss: Any, bank: Tensor, queries: Tensor | None, k: int) -> Neighbors:
    """Search an inverted file; the number of cells to visit is the lowest power of 2 with the target recall."""
    n = len(bank)
    vectors = np.ascontiguousarray(bank.numpy(), np.float32)
    cells = int(2 * n**0.5)
    index = faiss.IndexIVFFlat(faiss.IndexFlatIP(bank.shape[1]), bank.shape[1], cells, faiss.METRIC_INNER_PRODUCT)
    index.cp.niter, index.cp.seed, index.cp.max_points_per_centroid = 10, 0, TRAINING_SAMPLES_PER_CELL
    index.cp.min_points_per_centroid = 1  # no warning
    generator = np.random.default_rng(0)
    index.train(vectors[np.sort(generator.choice(n, min(n, TRAINING_SAMPLES_PER_CELL * cells), replace=False))])
    index.add(vectors)
    query_features = bank if queries is None else queries
    self_index = np.arange(n) if queries is None else None

    def search(chosen: Any) -> tuple[np.ndarray, np.ndarray]:
        similarities, indices = index.search(query_features[chosen].numpy(), k + (self_index is not None))
        return (indices, similarities) if self_index is None else _without(self_index[chosen], indices, similarities)

    test = np.sort(generator.choice(len(query_features), RECALL_QUERIES, replace=False))
    expected, _ = _exact(bank, query_features[test], None if self_index is None else self_index[test], k)
    recall, index.nprobe = 0.0, MIN_CELLS // 2
    while recall < TARGET_RECALL and index.nprobe < cells * MAX_VISITED:
        index.nprobe *= 2
        recall = float(
            np.mean([len(np.intersect1d(*pair)) / k for pair in zip(search(test)[0], expected, strict=True)])
        )
    parts, progress = [], ProgressLine("searching", len(query_features), "samples")
    for chunk in _slices(len(query_features), CHUNK):
        parts.append(search(chunk))
        progress(min(chunk.stop, len(query_features)))
    indices, similarities = (np.concatenate(part) for part in zip(*parts, strict=True))
    if len(short := np.flatnonzero((indices < 0).any(1))):  # the cells visited held fewer than k samples
        indices[short], similarities[short] = _exact(
            bank, query_features[short], None if self_index is None else self_index[short], k
        )
    return Neighbors(indices, similarities, recall)
