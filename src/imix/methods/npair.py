"""N-pair contrastive learning: the paper's simplification of SimCLR, on which i-Mix is one line."""

import math

from torch import Tensor

from imix import losses
from imix.batch import Batch, same_size
from imix.distributed import all_ranks, own_offset
from imix.methods.method import Contrastive


class NPair(Contrastive):
    """N-pair contrastive learning; with `mix`, i-Mix on it (Algorithm 1 of the paper).

    >>> learner = NPair(imix.encoders.build("small", (20,)), mix=imix.MixUp())
    >>> learner(torch.randn(16, 20), torch.randn(16, 20)).shape
    torch.Size([])
    """

    def forward(self, view_1: Batch, view_2: Batch) -> Tensor:
        """The loss of two views of a batch: view 1 is mixed and anchors, view 2 stays clean and gives the keys."""
        same_size(view_1, view_2)
        anchors, mix = self.mix(view_1)
        q, k = self.project(anchors, view_2)
        return losses.npair(q, all_ranks(k), mix, temperature=self.temperature, offset=own_offset(len(k)))

    def chance(self, batch_size: int) -> float:
        """log N."""
        return math.log(batch_size)
