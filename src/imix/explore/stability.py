"""Choice of the number of groups: silhouette and stability of k-means, measured on a subset of the data."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from imix.errors import InputError

if TYPE_CHECKING:
    import polars as pl

DEFAULT_MAX_K = 20
MAX_FIT = 100_000  # samples that k-means is fitted to; the others join the nearest center
MAX_COMPARED = 4_000  # samples on which numbers of groups are compared
MAX_SILHOUETTE = 2_000
INITS = 3  # random initializations of k-means; the best one is used
HALVES = 2  # pairs of random halves whose groups are compared
STABLE = 0.8  # minimum agreement (adjusted Rand index) of stable groups


@dataclass(frozen=True)
class Choice:
    """The chosen number of groups, and the scores (k, silhouette, stability) of all that were tried."""

    k: int
    scores: Sequence[tuple[int, float, float]] = field(default=())

    def frame(self) -> "pl.DataFrame":
        """The scores as a table."""
        import polars as pl

        types = {"k": pl.Int64, "silhouette": pl.Float64, "stability": pl.Float64, "chosen": pl.Boolean}
        return pl.DataFrame([(*each, each[0] == self.k) for each in self.scores], types, orient="row")

    def lines(self) -> list[str]:
        """Why this number was chosen, for the summary."""
        if not self.scores:
            return []
        by_k = {k: (silhouette, stability) for k, silhouette, stability in self.scores}
        silhouette, stability = by_k[self.k]
        tried = f"tried {min(by_k)} to {max(by_k)} groups"
        if stability >= STABLE:
            reason = f"highest silhouette ({silhouette:.2f}) of the stable numbers (stability {stability:.2f})"
        else:
            reason = f"highest stability ({stability:.2f}, below {STABLE}; silhouette {silhouette:.2f})"
        best = sorted(self.scores, key=lambda each: -each[1])[:5]
        listed = ", ".join(f"{k}: {each:.2f}/{other:.2f}" for k, each, other in best)
        return [f"{tried}; chose {self.k}: {reason}", f"highest silhouettes (silhouette/stability): {listed}"]


def choose_k(features: Tensor, k: int | Sequence[int] | None, seed: int) -> Choice:
    """Return `k`, or the best of several numbers of groups.

    Both scores are computed on a subset of the samples. The stability is the agreement between the groups of the subset
    predicted by k-means models fitted to two random halves of it: the adjusted Rand index, averaged over several pairs
    of halves.
    """
    n_distinct = len(np.unique(features[:MAX_COMPARED].numpy(), axis=0))
    n = len(features)
    largest = max(2, min(DEFAULT_MAX_K, n_distinct - 1, n // 2))
    numbers = list(range(2, largest + 1)) if k is None else [k] if isinstance(k, int) else list(k)
    if not numbers or not all(isinstance(each, int) and 1 <= each <= n for each in numbers):
        raise InputError(f"`k` must be between 1 and {n:,}, the number of samples; got {k!r}")
    if len(numbers) == 1:
        return Choice(numbers[0])
    rng = np.random.default_rng(seed)
    x = features[np.sort(rng.permutation(n)[:MAX_COMPARED])].numpy()
    scores = [(each, *_score(x, each, seed)) for each in sorted(set(numbers)) if 2 <= each < len(x)]
    stable = [each for each in scores if each[2] >= STABLE]
    best = max(stable, key=lambda each: each[1]) if stable else max(scores, key=lambda each: each[2])
    return Choice(best[0], scores)


def _score(x: np.ndarray, k: int, seed: int) -> tuple[float, float]:
    from sklearn.metrics import adjusted_rand_score, silhouette_score

    labels = _fit(x, k, seed).labels_
    size = min(MAX_SILHOUETTE, len(x))
    silhouette = silhouette_score(x, labels, sample_size=size, random_state=seed) if len(np.unique(labels)) > 1 else 0.0
    rng, agreements = np.random.default_rng(seed), []
    for i in range(HALVES):
        halves = np.array_split(rng.permutation(len(x)), 2)
        if min(map(len, halves)) < k:
            return float(silhouette), 0.0
        first, second = (_fit(x[half], k, seed + i).predict(x) for half in halves)
        agreements.append(adjusted_rand_score(first, second))
    return float(silhouette), float(np.mean(agreements))


def fit_kmeans(features: Tensor, k: int, seed: int) -> np.ndarray:
    """Return the groups (N,) of k-means."""
    x = features.numpy()
    chosen = np.sort(np.random.default_rng(seed).permutation(len(x))[:MAX_FIT])
    return np.asarray(_fit(x[chosen], k, seed).predict(x))


def _fit(x: np.ndarray, k: int, seed: int) -> Any:
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct samples than groups
        return KMeans(k, n_init=INITS, random_state=seed).fit(x)
