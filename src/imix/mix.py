"""Mixing operators: MixUp and CutMix mix instances and say how (a `Mix`); InputMix mixes inputs only.

`Mix` is the virtual label of a mixed batch: "my positive with weight lam, my partner's with 1 - lam". What an
objective makes of it is in `imix.losses`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from imix.batch import Batch, fields, map_fields, size
from imix.errors import InputError

SMALL = 0.1  # an alpha below which draws of a Gamma distribution leave float32


class Mix(NamedTuple):
    """The virtual labels of N mixed anchors: lam * v[i] + (1 - lam) * v[partner[i]]."""

    partner: Tensor  # (N,) long: who each anchor was mixed with
    lam: Tensor  # (N,) float in [0, 1]: the weight of the anchor itself


MixOperator = Callable[[Batch], tuple[Batch, Mix | None]]


def no_mix(batch: Batch) -> tuple[Batch, None]:
    """The operator that mixes nothing."""
    return batch, None


@dataclass(frozen=True)
class MixUp:
    """Linear interpolation of each sample with a partner from the batch.

    lam ~ Beta(alpha, alpha), one draw per sample (`per_sample=False`: one per batch). With `fold`, lam becomes
    max(lam, 1 - lam), as in the authors' experiments; Algorithm 1 of the paper exactly as printed is
    `MixUp(per_sample=False, fold=False)`.

    >>> mixed, mix = MixUp(alpha=1.0)(torch.randn(8, 3))
    >>> mixed.shape, mix.partner.shape, bool((mix.lam >= 0.5).all())
    (torch.Size([8, 3]), torch.Size([8]), True)
    """

    alpha: float = 1.0
    per_sample: bool = True
    fold: bool = True

    def __post_init__(self) -> None:
        _check_alpha(self.alpha)

    def __call__(self, batch: Batch) -> tuple[Batch, Mix]:
        """Mix every field of the batch with one partner and one lam per sample."""
        mix = _draw(batch, self.alpha, self.per_sample, self.fold)

        def blend(x: Tensor) -> Tensor:
            _check_floating(x, "MixUp")
            lam = _per_sample(mix.lam, x)
            return (lam * x + (1 - lam) * x[mix.partner]).to(x.dtype)

        return map_fields(blend, batch), mix


@dataclass(frozen=True)
class CutMix:
    """A box of each sample is replaced by the same box of its partner; lam is the area that was kept.

    The box takes the last two axes (images, (N, C, H, W)) or the last one (sequences, (N, C, L)); `axes` (1 or 2)
    overrides what the rank says, so that (N, H, W) and (N, L) may be cut too. The box's area is 1 - lam with lam drawn
    as in `MixUp`, its centre uniform; what hangs over the edge is cut off and lam recomputed from the area that is
    left. `per_sample=False` is one box for the batch, as in the authors' experiments. All fields of a sample share one
    box, so they must agree in the axes that are cut.

    >>> mixed, mix = CutMix()(torch.randn(8, 3, 32, 32))
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
            raise InputError(f"CutMix cuts along axes=1 (sequences) or axes=2 (images); got axes={self.axes}")

    def __call__(self, batch: Batch) -> tuple[Batch, Mix]:
        """Cut the same box out of every field of a sample and fill it from one partner."""
        extent = self._extent(batch)
        drawn = _draw(batch, self.alpha, self.per_sample, self.fold)
        inside, area = _boxes(drawn.lam, extent, self.per_sample)
        mix = Mix(drawn.partner, 1 - area / math.prod(extent))

        def paste(x: Tensor) -> Tensor:
            mask = inside.view(len(x), *[1] * (x.dim() - inside.dim()), *inside.shape[1:])
            return torch.where(mask, x[mix.partner], x)

        return map_fields(paste, batch), mix

    def _extent(self, batch: Batch) -> tuple[int, ...]:
        """Sizes of the axes that are cut, the same for all fields."""
        extents = set()
        for x in fields(batch):
            axes = self.axes or (1 if x.dim() == 3 else 2)
            if x.dim() < axes + (1 if self.axes else 2):
                raise InputError(
                    f"CutMix needs neighbours to cut a box from: sequences (N, C, L) or images (N, C, H, W); got a "
                    f"field of shape ({', '.join(['N', *map(str, x.shape[1:])])}). For a table (N, F) use MixUp"
                )
            extents.add(tuple(x.shape[-axes:]))
        if len(extents) != 1:
            raise InputError(f"CutMix cuts one box through all fields of a sample; their sizes differ: {extents}")
        return extents.pop()


