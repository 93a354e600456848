"""The paper's tabular network: an input embedding by column group, Linear-BN-ReLU layers, and maxout at the end."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from imix.errors import InputError

PAPER_WIDTHS = (2048, 2048, 4096, 4096, 8192)
EMBEDDING = 64


class Maxout(nn.Module):
    """The maximum over each `pieces` consecutive units: (N, F) -> (N, F / pieces)."""

    def __init__(self, pieces: int) -> None:
        super().__init__()
        self.pieces = pieces

    def forward(self, x: Tensor) -> Tensor:
        """Reduce the last axis."""
        return x.unflatten(-1, (-1, self.pieces)).amax(-1)


class ColumnEmbedding(nn.Module):
    """Each group of consecutive columns through a linear layer of its own: (N, F) -> (N, width).

    A group gets 64 numbers, as in the paper's experiments, or as many as it has columns where these are more.
    """

    def __init__(self, groups: Sequence[int]) -> None:
        super().__init__()
        self.groups = list(groups)
        self.embeddings = nn.ModuleList(nn.Linear(columns, max(EMBEDDING, columns)) for columns in groups)
        self.width = sum(max(EMBEDDING, columns) for columns in groups)

    def forward(self, x: Tensor) -> Tensor:
        """Embed a table."""
        parts = x.split(self.groups, dim=1)
        return torch.cat([embed(part) for embed, part in zip(self.embeddings, parts, strict=True)], 1)


class MLP(nn.Module):
    """Linear-BN-ReLU layers and a last linear one with maxout: (N, inputs, ...) -> (N, widths[-1] / maxout).

    The default widths are the paper's (2048-2048-4096-4096-8192, maxout over 4: 2048 features). `groups` are the sizes
    of column groups that get a linear embedding each first, if they are several: (10, 4, 40) on CovType in the paper's
    experiments. `activated` puts batch normalisation and ReLU after the embedding, as on Higgs with its one group.

    >>> MLP(54, widths=(32, 32), groups=(10, 4, 40)).width
    8
    """

    def __init__(
        self,
        inputs: int,
        widths: Sequence[int] = PAPER_WIDTHS,
        maxout: int = 4,
        groups: Sequence[int] = (),
        activated: bool = False,
    ) -> None:
        super().__init__()
        if widths[-1] % maxout:
            raise InputError(f"the last width must be a multiple of maxout={maxout}; got {widths[-1]}")
        if groups and sum(groups) != inputs:
            raise InputError(f"column groups {tuple(groups)} must sum to the {inputs} columns of the table")
        layers: list[nn.Module] = [nn.Flatten()]
        sizes = [inputs, *widths]
        if len(groups) > 1 or activated:  # one linear layer before another adds nothing
            embedding = ColumnEmbedding(groups or [inputs])
            sizes[0] = embedding.width
            layers += [embedding, *([nn.BatchNorm1d(embedding.width), nn.ReLU(inplace=True)] if activated else [])]
        for previous, width in pairwise(sizes[:-1]):
            layers += [nn.Linear(previous, width), nn.BatchNorm1d(width), nn.ReLU(inplace=True)]
        layers += [nn.Linear(sizes[-2], sizes[-1]), Maxout(maxout)]
        self.layers = nn.Sequential(*layers)
        self.width = widths[-1] // maxout

    def forward(self, x: Tensor) -> Tensor:
        """Features of a batch."""
        return self.layers(x)
