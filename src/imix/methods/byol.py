"""BYOL: no negatives; a predictor on top of the head predicts the key of the momentum encoder."""

import torch
from torch import Tensor, nn

from imix import losses
from imix.batch import Batch
from imix.encoders import build_head
from imix.methods.momentum import MomentumMethod
from imix.mix import MixOperator


class BYOL(MomentumMethod):
    """BYOL, with i-Mix if `mix` is given.

    Parameters
    ----------
    encoder : nn.Module
        Maps a batch of N samples to features of shape (N, F).
    mix : MixOperator, optional
        Mixing operator, for example `imix.MixUp()`. None trains without i-Mix.
    momentum : float
        Weight of the old parameters in each update of the momentum encoder, between 0 and 1.
    head : {"mlpbn", "mlpbn1", "mlp", "linear"}, optional
        Projection head, see `imix.encoders.build_head`. Default "mlpbn1".
    predictor : {"mlpbn", "mlpbn1", "mlp", "linear"}, optional
        Prediction head, with a hidden layer of F units. By default the same type as `head`.
    dim : int
        Dimension of the embeddings, which is the output of the head.
    width : int, optional
        The feature dimension F. By default it is read from the encoder.
    symmetric : bool
        Use both views as anchors and as keys, at twice the cost. By default view 1 provides the anchors and view 2
        the keys, as in the paper.

    Examples
    --------
    >>> learner = BYOL(imix.encoders.build("small", (20,)), mix=imix.MixUp())
    >>> loss = learner(torch.randn(16, 20), torch.randn(16, 20))
    >>> loss.backward(); learner.update()
    """

    def __init__(
        self,
        encoder: nn.Module,
        mix: MixOperator | None = None,
        *,
        momentum: float = 0.999,
        head: str | None = None,
        predictor: str | None = None,
        dim: int = 128,
        width: int | None = None,
        symmetric: bool = False,
    ) -> None:
        super().__init__(encoder, mix, momentum=momentum, head=head, dim=dim, width=width, symmetric=symmetric)
        self.predictor = build_head(predictor or head or self.default_head, dim, self.width, dim)

    def forward(self, view_1: Batch, view_2: Batch) -> Tensor:
        """Return the loss of two views of one batch of N samples."""
        directions = self.encode_pairs(view_1, view_2)  # p, k: (N, dim)
        return torch.stack([losses.byol(p, k, mix) for p, k, mix in directions]).mean()

    def project(self, *batches: Batch) -> tuple[Tensor, ...]:
        """Return the predictions (N, dim) for each batch, computed in one pass."""
        z = super().project(*batches)
        return self.predictor(torch.cat(z)).split([len(part) for part in z])