@dataclass(frozen=True)
class InputMix:
    """Mix auxiliary samples into each principal sample and leave its label alone (section 3.3 of the paper).

    Weights (0.5 + 0.5 l_0, 0.5 l_1, ..., 0.5 l_n) with l ~ Dirichlet(alpha, ..., alpha) per sample, so the principal
    weight is never below 0.5. Use it before i-Mix, on both views concatenated, where no augmentation is known.

    >>> InputMix(auxiliaries=2)(torch.randn(8, 3)).shape
    torch.Size([8, 3])
    """

    auxiliaries: int = 2
    alpha: float = 1.0

    def __post_init__(self) -> None:
        _check_alpha(self.alpha)
        if self.auxiliaries < 1:
            raise InputError(f"InputMix needs at least 1 auxiliary; got auxiliaries={self.auxiliaries}")

    def __call__(self, batch: Batch) -> Batch:
        """Mix every field of the batch with the same auxiliaries and weights per sample."""
        n, first = size(batch), fields(batch)[0]
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
    n, first = size(batch), fields(batch)[0]
    lam = _dirichlet(n if per_sample else 1, 2, alpha, first)[:, 0]  # one of two coordinates: Beta(alpha, alpha)
    if fold:
        lam = torch.maximum(lam, 1 - lam)
    return Mix(_permutation(n, first.device), lam.expand(n))


def _dirichlet(n: int, parts: int, alpha: float, like: Tensor) -> Tensor:
    """n draws of Dirichlet(alpha, ..., alpha), (n, parts), in float32 or better."""
    like = torch.empty((n, parts), device=like.device, dtype=torch.promote_types(like.dtype, torch.float32))
    if alpha >= SMALL:
        return torch._sample_dirichlet(torch.full_like(like, alpha))
    # Gamma(alpha) is Gamma(alpha + 1) U^(1 / alpha), whose logarithm does not underflow.
    gamma, uniform = torch._standard_gamma(torch.full_like(like, alpha + 1)), 1 - torch.rand_like(like)
    return (gamma.log() + uniform.log() / alpha).softmax(1)


def _boxes(lam: Tensor, extent: tuple[int, ...], per_sample: bool) -> tuple[Tensor, Tensor]:
    """Which cells lie in each sample's box, (N, *extent) bool, and how many do, (N,)."""
    n = len(lam)
    inside = torch.ones(n, *[1] * len(extent), dtype=torch.bool, device=lam.device)
    area = torch.ones_like(lam)
    cut = sum(length > 1 for length in extent) or len(extent)  # an axis of length 1 beside a longer one is left whole
    for axis, length in enumerate(extent):
        if length == 1 and cut < len(extent):
            continue
        side = (length * (1 - lam) ** (1 / cut)).long()
        centre = torch.randint(length, (n if per_sample else 1,), device=lam.device).expand(n)
        start = (centre - side // 2).clamp(0, length)
        stop = (centre - side // 2 + side).clamp(0, length)
        cell = torch.arange(length, device=lam.device)
        within = (cell >= start[:, None]) & (cell < stop[:, None])
        inside = inside & within.view(n, *[length if a == axis else 1 for a in range(len(extent))])
        area = area * (stop - start)
    return inside, area


def _permutation(n: int, device: torch.device) -> Tensor:
    # Not randperm: torch 2.11's compiler fails on tensors indexed by one.
    return torch.rand(n, device=device).argsort()


def _per_sample(weight: Tensor, x: Tensor) -> Tensor:
    return weight.view(-1, *[1] * (x.dim() - 1))


def _check_alpha(alpha: float) -> None:
    if not 1e-30 < alpha < 1e30:
        raise InputError(f"alpha must be a positive number; got alpha={alpha}")


def _check_floating(x: Tensor, operator: str) -> None:
    if not x.is_floating_point():
        raise InputError(f"{operator} blends values, so every field must be floating point; got {x.dtype}")
