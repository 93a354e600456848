"""SimCLR: both views are anchors, and every embedding of the batch except the anchor itself is a key."""

import math

from torch import Tensor

from imix import losses
from imix.batch import Batch, concatenate
from imix.methods.method import InBatchMethod
from imix.mix import Mix
from imix.runtime.distributed import gather_rows, row_offset


class SimCLR(InBatchMethod):
    """SimCLR, with i-Mix if `mix` is given (appendix A.1 of the paper).

    i-Mix doubles the cost: the network encodes the mixed anchors and the unmixed keys.

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
    >>> learner = SimCLR(imix.encoders.build("small", (20,)), mix=imix.MixUp())
    >>> learner(torch.randn(16, 20), torch.randn(16, 20)).shape
    torch.Size([])
    """

    min_batch_size = 2

    def forward(self, view_1: Batch, view_2: Batch) -> Tensor:
        """Return the loss of two views of one batch of N samples."""
        q, k, mix = self.anchors_and_keys(view_1, view_2)  # (2N, dim) each
        keys = gather_rows(k)  # (W * 2N, dim): the keys of all W ranks
        return losses.simclr(q, keys, mix, temperature=self.temperature, offset=row_offset(len(k)))

    def anchors_and_keys(self, view_1: Batch, view_2: Batch) -> tuple[Tensor, Tensor, Mix | None]:
        """Return mixed anchors (2N, dim), unmixed keys (2N, dim) and the virtual labels."""
        self.check_views(view_1, view_2)
        views = concatenate([view_1, view_2])  # 2N samples
        anchors, mix = self.apply_mix(views)
        if mix is None:  # anchors and keys are the same embeddings
            (z,) = self.project(views)
            return z, z, None
        q, k = self.project(anchors, views)
        return q, k, mix

    def chance_loss(self, batch_size: int) -> float:
        """Return log(2N - 1), the loss of a collapsed encoder."""
        return math.log(2 * batch_size - 1)
