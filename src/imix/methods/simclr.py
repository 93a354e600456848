"""SimCLR: both views are anchors, and everything but oneself is a column."""

import math

from torch import Tensor

from imix import losses
from imix.batch import Batch, concatenate
from imix.distributed import all_ranks, own_offset
from imix.methods.method import InBatch
from imix.mix import Mix


class SimCLR(InBatch):
    """SimCLR; with `mix`, i-Mix on it (appendix A.1 of the paper), at twice the cost: mixed anchors *and* clean keys.

    >>> learner = SimCLR(imix.encoders.build("small", (20,)), mix=imix.MixUp())
    >>> learner(torch.randn(16, 20), torch.randn(16, 20)).shape
    torch.Size([])
    """

    fewest = 2

    def forward(self, view_1: Batch, view_2: Batch) -> Tensor:
        """The loss of two views of a batch."""
        q, k, mix = self.anchors_and_keys(view_1, view_2)
        return losses.simclr(q, all_ranks(k), mix, temperature=self.temperature, offset=own_offset(len(k)))

    def anchors_and_keys(self, view_1: Batch, view_2: Batch) -> tuple[Tensor, Tensor, Mix | None]:
        """Mixed anchors and clean keys, (2N, dim) each, in one pass; without mixing they are the same."""
        self.check(view_1, view_2)
        views = concatenate([view_1, view_2])
        anchors, mix = self.mixed(views)
        if mix is None:
            (z,) = self.project(views)
            return z, z, None
        q, k = self.project(anchors, views)
        return q, k, mix

    def chance(self, batch_size: int) -> float:
        """log (2N - 1)."""
        return math.log(2 * batch_size - 1)
