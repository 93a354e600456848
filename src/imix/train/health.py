"""Health metrics of a representation that need no labels: alignment, uniformity, effective rank."""

import torch
import torch.nn.functional as F
from torch import Tensor

MAX_SAMPLES = 256  # maximum number of samples that the metrics are computed on


def health(view_1: Tensor, view_2: Tensor, labels: Tensor | None = None) -> dict[str, float]:
    """Metrics of features (N, F) of two views of the same samples, with labels (N,) if there are any.

    All are computed on the unit sphere. `alignment` is the mean squared distance between the two views of a sample (0
    is best). `uniformity` is the log of the mean of exp(-2 d^2) over pairs of samples (-4 is uniform, 0 a single point;
    Wang and Isola, 2020). `effective_rank` is the exponential of the entropy of the singular values: the number of
    directions in use (Garrido et al., 2023). `batch_1nn` is the fraction of labeled samples whose nearest neighbor in
    the batch has the same class.
    """
    first, second = (F.normalize(view[:MAX_SAMPLES].float(), dim=1) for view in (view_1, view_2))
    distances = torch.pdist(first).square()
    eigenvalues = torch.linalg.eigvalsh((first @ first.T).double()).clamp(min=0)
    spectrum = eigenvalues.sqrt() / eigenvalues.sqrt().sum().clamp(min=1e-12)
    metrics = {
        "alignment": float((first - second).square().sum(1).mean()),
        "uniformity": float((-2 * distances).exp().mean().log()) if len(distances) else 0.0,
        "effective_rank": float(torch.special.entr(spectrum).sum().exp()),
    }
    if labels is None or labels.is_floating_point():  # without classes
        return metrics
    return metrics | _batch_1nn(first, labels[:MAX_SAMPLES])


def _batch_1nn(directions: Tensor, labels: Tensor) -> dict[str, float]:
    """1-NN accuracy within the batch; empty if fewer than two samples have a label."""
    labeled = labels >= 0
    directions, labels = directions[labeled], labels[labeled]
    if len(labels) < 2:
        return {}
    nearest = (directions @ directions.T).fill_diagonal_(-torch.inf).argmax(1)
    return {"batch_1nn": float((labels[nearest] == labels).float().mean())}
