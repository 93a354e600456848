"""Mixing operators: MixUp and CutMix mix samples and return virtual labels (a `Mix`); InputMix mixes inputs only."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from imix.batch import Batch, checked_size, fields, first_field, map_fields
from imix.errors import InputError

MIN_STANDARD_ALPHA = 0.1  # below this, Gamma(alpha) draws underflow in float32 and need the logarithmic form


class Mix(NamedTuple):
    """Virtual labels of N mixed anchors: lam[i] * v[i] + (1 - lam[i]) * v[partner[i]].

    Each anchor is attracted to its own positive with weight lam, and to its partner's positive with weight 1 - lam.

    Attributes
    ----------
    partner : Tensor of shape (N,), long
        Index of the sample that each anchor was mixed with.
    lam : Tensor of shape (N,), float
        Weight of the anchor itself, in [0, 1].

    Examples
    --------
    >>> imix.Mix(partner=torch.tensor([1, 0]), lam=torch.tensor([0.7, 0.9])).partner
    tensor([1, 0])
    """

    partner: Tensor
    lam: Tensor


MixOperator = Callable[[Batch], tuple[Batch, Mix | None]]


def no_mix(batch: Batch) -> tuple[Batch, None]:
    """Return the batch unchanged and no virtual labels."""
    return batch, None


@dataclass(frozen=True)
class MixUp:
    """Interpolate each sample linearly with a partner from the batch: lam * x[i] + (1 - lam) * x[partner[i]].

    `MixUp(per_sample=False, fold=False)` is Algorithm 1 exactly as printed in the paper.

    Parameters
    ----------
    alpha : float
        Parameter of the Beta distribution: lam ~ Beta(alpha, alpha).
    per_sample : bool
        Whether lam is drawn for each sample or once per batch.
    fold : bool
        Whether lam is replaced by max(lam, 1 - lam), as in the authors' experiments.

    Examples
    --------
    >>> mixed, mix = imix.MixUp(alpha=1.0)(torch.randn(8, 3))
    >>> mixed.shape, mix.partner.shape, bool((mix.lam >= 0.5).all())
    (torch.Size([8, 3]), torch.Size([8]), True)
    """

    alpha: float = 1.0
    per_sample: bool = True
    fold: bool = True

    def __post_init__(self) -> None:
        _check_alpha(self.alpha)

    def __call__(self, batch: Batch) -> tuple[Batch, Mix]:
        """Mix a batch; all fields of a sample use the same partner and lam.

        Parameters
        ----------
        batch : Tensor of shape (N, ...), or a tuple, list or dict of such tensors
            Floating point samples.

        Returns
        -------
        mixed : same structure, shapes and dtypes as `batch`
        mix : Mix
        """
        mix = _draw(batch, self.alpha, self.per_sample, self.fold)

        def blend(x: Tensor) -> Tensor:
            _check_floating(x, "MixUp")
            lam = _per_sample(mix.lam, x)
            return (lam * x + (1 - lam) * x[mix.partner]).to(x.dtype)

        return map_fields(blend, batch), mix


@dataclass(frozen=True)
class CutMix:
    """Replace a random box of each sample by the same box of a partner from the batch.

    The box covers 1 - lam of the area, with lam drawn as in `MixUp`, and its center is uniform. It is clipped at the
    edges, and lam is then recomputed as the fraction of the sample that was kept.

    Parameters
    ----------
    alpha : float
        Parameter of the Beta distribution: lam ~ Beta(alpha, alpha).
    per_sample : bool
        Whether the box is drawn for each sample or once per batch, as in the authors' experiments.
    fold : bool
        Whether lam is replaced by max(lam, 1 - lam) before the box is drawn.
    axes : {1, 2}, optional
        Number of trailing axes that the box extends over. Default: 2 for images (N, C, H, W) and 1 for sequences
        (N, C, L). Set it for data without a channel axis, (N, H, W) or (N, L).

    Examples
    --------
    >>> mixed, mix = imix.CutMix()(torch.randn(8, 3, 32, 32))
    >>> mixed.shape
    torch.Size([8, 3, 32, 32])
    """

    alpha: float = 1.0
    per_sample: bool = True
    fold: bool = True
    axes: int | None = None

    def __post_init__(self) -> None:
        _check_alpha(self.alpha)
        if self.axes not in (None, 1, 2):
            raise InputError(f"axes of CutMix must be 1 (sequences) or 2 (images); got axes={self.axes}")

    def __call__(self, batch: Batch) -> tuple[Batch, Mix]:
        """Mix a batch; all fields of a sample use the same partner and box.

        Parameters
        ----------
        batch : Tensor of shape (N, C, H, W) or (N, C, L), or a tuple, list or dict of such tensors
            Samples of any dtype. All fields must have the same size along the axes that are cut.

        Returns
        -------
        mixed : same structure, shapes and dtypes as `batch`
        mix : Mix
        """
        extent = self._extent(batch)
        drawn = _draw(batch, self.alpha, self.per_sample, self.fold)
        inside, area = _boxes(drawn.lam, extent, self.per_sample)
        mix = Mix(drawn.partner, 1 - area / math.prod(extent))

        def paste(x: Tensor) -> Tensor:
            mask = inside.view(len(x), *[1] * (x.dim() - inside.dim()), *inside.shape[1:])
            return torch.where(mask, x[mix.partner], x)

        return map_fields(paste, batch), mix

    def _extent(self, batch: Batch) -> tuple[int, ...]:
        """Return the sizes of the axes that are cut, which must be the same for all fields."""
        extents = set()
        for x in fields(batch):
            axes = self.axes or (1 if x.dim() == 3 else 2)
            if x.dim() < axes + (1 if self.axes else 2):
                raise InputError(
                    f"CutMix needs sequences (N, C, L) or images (N, C, H, W); got a field of shape "
                    f"({', '.join(['N', *map(str, x.shape[1:])])}). For a table (N, F) use MixUp"
                )
            extents.add(tuple(x.shape[-axes:]))
        if len(extents) != 1:
            raise InputError(f"CutMix cuts the same box from all fields of a sample, but their sizes differ: {extents}")
        return extents.pop()


@dataclass(frozen=True)
class InputMix:
    """Blend auxiliary samples from the batch into each sample without changing its label (section 3.3 of the paper).

    The weights are (0.5 + 0.5 l_0, 0.5 l_1, ..., 0.5 l_n) with l ~ Dirichlet(alpha, ..., alpha), drawn for each sample.
    The weight of the principal sample is at least 0.5. Use InputMix if no augmentation is known for the data: apply it
    before i-Mix, to both views concatenated.

    Parameters
    ----------
    auxiliaries : int
        Number of auxiliary samples.
    alpha : float
        Parameter of the Dirichlet distribution.

    Examples
    --------
    >>> imix.InputMix(auxiliaries=2)(torch.randn(8, 3)).shape
    torch.Size([8, 3])
    """

    auxiliaries: int = 2
    alpha: float = 1.0

    def __post_init__(self) -> None:
        _check_alpha(self.alpha)
        if self.auxiliaries < 1:
            raise InputError(f"InputMix needs at least 1 auxiliary sample; got auxiliaries={self.auxiliaries}")

    def __call__(self, batch: Batch) -> Batch:
        """Mix a batch; all fields of a sample use the same auxiliary samples and weights.

        Parameters
        ----------
        batch : Tensor of shape (N, ...), or a tuple, list or dict of such tensors
            Floating point samples.

        Returns
        -------
        mixed : same structure, shapes and dtypes as `batch`
        """
        n, first = checked_size(batch), first_field(batch)
        weights = 0.5 * _dirichlet(n, 1 + self.auxiliaries, self.alpha, first)
        auxiliaries = [_permutation(n, first.device) for _ in range(self.auxiliaries)]

        def blend(x: Tensor) -> Tensor:
            _check_floating(x, "InputMix")
            mixed = _per_sample(0.5 + weights[:, 0], x) * x
            for weight, auxiliary in zip(weights.unbind(1)[1:], auxiliaries, strict=True):
                mixed = mixed + _per_sample(weight, x) * x[auxiliary]
            return mixed.to(x.dtype)

        return map_fields(blend, batch)


def _draw(batch: Batch, alpha: float, per_sample: bool, fold: bool) -> Mix:
    n, first = checked_size(batch), first_field(batch)
    beta, _ = _dirichlet(n if per_sample else 1, 2, alpha, first).unbind(1)  # each coordinate is Beta(alpha, alpha)
    lam = torch.maximum(beta, 1 - beta) if fold else beta
    return Mix(_permutation(n, first.device), lam.expand(n))


def _dirichlet(n: int, parts: int, alpha: float, like: Tensor) -> Tensor:
    """Draw n samples from Dirichlet(alpha, ..., alpha), (n, parts), in float32 or better."""
    like = torch.empty((n, parts), device=like.device, dtype=torch.promote_types(like.dtype, torch.float32))
    if alpha >= MIN_STANDARD_ALPHA:
        return torch._sample_dirichlet(torch.full_like(like, alpha))
    # Gamma(alpha) = Gamma(alpha + 1) * U^(1 / alpha) in distribution, and its logarithm does not underflow.
    gamma, uniform = torch._standard_gamma(torch.full_like(like, alpha + 1)), 1 - torch.rand_like(like)
    return (gamma.log() + uniform.log() / alpha).softmax(1)


def _boxes(lam: Tensor, extent: tuple[int, ...], per_sample: bool) -> tuple[Tensor, Tensor]:
    """Draw a box per sample; returns a mask (N, *extent) that is True inside, and the area of each box (N,)."""
    n = len(lam)
    inside = torch.ones(n, *[1] * len(extent), dtype=torch.bool, device=lam.device)
    area = torch.ones_like(lam)
    n_cut = sum(length > 1 for length in extent) or len(extent)  # do not cut an axis of length 1 if another is longer
    for axis, length in enumerate(extent):
        if length == 1 and n_cut < len(extent):
            continue
        side = (length * (1 - lam) ** (1 / n_cut)).long()
        center = torch.randint(length, (n if per_sample else 1,), device=lam.device).expand(n)
        start = (center - side // 2).clamp(0, length)
        stop = (center - side // 2 + side).clamp(0, length)
        position = torch.arange(length, device=lam.device)
        within = (position >= start[:, None]) & (position < stop[:, None])
        inside = inside & within.view(n, *[length if a == axis else 1 for a in range(len(extent))])
        area = area * (stop - start)
    return inside, area


def _permutation(n: int, device: torch.device) -> Tensor:
    # Not randperm: the compiler of torch 2.11 fails if a tensor is indexed with its result.
    return torch.rand(n, device=device).argsort()


def _per_sample(weight: Tensor, x: Tensor) -> Tensor:
    """Reshape weights (N,) so that they broadcast over x (N, ...)."""
    return weight.view(-1, *[1] * (x.dim() - 1))


def _check_alpha(alpha: float) -> None:
    if not 1e-30 < alpha < 1e30:
        raise InputError(f"alpha must be a positive number; got alpha={alpha}")


def _check_floating(x: Tensor, operator: str) -> None:
    if not x.is_floating_point():
        raise InputError(f"{operator} blends values, so all fields must be floating point; got {x.dtype}")
