"""How a representation fares, without labels: alignment, uniformity, effective rank."""

import torch
import torch.nn.functional as F
from torch import Tensor

MOST = 256  # samples that are looked at


def health(view_1: Tensor, view_2: Tensor) -> dict[str, float]:
    """Of features (N, F) of two views of the same samples, on the unit sphere.

    `alignment` is the mean squared distance of the two views of a sample (0 is best), `uniformity` the logarithm of the
    mean of exp(-2 d^2) over pairs of samples (-4 is uniform, 0 a single point; Wang and Isola, 2020), `rank` the
    exponential of the entropy of singular values: how many directions are in use (Garrido et al., 2023).
    """
    first, second = (F.normalize(view[:MOST].float(), dim=1) for view in (view_1, view_2))
    distances = torch.pdist(first).square()
    eigenvalues = torch.linalg.eigvalsh((first @ first.T).double()).clamp(min=0)
    share = eigenvalues.sqrt() / eigenvalues.sqrt().sum().clamp(min=1e-12)
    return {
        "alignment": float((first - second).square().sum(1).mean()),
        "uniformity": float((-2 * distances).exp().mean().log()) if len(distances) else 0.0,
        "rank": float(torch.special.entr(share).sum().exp()),
    }
