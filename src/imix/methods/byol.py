"""BYOL: no negatives; a predictor guesses the momentum encoder's key."""

import torch
from torch import Tensor, nn

from imix import losses
from imix.batch import Batch
from imix.encoders import head as make_head
from imix.methods.momentum import Momentum
from imix.mix import MixOperator


class BYOL(Momentum):
    """BYOL; with `mix`, i-Mix on it.

    The predictor has the encoder's width inside (2048 in the paper's experiments) and is of the head's kind by default.

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
        self.predictor = make_head(predictor or head or self.default_head, dim, self.width, dim)

    def forward(self, view_1: Batch, view_2: Batch) -> Tensor:
        """The loss of two views of a batch."""
        return torch.stack([losses.byol(p, k, mix) for p, k, mix in self.pairs(view_1, view_2)]).mean()

    def project(self, *batches: Batch) -> tuple[Tensor, ...]:
        """The predictor's guesses for each batch, (N, dim), in one pass."""
        z = super().project(*batches)
        return self.predictor(torch.cat(z)).split([len(part) for part in z])
