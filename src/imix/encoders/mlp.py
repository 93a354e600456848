"""The paper's tabular network: an input embedding by column group, Linear-BN-ReLU layers, and maxout at the end."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from imix.errors import InputError

PAPER_WIDTHS = (2048, 2048, 4096, 4096, 8192)


class Maxout(nn.Module):
    """The maximum over each `pieces` consecutive units: (N, F) -> (N, F / pieces)."""

    def __init__(self, pieces: int) -> None:
        super().__init__()
        self.pieces = pieces

    def forward(self, x: Tensor) -> Tensor:
        """Reduce the last axis."""
        return x.unflatten(-1, (-1, self.pieces)).amax(-1)


class ColumnEmbedding(nn.Module):
    """Each group of consecutive columns through a linear layer of its own: (N, F) -> (N, groups * width)."""

    def __init__(self, groups: Sequence[int], width: int = 64) -> None:
        super().__init__()
        self.groups = list(groups)
        self.embeddings = nn.ModuleList(nn.Linear(columns, width) for columns in groups)

    def forward(self, x: Tensor) -> Tensor:
        """Embed a table."""
        parts = x.split(self.groups, dim=1)
        return torch.cat([embed(part) for embed, part in zip(self.embeddings, parts, strict=True)], 1)


class MLP(nn.Module):
    """Linear-BN-ReLU layers and a last linear one with maxout: (N, inputs, ...) -> (N, widths[-1] / maxout).

    The default widths are the paper's (2048-2048-4096-4096-8192, maxout over 4: 2048 features). `groups` are the sizes
    of column groups that get an embedding of 64 each first: the paper's experiments used (10, 4, 40) on CovType.

    >>> MLP(54, widths=(32, 32), groups=(10, 4, 40)).width
    8
    """

    def __init__(
        self, inputs: int, widths: Sequence[int] = PAPER_WIDTHS, maxout: int = 4, groups: Sequence[int] = ()
    ) -> None:
        super().__init__()
        if widths[-1] % maxout:
            raise InputError(f"the last width must be a multiple of maxout={maxout}; got {widths[-1]}")
        if groups and sum(groups) != inputs:
            raise InputError(f"column groups {tuple(groups)} must sum to the {inputs} columns of the table")
        embedding = ColumnEmbedding(groups) if groups else None
        sizes = [64 * len(groups) if groups else inputs, *widths]
        layers: list[nn.Module] = [nn.Flatten()] + ([embedding] if embedding else [])
        for previous, width in pairwise(sizes[:-1]):
            layers += [nn.Linear(previous, width), nn.BatchNorm1d(width), nn.ReLU(inplace=True)]
        layers += [nn.Linear(sizes[-2], sizes[-1]), Maxout(maxout)]
        self.layers = nn.Sequential(*layers)
        self.width = widths[-1] // maxout

    def forward(self, x: Tensor) -> Tensor:
        """Features of a batch."""
        return self.layers(x)
