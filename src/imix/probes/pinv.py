"""Linear regression onto one-hot labels by the pseudoinverse, in float64: the paper's classifier for Higgs."""

from dataclasses import dataclass

import torch

from imix.errors import InputError
from imix.probes.features import EncodedSource, check_memory, in_chunks


@dataclass(frozen=True)
class PInv:
    """Hyperparameters of the pseudoinverse protocol.

    Parameters
    ----------
    cutoff : float
        Eigenvalues of the Gram matrix (squared singular values of the features) below `cutoff` times the largest one
        are treated as 0.

    Examples
    --------
    >>> imix.evaluation.PInv(cutoff=1e-8).cutoff
    1e-08
    """

    cutoff: float = 1e-10

    def __post_init__(self) -> None:
        if not 0 <= self.cutoff < 1:
            raise InputError(f"cutoff must be at least 0 and less than 1; got {self.cutoff!r}")


def pinv(train: EncodedSource, test: EncodedSource, n_classes: int, hyperparameters: PInv = PInv()) -> float:
    """Return the test accuracy of the least-squares classifier W = pinv(X'X) X'Y, without bias.

    X'X and X'Y are accumulated over batches, so memory is O(F * (F + C)), regardless of the number of samples.
    """
    gram = moment = None
    for features, labels in train:
        assert labels is not None
        x = features.double()
        if gram is None or moment is None:
            check_memory(24 * n_classes * x.shape[1], train.device, n_classes, "pinv")
            gram, moment = x.new_zeros(x.shape[1], x.shape[1]), x.new_zeros(x.shape[1], n_classes)
        gram.addmm_(x.T, x)
        moment.index_add_(1, labels, x.T)
    weight = torch.linalg.pinv(gram, rtol=hyperparameters.cutoff, hermitian=True) @ moment
    correct = 0
    for features, labels in in_chunks(test, n_classes):
        correct += int(((features.double() @ weight).argmax(1) == labels).sum())
    return correct / len(test)
