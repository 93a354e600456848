"""The paper's baseline: a classifier trained end to end, with MixUp as in section 3.1."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from imix.batch import Batch, size
from imix.losses import class_labels
from imix.methods.method import Method
from imix.mix import MixOperator


class Supervised(Method):
    """Cross-entropy on class labels, Eq. (1); with `mix`, MixUp, Eq. (2).

    >>> learner = Supervised(imix.encoders.build("small", (20,)), mix=imix.MixUp(), classes=4)
    >>> learner(torch.randn(16, 20), torch.arange(16) % 4).shape
    torch.Size([])
    """

    views = 1
    supervised = True

    def __init__(
        self, encoder: nn.Module, mix: MixOperator | None = None, *, classes: int, width: int | None = None
    ) -> None:
        super().__init__(encoder, mix, width)
        self.classifier = nn.Linear(self.width, classes)

    def forward(self, view: Batch, labels: Tensor) -> Tensor:
        """The loss of one view of a batch with labels (N,)."""
        self.check(view)
        labels = class_labels(labels, size(view)).long()
        x, mix = self.mixed(view)
        logits = self.classifier(self.encoder(x))
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if mix is None:
            return F.cross_entropy(logits, labels)
        both = torch.stack([labels, labels[mix.partner]], 1)
        own, partners = F.log_softmax(logits, 1).gather(1, both).unbind(1)
        return -(mix.lam * own + (1 - mix.lam) * partners).mean()
