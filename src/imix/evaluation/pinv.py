"""The paper's classifier for Higgs: linear regression onto one-hot labels by the pseudoinverse, in float64."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from imix.evaluation.features import Encoded, check_room


@dataclass(frozen=True)
class PInv:
    """Directions of the features with less than `cutoff` of the largest singular value squared are left out."""

    cutoff: float = 1e-10


def pinv(train: Encoded, test: Encoded, classes: int, protocol: PInv = PInv()) -> float:
    """Accuracy of W = (X'Y)' pinv(X'X), without bias; X'X and X'Y are summed over pieces, so memory is (F, F)."""
    gram = moment = None
    for features, labels in train:
        assert labels is not None
        check_room(16 * classes * (len(features) + features.shape[1]), train.device, classes, "pinv")
        x, y = features.double(), F.one_hot(labels, classes).double()
        gram = x.T @ x if gram is None else gram.addmm_(x.T, x)
        moment = x.T @ y if moment is None else moment.addmm_(x.T, y)
    weight = torch.linalg.pinv(gram, rtol=protocol.cutoff, hermitian=True) @ moment
    right = sum(int(((features.double() @ weight).argmax(1) == labels).sum()) for features, labels in test)
    return right / len(test)
