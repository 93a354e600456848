"""`per_sample`: turns a transform of one sample into an augmentation that draws for each sample of a batch."""

from collections.abc import Callable

import torch
from torch import nn

from imix.batch import Batch, concatenate, fields, first_field, map_fields, size
from imix.runtime.rng import isolated_python_rng, isolated_rng

CALLS = 32  # a transform that changes half of all batches looks deterministic with probability 2^-31
TOLERANCE = 1e-4  # of the largest value; smaller differences are rounding errors


class PerSample(nn.Module):
    """The augmentation that `per_sample` returns."""

    def __init__(self, transform: Callable[[Batch], Batch]) -> None:
        super().__init__()
        self.transform = transform
        self.can_vectorize: bool | None = None  # decided by the first call
        self.__name__ = f"per_sample({getattr(transform, '__name__', type(transform).__name__)})"

    def forward(self, batch: Batch) -> Batch:
        """Return a view of every sample."""
        if self.can_vectorize is None:
            self.can_vectorize = self._can_vectorize(map_fields(lambda x: x[:8], batch))
        if self.can_vectorize:
            return self._vectorized(batch)
        samples = [map_fields(lambda x, i=i: x[i], batch) for i in range(size(batch))]
        return map_fields(lambda *views: torch.stack(views), *map(self.transform, samples))

    def _vectorized(self, batch: Batch) -> Batch:
        return torch.func.vmap(self.transform, randomness="different")(batch)

    def _can_vectorize(self, samples: Batch) -> bool:
        """Whether torch can vectorize the transform, and it takes all of its random numbers from torch."""
        try:
            with isolated_rng(first_field(samples).device), isolated_python_rng():
                self._vectorized(map_fields(torch.clone, samples))
        except Exception:  # the loop raises it again if it is not about vectorization
            return False
        return not draws_once_per_batch(self._vectorized, samples)

    def __repr__(self) -> str:
        return self.__name__


def per_sample(transform: Callable[[Batch], Batch]) -> PerSample:
    """Turn a transform that draws random numbers once per call into an augmentation that draws for each sample.

    The transform is vectorized with `torch.func.vmap` if all random numbers come from torch and no Python code depends
    on them. Otherwise it is called in a loop, as for most of `torchvision.transforms.v2`.

    Parameters
    ----------
    transform : callable
        Maps one sample, without the batch axis, to one view of it. All views have the same shape.

    Returns
    -------
    callable
        Maps a batch (N, ...) to one view of each sample. Pass it as `augment` to `imix.pretrain`.

    Examples
    --------
    >>> augment = imix.per_sample(lambda x: x * torch.rand(()))  # one factor for each sample
    >>> views = augment(torch.ones(3, 5))
    >>> views.shape, len(views[:, 0].unique()), len(views[0].unique())
    (torch.Size([3, 5]), 3, 1)
    """
    return PerSample(transform)


def draws_once_per_batch(augment: Callable[[Batch], Batch], samples: Batch) -> bool:
    """Whether two copies of a sample in a batch always get the same view, while views differ between batches."""
    batch, n, first = concatenate([samples, samples]), size(samples), None
    varies = False
    with isolated_rng(first_field(samples).device), isolated_python_rng(), torch.no_grad():
        for _ in range(CALLS):
            try:
                views = [view.flatten(1) for view in fields(augment(map_fields(torch.clone, batch)))]
            except Exception:  # training raises it again, with a real batch
                return False
            first = first or views
            if any(len(view) != 2 * n or view.shape != other.shape for view, other in zip(views, first, strict=True)):
                return False
            if any(_differ(view[:n], view[n:]) for view in views):
                return False
            varies = varies or any(_differ(view, other) for view, other in zip(views, first, strict=True))
    return varies


def _differ(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether values differ by more than rounding errors."""
    if not (x.is_floating_point() or x.is_complex()):
        return not torch.equal(x, y)
    return bool((x - y).abs().max() > TOLERANCE * y.abs().max())
