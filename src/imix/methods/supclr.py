"""Supervised contrastive learning in SimCLR's form."""

import torch
from torch import Tensor

from imix import losses
from imix.batch import Batch
from imix.distributed import all_ranks, own_offset
from imix.methods.simclr import SimCLR


class SupCLR(SimCLR):
    """Supervised contrastive learning (SupCon); with `mix`, i-Mix on it (appendix A.2 of the paper).

    >>> learner = SupCLR(imix.encoders.build("small", (20,)), mix=imix.MixUp())
    >>> learner(torch.randn(16, 20), torch.randn(16, 20), torch.arange(16) % 4).shape
    torch.Size([])
    """

    supervised = True

    def forward(self, view_1: Batch, view_2: Batch, labels: Tensor) -> Tensor:  # type: ignore[override]
        """The loss of two views of a batch with labels (N,)."""
        q, k, mix = self.anchors_and_keys(view_1, view_2)
        labels = all_ranks(torch.cat([labels, labels]))
        return losses.supclr(q, all_ranks(k), labels, mix, temperature=self.temperature, offset=own_offset(len(k)))
