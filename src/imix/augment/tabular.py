"""Augmentation that needs no knowledge of the domain: cells are masked, or resampled from other rows.

A cell is a column's value in a row. It may be several numbers (the flags of a category, a number and the flag of its
gap), which are touched together. Draws are independent per sample, per cell and per call.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from imix.batch import Batch, map_fields
from imix.errors import InputError


class Cells(nn.Module):
    """Which numbers of a row belong together: cell numbers (F,), -1 for what is never touched.

    Without `numbers`, each number of a batch of any shape is a cell of its own.
    """

    cell: Tensor | None
    touched: Tensor

    def __init__(self, numbers: Sequence[int] | None = None) -> None:
        super().__init__()
        of = None if numbers is None else torch.tensor(numbers)
        self.register_buffer("cell", None if of is None else of.clamp(min=0))
        self.register_buffer("touched", None if of is None else of >= 0)
        self.count = 0 if of is None else int(of.max()) + 1

    def hit(self, x: Tensor, p: float) -> Tensor:
        """Each cell of (N, F) with probability p."""
        hit = self._spread(torch.rand(self._shape(x), device=x.device)) < p
        return hit if self.cell is None else hit & self.touched

    def rows(self, x: Tensor) -> Tensor:
        """A row of the batch for each cell."""
        return self._spread(torch.randint(len(x), self._shape(x), device=x.device))

    def _shape(self, x: Tensor) -> tuple[int, ...]:
        return tuple(x.shape) if self.cell is None else (len(x), self.count)

    def _spread(self, drawn: Tensor) -> Tensor:
        """One draw per cell as one per number."""
        return drawn if self.cell is None else drawn[:, self.cell]


class Masking(nn.Module):
    """Set each cell to 0 with probability `p`; nothing is rescaled.

    >>> bool((Masking(0.2)(torch.ones(1000, 50)) == 0).float().mean().sub(0.2).abs() < 0.02)
    True
    """

    def __init__(self, p: float = 0.2, cells: Sequence[int] | None = None) -> None:
        super().__init__()
        self.p, self.cells = _probability(p), Cells(cells)

    def __repr__(self) -> str:
        return f"masking {self.p:g}"

    def forward(self, batch: Batch) -> Batch:
        """Mask every field of the batch."""
        return map_fields(lambda x: x.masked_fill(self.cells.hit(x, self.p), 0), batch)


class Resampling(nn.Module):
    """Give each cell, with probability `p`, the value of that column in a row drawn from the batch (as SCARF does).

    A batch is a random part of the training rows, so the values come from the column's distribution in them.

    >>> Resampling(0.6)(torch.randn(8, 5)).shape
    torch.Size([8, 5])
    """

    def __init__(self, p: float = 0.6, cells: Sequence[int] | None = None) -> None:
        super().__init__()
        self.p, self.cells = _probability(p), Cells(cells)

    def __repr__(self) -> str:
        return f"resampling {self.p:g}"

    def forward(self, batch: Batch) -> Batch:
        """Resample every field of the batch."""
        return map_fields(lambda x: torch.where(self.cells.hit(x, self.p), x.gather(0, self.cells.rows(x)), x), batch)


def _probability(p: float) -> float:
    if not 0 <= p <= 1:
        raise InputError(f"the probability that a cell is touched must lie within 0 and 1; got {p}")
    return p
