"""Supervised contrastive learning in the N-pair form."""

from torch import Tensor

from imix import losses
from imix.batch import Batch
from imix.distributed import all_ranks, own_offset
from imix.methods.npair import NPair


class SupNPair(NPair):
    """Supervised N-pair contrastive learning; with `mix`, i-Mix on it (appendix A.3 of the paper).

    >>> learner = SupNPair(imix.encoders.build("small", (20,)), mix=imix.MixUp())
    >>> learner(torch.randn(16, 20), torch.randn(16, 20), torch.arange(16) % 4).shape
    torch.Size([])
    """

    supervised = True

    def forward(self, view_1: Batch, view_2: Batch, labels: Tensor) -> Tensor:  # type: ignore[override]
        """The loss of two views of a batch with labels (N,)."""
        self.check(view_1, view_2)
        anchors, mix = self.mixed(view_1)
        q, k = self.project(anchors, view_2)
        return losses.supnpair(
            q, all_ranks(k), all_ranks(labels), mix, temperature=self.temperature, offset=own_offset(len(k))
        )
