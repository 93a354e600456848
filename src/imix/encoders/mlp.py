"""The paper's tabular network: an embedding per column group, Linear-BN-ReLU layers, and maxout at the end."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from imix.errors import InputError

PAPER_WIDTHS = (2048, 2048, 4096, 4096, 8192)
SMALL_WIDTHS = (256, 256, 1024)  # that a laptop can train; 256 features
MIN_EMBEDDING = 64  # units per column group, as in the paper


class Maxout(nn.Module):
    """Maximum over every `pieces` consecutive units: (N, F) to (N, F / pieces)."""

    def __init__(self, pieces: int) -> None:
        super().__init__()
        self.pieces = pieces

    def forward(self, x: Tensor) -> Tensor:
        """Reduce the last axis."""
        return x.unflatten(-1, (-1, self.pieces)).amax(-1)


class ColumnEmbedding(nn.Module):
    """A separate linear layer for each group of consecutive columns: (N, F) to (N, width).

    A group is embedded in 64 units, as in the paper's experiments, or in as many as it has columns if that is more.
    """

    def __init__(self, groups: Sequence[int]) -> None:
        super().__init__()
        self.groups = list(groups)
        self.embeddings = nn.ModuleList(nn.Linear(columns, max(MIN_EMBEDDING, columns)) for columns in groups)
        self.width = sum(max(MIN_EMBEDDING, columns) for columns in groups)

    def forward(self, x: Tensor) -> Tensor:
        """Return the concatenated embeddings of the groups."""
        parts = x.split(self.groups, dim=1)
        return torch.cat([embed(part) for embed, part in zip(self.embeddings, parts, strict=True)], 1)


class MLP(nn.Module):
    """The paper's tabular network: Linear-BN-ReLU layers, then a linear layer with maxout.

    Parameters
    ----------
    inputs : int
        Number of inputs per sample. Samples of any shape are flattened.
    widths : sequence of int
        Units of each layer, the last one before maxout. The default is the paper's, which gives 2048 features.
    maxout : int
        Number of units over which maxout takes the maximum.
    groups : sequence of int
        Sizes of the column groups, which are embedded separately if there are several: (10, 4, 40) for CovType in the
        paper.
    activate_embedding : bool
        Embed the columns even if they are one group, and add batch normalization and ReLU after the embedding, as for
        Higgs in the paper.

    Examples
    --------
    >>> encoder = imix.encoders.MLP(54, widths=(32, 32), groups=(10, 4, 40))
    >>> encoder.width, encoder(torch.randn(6, 54)).shape
    (8, torch.Size([6, 8]))
    """

    def __init__(
        self,
        inputs: int,
        widths: Sequence[int] = PAPER_WIDTHS,
        maxout: int = 4,
        groups: Sequence[int] = (),
        activate_embedding: bool = False,
    ) -> None:
        super().__init__()
        if widths[-1] % maxout:
            raise InputError(f"the last width must be a multiple of maxout={maxout}; got {widths[-1]}")
        if groups and sum(groups) != inputs:
            raise InputError(f"groups must sum to the number of inputs, {inputs}; got {tuple(groups)}")
        layers: list[nn.Module] = [nn.Flatten()]
        sizes = [inputs, *widths]
        if len(groups) > 1 or activate_embedding:  # two linear layers in a row are no better than one
            embedding = ColumnEmbedding(groups or [inputs])
            sizes[0] = embedding.width
            layers.append(embedding)
            if activate_embedding:
                layers += [nn.BatchNorm1d(embedding.width), nn.ReLU(inplace=True)]
        for previous, width in pairwise(sizes[:-1]):
            layers += [nn.Linear(previous, width), nn.BatchNorm1d(width), nn.ReLU(inplace=True)]
        layers += [nn.Linear(sizes[-2], sizes[-1]), Maxout(maxout)]
        self.layers = nn.Sequential(*layers)
        self.width = widths[-1] // maxout

    def forward(self, x: Tensor) -> Tensor:
        """Return features (N, width)."""
        return self.layers(x)
