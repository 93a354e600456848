"""k-nearest-neighbour evaluation by cosine similarity."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from imix.errors import InputError
from imix.evaluation.features import Encoded, in_parts


@dataclass(frozen=True)
class KNN:
    """k neighbours vote, each with weight exp(cosine / temperature)."""

    k: int = 20
    temperature: float = 0.07

    def __post_init__(self) -> None:
        if not (isinstance(self.k, int) and self.k > 0):
            raise InputError(f"k must be an int above 0; got {self.k!r}")
        if not self.temperature > 0:
            raise InputError(f"temperature must be above 0; got {self.temperature!r}")


def knn(train: Encoded, test: Encoded, classes: int, protocol: KNN = KNN()) -> float:
    """Accuracy of the vote of each test sample's nearest training samples (of all of them where k is more)."""
    bank, labels = F.normalize(train.features().float(), dim=1), train.labels()
    k = min(protocol.k, len(bank))
    right = 0
    for features, truth in in_parts(test, classes):
        nearest = (F.normalize(features.float(), dim=1) @ bank.T).topk(k, dim=1)
        weight = ((nearest.values - 1) / protocol.temperature).exp()
        votes = torch.zeros(len(features), classes, device=bank.device)
        votes.scatter_add_(1, labels[nearest.indices], weight)
        right += int((votes.argmax(1) == truth).sum())
    return right / len(test)
