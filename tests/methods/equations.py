"""The equations of the paper as plain loops over anchors and keys, in float64."""

import torch
from torch import Tensor

from imix.batch import concatenate
from imix.methods import BYOL, Method, NPair, SimCLR, SupCLR, Supervised, SupNPair
from imix.mix import Mix
from tests.methods.helpers import LABELS, TAU, K, N


def similarity(a: Tensor, b: Tensor) -> Tensor:
    return a @ b / (a.norm() * b.norm())


def cross_entropy(anchors: Tensor, columns: Tensor, virtual: Tensor, without_self: bool = False) -> Tensor:
    """-sum_n v_n log softmax(s(f, f_n) / tau)_n, mean over anchors; `without_self` drops column i from the softmax."""
    total = torch.zeros(())
    for i, anchor in enumerate(anchors):
        s = torch.stack([similarity(anchor, column) / TAU for column in columns])
        normalizer = sum(s_k.exp() for k, s_k in enumerate(s) if not (without_self and k == i)).log()
        total = total - (virtual[i] * (s - normalizer)).sum()
    return total / len(anchors)


def mixed_label(virtual: Tensor, mix: Mix | None) -> Tensor:
    if mix is None:
        return virtual
    lam = mix.lam[:, None]
    return lam * virtual + (1 - lam) * virtual[mix.partner]


def npair_equation(q: Tensor, k: Tensor, mix: Mix | None) -> Tensor:
    return cross_entropy(q, k, mixed_label(torch.eye(N).double(), mix))


def simclr_equation(q: Tensor, k: Tensor, mix: Mix | None) -> Tensor:
    other_view = torch.eye(2 * N).double().roll(N, 1)
    return cross_entropy(q, k, mixed_label(other_view, mix), without_self=True)


def moco_equation(q: Tensor, k: Tensor, queue: Tensor, mix: Mix | None) -> Tensor:
    if mix is not None:
        return cross_entropy(q, torch.cat([k, queue]), mixed_label(torch.eye(N, N + K).double(), mix))
    first = torch.eye(1, 1 + K).double()
    return sum(cross_entropy(q[i : i + 1], torch.cat([k[i : i + 1], queue]), first) for i in range(N)) / N


def byol_equation(p: Tensor, k: Tensor, mix: Mix | None) -> Tensor:
    total = torch.zeros(())
    for i in range(N):
        partner, lam = (i, 1.0) if mix is None else (mix.partner[i], mix.lam[i])
        total = total + lam * (p[i] / p[i].norm() - k[i] / k[i].norm()).square().sum()
        total = total + (1 - lam) * (p[i] / p[i].norm() - k[partner] / k[partner].norm()).square().sum()
    return total / N


def supclr_equation(q: Tensor, k: Tensor, mix: Mix | None) -> Tensor:
    labels = torch.cat([LABELS, LABELS])

    def label_of(sample: int, anchor: int) -> Tensor:
        """The label of a sample: its positives, except the sample and the anchor, with equal weights."""
        positive = [float(labels[n] == labels[sample] and n not in (sample, anchor)) for n in range(2 * N)]
        return torch.tensor(positive).double() / max(1.0, sum(positive))

    virtual = torch.stack([label_of(i, i) for i in range(2 * N)])
    if mix is not None:
        lam = mix.lam[:, None]
        partners = torch.stack([label_of(int(mix.partner[i]), i) for i in range(2 * N)])
        virtual = lam * virtual + (1 - lam) * partners
    return cross_entropy(q, k, virtual, without_self=True)


def supnpair_equation(q: Tensor, k: Tensor, mix: Mix | None) -> Tensor:
    same = (LABELS[:, None] == LABELS).double()
    return cross_entropy(q, k, mixed_label(same / same.sum(1, keepdim=True), mix))


def supervised_equation(logits: Tensor, mix: Mix | None) -> Tensor:
    total = torch.zeros(())
    for i in range(N):
        log_p = logits[i] - logits[i].exp().sum().log()
        partner, lam = (i, 1.0) if mix is None else (mix.partner[i], mix.lam[i])
        total = total - lam * log_p[LABELS[i]] - (1 - lam) * log_p[LABELS[partner]]
    return total / N


def by_hand(learner: Method, view_1, view_2) -> Tensor:
    """The loss computed from its definition: mix, encode in one pass, apply the equation."""
    operator = learner.mix
    if isinstance(learner, Supervised):
        x, mix = operator(view_1)
        return supervised_equation(learner.classifier(learner.encoder(x)), mix)
    if isinstance(learner, SimCLR):
        both = concatenate([view_1, view_2])
        anchors, mix = operator(both)
        equation = supclr_equation if isinstance(learner, SupCLR) else simclr_equation
        if mix is None:
            z = learner.head(learner.encoder(both))
            return equation(z, z, None)
        z = learner.head(learner.encoder(concatenate([anchors, both])))
        return equation(z[: 2 * N], z[2 * N :], mix)
    anchors, mix = operator(view_1)
    if isinstance(learner, NPair):
        z = learner.head(learner.encoder(concatenate([anchors, view_2])))
        equation = supnpair_equation if isinstance(learner, SupNPair) else npair_equation
        return equation(z[:N], z[N:], mix)
    q, k = learner.head(learner.encoder(anchors)), learner.key_head(learner.key_encoder(view_2)).detach()
    if isinstance(learner, BYOL):
        return byol_equation(learner.predictor(q), k, mix)
    return moco_equation(q, k, learner.queue, mix)
