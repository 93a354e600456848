"""N-pair contrastive learning: the paper's simplification of SimCLR and the simplest method with i-Mix."""

import math

from torch import Tensor

from imix import losses
from imix.batch import Batch
from imix.methods.method import InBatchMethod
from imix.runtime.distributed import gather_rows, row_offset


class NPair(InBatchMethod):
    """N-pair contrastive learning, with i-Mix if `mix` is given (Algorithm 1 of the paper).

    View 1 is mixed and provides the anchors. View 2 is not mixed and provides the keys.

    Parameters
    ----------
    encoder : nn.Module
        Maps a batch of N samples to features of shape (N, F).
    mix : MixOperator, optional
        Mixing operator, for example `imix.MixUp()`. None trains without i-Mix.
    temperature : float
        Temperature of the softmax over the keys.
    head : {"mlpbn", "mlpbn1", "mlp", "linear"}, optional
        Projection head, see `imix.encoders.build_head`. Default "mlpbn".
    dim : int
        Dimension of the embeddings, which is the output of the head.
    width : int, optional
        The feature dimension F. By default it is read from the encoder.

    Examples
    --------
    >>> learner = NPair(imix.encoders.build("small", (20,)), mix=imix.MixUp())
    >>> learner(torch.randn(16, 20), torch.randn(16, 20)).shape
    torch.Size([])
    """

    min_batch_size = 2

    def forward(self, view_1: Batch, view_2: Batch) -> Tensor:
        """Return the loss of two views of one batch of N samples."""
        self.check_views(view_1, view_2)
        anchors, mix = self.apply_mix(view_1)
        q, k = self.project(anchors, view_2)  # (N, dim) each
        keys = gather_rows(k)  # (W * N, dim): the keys of all W ranks
        return losses.npair(q, keys, mix, temperature=self.temperature, offset=row_offset(len(k)))

    def chance_loss(self, batch_size: int) -> float:
        """Return log N, the loss of a collapsed encoder."""
        return math.log(batch_size)
