"""Supervised contrastive learning in the SimCLR form."""

import torch
from torch import Tensor

from imix import losses
from imix.batch import Batch
from imix.methods.simclr import SimCLR
from imix.runtime.distributed import gather_rows, row_offset


class SupCLR(SimCLR):
    """Supervised contrastive learning (SupCon), with i-Mix if `mix` is given (appendix A.2 of the paper).

    Every key of the anchor's class except the anchor itself is a positive.

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
    >>> learner = SupCLR(imix.encoders.build("small", (20,)), mix=imix.MixUp())
    >>> learner(torch.randn(16, 20), torch.randn(16, 20), torch.arange(16) % 4).shape
    torch.Size([])
    """

    supervised = True

    def forward(self, view_1: Batch, view_2: Batch, labels: Tensor) -> Tensor:  # type: ignore[override]
        """Return the loss of two views of one batch of N samples with labels (N,)."""
        q, k, mix = self.anchors_and_keys(view_1, view_2)  # (2N, dim) each
        key_labels = gather_rows(torch.cat([labels, labels]))  # (W * 2N,), for W ranks
        keys = gather_rows(k)  # (W * 2N, dim)
        return losses.supclr(q, keys, key_labels, mix, temperature=self.temperature, offset=row_offset(len(k)))
