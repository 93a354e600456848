"""Supervised contrastive learning in the N-pair form."""

from torch import Tensor

from imix import losses
from imix.batch import Batch
from imix.methods.npair import NPair
from imix.runtime.distributed import gather_rows, row_offset


class SupNPair(NPair):
    """Supervised N-pair contrastive learning, with i-Mix if `mix` is given (appendix A.3 of the paper).

    Every key of the anchor's class is a positive.

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
    >>> learner = SupNPair(imix.encoders.build("small", (20,)), mix=imix.MixUp())
    >>> learner(torch.randn(16, 20), torch.randn(16, 20), torch.arange(16) % 4).shape
    torch.Size([])
    """

    supervised = True

    def forward(self, view_1: Batch, view_2: Batch, labels: Tensor) -> Tensor:  # type: ignore[override]
        """Return the loss of two views of one batch of N samples with labels (N,)."""
        self.check_views(view_1, view_2)
        anchors, mix = self.apply_mix(view_1)
        q, k = self.project(anchors, view_2)  # (N, dim) each
        keys, key_labels = gather_rows(k), gather_rows(labels)  # (W * N, dim) and (W * N,), for W ranks
        return losses.supnpair(q, keys, key_labels, mix, temperature=self.temperature, offset=row_offset(len(k)))
