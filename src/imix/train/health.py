"""How a representation fares, without labels: alignment, uniformity, effective rank."""

import torch
import torch.nn.functional as F
from torch import Tensor

MOST = 256  # samples that are looked at


def health(view_1: Tensor, view_2: Tensor, labels: Tensor | None = None) -> dict[str, float]:
    """Of features (N, F) of two views of the same samples, on the unit sphere, and their labels (N,) if there are any.

    `alignment` is the mean squared distance of the two views of a sample (0 is best), `uniformity` the logarithm of the
    mean of exp(-2 d^2) over pairs of samples (-4 is uniform, 0 a single point; Wang and Isola, 2020), `rank` the
    exponential of the entropy of singular values: how many directions are in use (Garrido et al., 2023). `nearest` is
    the share of labelled samples whose nearest other one is of their class.
    """
    first, second = (F.normalize(view[:MOST].float(), dim=1) for view in (view_1, view_2))
    distances = torch.pdist(first).square()
    eigenvalues = torch.linalg.eigvalsh((first @ first.T).double()).clamp(min=0)
    share = eigenvalues.sqrt() / eigenvalues.sqrt().sum().clamp(min=1e-12)
    found = {
        "alignment": float((first - second).square().sum(1).mean()),
        "uniformity": float((-2 * distances).exp().mean().log()) if len(distances) else 0.0,
        "rank": float(torch.special.entr(share).sum().exp()),
    }
    return found if labels is None else found | _nearest(first, labels[:MOST])


def _nearest(directions: Tensor, labels: Tensor) -> dict[str, float]:
    """Nothing where there are not two samples that have a label."""
    labelled = labels >= 0
    directions, labels = directions[labelled], labels[labelled]
    if len(labels) < 2:
        return {}
    nearest = (directions @ directions.T).fill_diagonal_(-torch.inf).argmax(1)
    return {"nearest": float((labels[nearest] == labels).float().mean())}
