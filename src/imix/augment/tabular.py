"""Augmentations that need no domain knowledge: cells are masked, or resampled from other rows.

A cell is the value of one column in one row. It may consist of several numbers (a one-hot category, or a number and
its missing flag), which are always changed together. Draws are independent per sample, cell and call.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from imix.batch import Batch, map_fields
from imix.errors import InputError


class Cells(nn.Module):
    """Random draws per cell of a row.

    `indices` (F,) is the cell that each number of a row belongs to, or -1 if the number is never changed. Without
    `indices`, every number of a batch of any shape is a cell.
    """

    index: Tensor | None  # (F,)
    selected: Tensor  # (F,) bool

    def __init__(self, indices: Sequence[int] | None = None) -> None:
        super().__init__()
        index = None if indices is None else torch.tensor(indices)
        self.register_buffer("index", None if index is None else index.clamp(min=0))
        self.register_buffer("selected", None if index is None else index >= 0)
        self.count = 0 if index is None else int(index.max()) + 1

    def random_mask(self, x: Tensor, p: float) -> Tensor:
        """Return a mask with the shape of x in which each cell is True with probability p."""
        mask = self._expand(torch.rand(self._shape(x), device=x.device)) < p
        return mask if self.index is None else mask & self.selected

    def random_rows(self, x: Tensor) -> Tensor:
        """Return a random row index for each cell, with the shape of x."""
        return self._expand(torch.randint(len(x), self._shape(x), device=x.device))

    def _shape(self, x: Tensor) -> tuple[int, ...]:
        return tuple(x.shape) if self.index is None else (len(x), self.count)

    def _expand(self, draws: Tensor) -> Tensor:
        """Expand one draw per cell to one per number."""
        return draws if self.index is None else draws[:, self.index]


class Masking(nn.Module):
    """Set each cell to 0 with probability `p`, without rescaling the others.

    Parameters
    ----------
    p : float
        Probability that a cell is masked.
    cells : sequence of int, optional
        For each number of a row, the index of its cell, or -1 if it is never masked. By default every number is a
        cell.

    Examples
    --------
    >>> masked = imix.augment.Masking(0.2)(torch.ones(1000, 50))
    >>> bool((masked == 0).float().mean().sub(0.2).abs() < 0.02)
    True
    """

    def __init__(self, p: float = 0.2, cells: Sequence[int] | None = None) -> None:
        super().__init__()
        self.p, self.cells = _check_probability(p), Cells(cells)

    def __repr__(self) -> str:
        return f"masking {self.p:g}"

    def forward(self, batch: Batch) -> Batch:
        """Mask every field of the batch."""
        return map_fields(lambda x: x.masked_fill(self.cells.random_mask(x, self.p), 0), batch)


class Resampling(nn.Module):
    """Replace each cell with probability `p` by the value of the same column in a random row of the batch (SCARF).

    A batch is a random subset of the training rows, so the values follow the column's training distribution.

    Parameters
    ----------
    p : float
        Probability that a cell is replaced.
    cells : sequence of int, optional
        For each number of a row, the index of its cell, or -1 if it is never replaced. By default every number is a
        cell.

    Examples
    --------
    >>> imix.augment.Resampling(0.6)(torch.randn(8, 5)).shape
    torch.Size([8, 5])
    """

    def __init__(self, p: float = 0.6, cells: Sequence[int] | None = None) -> None:
        super().__init__()
        self.p, self.cells = _check_probability(p), Cells(cells)

    def __repr__(self) -> str:
        return f"resampling {self.p:g}"

    def forward(self, batch: Batch) -> Batch:
        """Resample every field of the batch."""

        def resample(x: Tensor) -> Tensor:
            return torch.where(self.cells.random_mask(x, self.p), x.gather(0, self.cells.random_rows(x)), x)

        return map_fields(resample, batch)


def _check_probability(p: float) -> float:
    if not 0 <= p <= 1:
        raise InputError(f"p must be between 0 and 1; got {p}")
    return p
