"""k-nearest-neighbor classification by cosine similarity."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from imix.errors import InputError
from imix.probes.features import EncodedSource, in_chunks


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


def knn(train: EncodedSource, test: EncodedSource, n_classes: int, hyperparameters: KNN = KNN()) -> float:
    """Return the test accuracy of the weighted vote of the nearest training samples."""
    bank, bank_labels = F.normalize(train.features().float(), dim=1), train.labels()
    k = min(hyperparameters.k, len(bank))
    correct = 0
    for features, labels in in_chunks(test, n_classes):
        nearest = (F.normalize(features.float(), dim=1) @ bank.T).topk(k, dim=1)
        weight = ((nearest.values - 1) / hyperparameters.temperature).exp()
        votes = torch.zeros(len(features), n_classes, device=bank.device)
        votes.scatter_add_(1, bank_labels[nearest.indices], weight)
        correct += int((votes.argmax(1) == labels).sum())
    return correct / len(test)
