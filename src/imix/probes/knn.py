"""k-nearest-neighbor classification by cosine similarity."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from imix.errors import InputError
from imix.probes.features import check_memory

MAX_SIMILARITIES = 1 << 26  # maximum number of similarities in memory at a time


@dataclass(frozen=True)
class KNN:
    """Hyperparameters of the kNN protocol.

    Parameters
    ----------
    k : int
        Number of neighbors that vote. If there are fewer training samples, all of them vote.
    temperature : float
        A neighbor votes with weight exp(cosine / temperature).

    Examples
    --------
    >>> result = imix.evaluate(torch.nn.Flatten(), "digits", "knn", hyperparameters=imix.evaluation.KNN(k=5))
    >>> result.hyperparameters["k"]
    5
    """

    k: int = 20
    temperature: float = 0.07

    def __post_init__(self) -> None:
        if not (isinstance(self.k, int) and self.k > 0):
            raise InputError(f"k must be an int above 0; got {self.k!r}")
        if not self.temperature > 0:
            raise InputError(f"temperature must be above 0; got {self.temperature!r}")


def knn(x: Tensor, y: Tensor, test: Tensor, n_classes: int, hyperparameters: KNN = KNN()) -> Tensor:
    """Return the class probabilities (m, C) of test features (m, F): the weighted votes of the nearest of x (n, F).

    For numeric targets (``n_classes=1``), returns the weighted mean of the neighbors' targets, (m, 1).
    """
    bank = F.normalize(x.float(), dim=1)
    k = min(hyperparameters.k, len(bank))
    check_memory(12 * len(test) * n_classes, bank.device, n_classes, "knn")
    votes = torch.zeros(len(test), n_classes, device=bank.device)
    for rows in torch.arange(len(test), device=bank.device).split(max(1, MAX_SIMILARITIES // len(bank))):
        nearest = (F.normalize(test[rows].float(), dim=1) @ bank.T).topk(k, dim=1)
        weight = ((nearest.values - nearest.values[:, :1]) / hyperparameters.temperature).exp()
        weight /= weight.sum(1, keepdim=True)
        if n_classes == 1:
            votes[rows] = (weight * y[nearest.indices]).sum(1, keepdim=True)
        else:
            votes[rows] = votes[rows].scatter_add(1, y[nearest.indices], weight)
    return votes
