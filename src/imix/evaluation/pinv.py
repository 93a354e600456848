"""The paper's classifier for Higgs: linear regression onto one-hot labels by the pseudoinverse, in float64."""

from dataclasses import dataclass

import torch

from imix.errors import InputError
from imix.evaluation.features import Encoded, check_room, in_parts


@dataclass(frozen=True)
class PInv:
    """Directions of the features with less than `cutoff` of the largest singular value squared are left out."""

    cutoff: float = 1e-10

    def __post_init__(self) -> None:
        if not 0 <= self.cutoff < 1:
            raise InputError(f"cutoff must be at least 0 and less than 1; got {self.cutoff!r}")


def pinv(train: Encoded, test: Encoded, classes: int, protocol: PInv = PInv()) -> float:
    """Accuracy of W = (X'Y)' pinv(X'X), without bias; X'X and X'Y are summed over pieces, so memory is (F, F + C)."""
    gram = moment = None
    for features, labels in train:
        assert labels is not None
        x = features.double()
        if gram is None or moment is None:
            check_room(24 * classes * x.shape[1], train.device, classes, "pinv")
            gram, moment = x.new_zeros(x.shape[1], x.shape[1]), x.new_zeros(x.shape[1], classes)
        gram.addmm_(x.T, x)
        moment.index_add_(1, labels, x.T)
    weight = torch.linalg.pinv(gram, rtol=protocol.cutoff, hermitian=True) @ moment
    right = 0
    for features, labels in in_parts(test, classes):
        right += int(((features.double() @ weight).argmax(1) == labels).sum())
    return right / len(test)
