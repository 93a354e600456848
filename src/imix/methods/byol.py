"""BYOL: no negatives; a predictor guesses the momentum encoder's key."""

from torch import Tensor, nn

from imix import losses
from imix.batch import Batch
from imix.encoders import head as make_head
from imix.methods.momentum import Momentum
from imix.mix import MixOperator


class BYOL(Momentum):
    """BYOL, one direction, as in the paper; with `mix`, i-Mix on it.

    The predictor has the encoder's width inside (2048 in the paper's experiments) and by default no final BN.

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
    ) -> None:
        super().__init__(encoder, mix, momentum=momentum, head=head, dim=dim, width=width)
        self.predictor = make_head(predictor or self.default_head, dim, self.width, dim)

    def forward(self, view_1: Batch, view_2: Batch) -> Tensor:
        """The loss of two views of a batch."""
        self.check(view_1, view_2)
        anchors, mix = self.mix(view_1)
        (q,) = self.project(anchors)
        return losses.byol(self.predictor(q), self.keys(view_2), mix)
