"""N-pair contrastive learning: the paper's simplification of SimCLR, on which i-Mix is one line."""

import math

from torch import Tensor

from imix import losses
from imix.batch import Batch
from imix.distributed import all_ranks, own_offset
from imix.methods.method import InBatch


class NPair(InBatch):
    """N-pair contrastive learning; with `mix`, i-Mix on it (Algorithm 1 of the paper).

    `NPair(encoder, mix=None, *, temperature=0.2, head="mlpbn", dim=128, width=None)`: the projection head takes the
    encoder's `width` features (found out where the encoder says it) to `dim`; see `imix.encoders.heads` for its kinds.

    >>> learner = NPair(imix.encoders.build("small", (20,)), mix=imix.MixUp())
    >>> learner(torch.randn(16, 20), torch.randn(16, 20)).shape
    torch.Size([])
    """

    fewest = 2

    def forward(self, view_1: Batch, view_2: Batch) -> Tensor:
        """The loss of two views of a batch: view 1 is mixed and anchors, view 2 stays clean and gives the keys."""
        self.check(view_1, view_2)
        anchors, mix = self.mixed(view_1)
        q, k = self.project(anchors, view_2)  # one pass: mixed and clean share batch-normalisation statistics
        # With many ranks, every rank's keys are columns, and this rank's own begin at the offset.
        return losses.npair(q, all_ranks(k), mix, temperature=self.temperature, offset=own_offset(len(k)))

    def chance(self, batch_size: int) -> float:
        """log N."""
        return math.log(batch_size)
