"""Encoders, samples and learners for the tests of methods."""

import torch
from torch import Tensor, nn

from imix.encoders import MLP
from imix.encoders.small import SmallConvNet
from imix.methods import BYOL, Method, MoCo, NPair, SimCLR, SupCLR, Supervised, SupNPair
from imix.mix import CutMix, MixUp

N, K, DIM, CLASSES, TAU = 6, 10, 8, 3, 0.2
LABELS = torch.tensor([0, 1, 0, 2, 1, 0])


class Pair(nn.Module):
    """An encoder of samples with two fields, in a tuple or a dict."""

    width = 12

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.norm = nn.Linear(5, 12), nn.Linear(3, 12), nn.BatchNorm1d(12)

    def forward(self, batch):
        left, right = batch.values() if isinstance(batch, dict) else batch
        return self.norm(self.left(left) + self.right(right)).relu()


ENCODERS = {
    "image": lambda: SmallConvNet(3, axes=2, widths=(4, 12)),
    "table": lambda: MLP(20, widths=(16, 48)),
    "sequence": lambda: SmallConvNet(2, axes=1, widths=(4, 12)),
    "tuple": Pair,
    "dict": Pair,
}
SAMPLES = {
    "image": lambda: torch.randn(N, 3, 8, 8),
    "table": lambda: torch.randn(N, 20),
    "sequence": lambda: torch.randn(N, 2, 16),
    "tuple": lambda: (torch.randn(N, 5), torch.randn(N, 3)),
    "dict": lambda: {"left": torch.randn(N, 5), "right": torch.randn(N, 3)},
}
OPERATORS = {"none": None, "mixup": MixUp(), "one-lam": MixUp(per_sample=False, fold=False), "cutmix": CutMix()}
METHODS = ("npair", "simclr", "moco", "byol", "supclr", "supnpair", "supervised")
CASES = [
    (kind, operator)
    for kind in ENCODERS
    for operator in OPERATORS
    if operator != "cutmix" or kind in ("image", "sequence")
]


def build(method: str, encoder: nn.Module, mix=None, head: str | None = None, **options) -> Method:
    if method == "supervised":
        return Supervised(encoder, mix, n_classes=CLASSES, **options)
    if method == "moco":
        return MoCo(encoder, mix, queue=K, temperature=TAU, dim=DIM, head=head, **options)
    if method == "byol":
        return BYOL(encoder, mix, dim=DIM, head=head, predictor=head, **options)
    contrastive = {"npair": NPair, "simclr": SimCLR, "supclr": SupCLR, "supnpair": SupNPair}[method]
    return contrastive(encoder, mix, temperature=TAU, dim=DIM, head=head, **options)


def table_learner(method: str, mix=None, head: str | None = None) -> Method:
    torch.manual_seed(0)
    return build(method, ENCODERS["table"](), mix, head)


def views(kind: str = "table", seed: int = 1):
    torch.manual_seed(seed)
    return SAMPLES[kind](), SAMPLES[kind]()


def loss_of(learner: Method, view_1, view_2, labels: Tensor = LABELS) -> Tensor:
    inputs = (view_1, view_2)[: learner.n_views]
    return learner(*inputs, labels=labels) if learner.supervised else learner(*inputs)
