"""The paper's supervised baseline: a classifier trained end to end, with MixUp as in section 3.1."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from imix.batch import Batch, size
from imix.losses import class_labels
from imix.methods.method import Method
from imix.mix import MixOperator


class Supervised(Method):
    """Cross-entropy on class labels, Eq. (1); if `mix` is given, supervised MixUp, Eq. (2).

    Parameters
    ----------
    encoder : nn.Module
        Maps a batch of N samples to features of shape (N, F).
    mix : MixOperator, optional
        Mixing operator, for example `imix.MixUp()`. None trains without mixing.
    n_classes : int
        Number of classes C.
    width : int, optional
        The feature dimension F. By default it is read from the encoder.

    Examples
    --------
    >>> learner = Supervised(imix.encoders.build("small", (20,)), mix=imix.MixUp(), n_classes=4)
    >>> learner(torch.randn(16, 20), torch.arange(16) % 4).shape
    torch.Size([])
    """

    n_views = 1
    supervised = True

    def __init__(
        self, encoder: nn.Module, mix: MixOperator | None = None, *, n_classes: int, width: int | None = None
    ) -> None:
        super().__init__(encoder, mix, width)
        self.classifier = nn.Linear(self.width, n_classes)

    def forward(self, view: Batch, labels: Tensor) -> Tensor:
        """Return the loss of one view of a batch of N samples with labels (N,)."""
        self.check_views(view)
        labels = class_labels(labels, size(view)).long()
        x, mix = self.apply_mix(view)
        logits = self.classifier(self.encoder(x))  # (N, C)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))  # even under autocast
        if mix is None:
            return F.cross_entropy(logits, labels)
        label_pairs = torch.stack([labels, labels[mix.partner]], 1)  # (N, 2)
        log_p, log_p_partner = F.log_softmax(logits, 1).gather(1, label_pairs).unbind(1)  # (N,) each
        return -(mix.lam * log_p + (1 - mix.lam) * log_p_partner).mean()
