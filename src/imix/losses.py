"""The objectives, as pure functions of embeddings and virtual labels.

Every one has the same shape. An anchor q_i is pulled towards its *target*, the (mixed) mean of its positive keys, and,
where there are negatives, pushed from all its columns:

    loss_i = logsumexp_k s(q_i, k) / tau  -  q_i . target_i / tau,    target_i = lam * pos_i + (1 - lam) * pos_partner

which is the cross-entropy of the paper, since the virtual label sums to one and s is linear in the normalised key.
Mixing enters through the target alone, so every objective is linear in the virtual label (appendix B of the paper).

Inputs need not be normalised. Values are computed in float32 or better, whatever autocast says; they are means over
anchors. With many ranks, anchors are local and keys are gathered; `offset` is the index of the first anchor's own key.
"""

from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor

from imix.errors import InputError
from imix.mix import Mix
from imix.softmax import log_sum_exp

FULL = (torch.float32, torch.float64)
EPS = 1e-6  # bounds the gradient of an embedding that is (nearly) zero


def npair(q: Tensor, k: Tensor, mix: Mix | None = None, *, temperature: float, offset: int = 0) -> Tensor:
    """N-pair contrastive loss, N-way: Eq. (5), with `mix` Eq. (6).

    q (n, D) anchors, mixed as `mix` says; k (N, D) clean keys, the positive of anchor i being k[offset + i].
    """
    with _full_precision(q):
        q, k = _unit(q, temperature), _unit(k)
        return _contrast(q, k, _mixed(_own_keys(q, k, offset), mix)).mean()


def simclr(anchors: Tensor, keys: Tensor, mix: Mix | None = None, *, temperature: float, offset: int = 0) -> Tensor:
    """SimCLR loss, (2N-1)-way: Eq. (4), with `mix` Eq. (A.2).

    anchors (2n, D): both views, one after the other, mixed as `mix` says; keys (2N, D): the clean ones, with
    keys[offset + i] being anchor i unmixed (`mix` None: the same tensor). Anchor i has no column for its own key. Where
    its partner is its own other view, the partner's positive is that very key: the equation's numerator s(q_i, k_i),
    which has no column, is used as it stands, so the term is finite.
    """
    with _full_precision(anchors):
        q, k = _unit(anchors, temperature), _unit(keys)
        if len(q) % 2:
            raise InputError(f"SimCLR's anchors are two views of each sample; got an odd number, {len(q)}")
        own = torch.arange(offset, offset + len(q), device=q.device)
        positives = _own_keys(q, k, offset).roll(len(q) // 2, 0)
        return _contrast(q, k, _mixed(positives, mix), own).mean()


def moco(q: Tensor, k: Tensor, queue: Tensor, mix: Mix | None = None, *, temperature: float, offset: int = 0) -> Tensor:
    """MoCo loss: (K+1)-way without `mix`, Eq. (7); (N+K)-way with it, Eq. (8) and (9).

    q (n, D) anchors; k (N, D) keys of the momentum encoder, k[offset + i] the positive of anchor i; queue (K, D).
    """
    with _full_precision(q):
        q, k, queue = _unit(q, temperature), _unit(k), _unit(queue)
        positive = (q * _mixed(_own_keys(q, k, offset), mix)).sum(1)
        batch = positive if mix is None else log_sum_exp(q, k)  # the batch's columns: one, or all
        return (torch.logaddexp(batch, log_sum_exp(q, queue)) - positive).mean()


def byol(p: Tensor, k: Tensor, mix: Mix | None = None) -> Tensor:
    """BYOL loss 2 - 2 cos, to both targets with `mix`: Eq. (10) to (12). p, k (N, D); N similarities, never N x N."""
    with _full_precision(p):
        p, target = _full(p), _mixed(_own_keys(p, _unit(k), 0), mix)
        cosine = torch.linalg.vecdot(p, target) / p.norm(dim=1).clamp(min=EPS)
        return torch.rsub(cosine.mean(), 2, alpha=2)  # 2 - 2 cos, in one step each way


def supclr(
    anchors: Tensor,
    keys: Tensor,
    labels: Tensor,
    mix: Mix | None = None,
    *,
    temperature: float,
    offset: int = 0,
) -> Tensor:
    """Supervised contrastive loss (SupCLR, mean over positives outside the log): Eq. (A.3), with `mix` Eq. (A.4).

    anchors (2n, D) and keys (2N, D) as in `simclr`; labels (2N,) those of the keys. Each side of a mixed label is
    normalised by its own number of positives. The anchor's own key is never a positive: where it is one of the
    partner's, that term is dropped and not counted. A side without positives contributes nothing.
    """
    with _full_precision(anchors):
        q, k = _unit(anchors, temperature), _unit(keys)
        n = len(q)
        own = torch.arange(offset, offset + n, device=q.device)
        own_key, own_label = _own_keys(q, k, offset), labels[own]
        class_sum, class_size = _by_class(k, labels)
        sums, counts = class_sum[own] - own_key, class_size[own] - 1
        target, weight = _mean_positive(sums, counts)
        if mix is not None:
            _check_mix(mix, n)
            j = mix.partner
            anchor_is_positive = (own_label[j] == own_label) & (j != torch.arange(n, device=j.device))
            theirs, exists = _mean_positive(
                sums[j] - anchor_is_positive[:, None] * own_key,
                counts[j] - anchor_is_positive.to(counts.dtype),
            )
            lam = mix.lam.to(q)
            target = lam[:, None] * target + (1 - lam)[:, None] * theirs
            weight = lam * weight + (1 - lam) * exists
        return _contrast(q, k, target, own, weight).mean()


def supnpair(
    q: Tensor, k: Tensor, labels: Tensor, mix: Mix | None = None, *, temperature: float, offset: int = 0
) -> Tensor:
    """Supervised N-pair loss: Eq. (A.5), with `mix` Eq. (A.6).

    q (n, D) and k (N, D) as in `npair`; labels (N,) those of the keys. The anchor's own second view counts as a
    positive, which is what 1/N_y says; each side of a mixed label is normalised by its own number of positives.
    """
    with _full_precision(q):
        q, k = _unit(q, temperature), _unit(k)
        class_sum, class_size = _by_class(k, labels)
        positives = (class_sum / class_size[:, None])[offset : offset + len(q)]
        return _contrast(q, k, _mixed(positives, mix)).mean()


def _contrast(q: Tensor, k: Tensor, target: Tensor, own: Tensor | None = None, weight: Tensor | None = None) -> Tensor:
    """Cross-entropy of each anchor, (n,): `weight` is what its virtual label sums to, `own` the column it lacks."""
    columns = log_sum_exp(q, k, own)
    return (columns if weight is None else weight * columns) - (q * target).sum(1)


def _own_keys(q: Tensor, k: Tensor, offset: int) -> Tensor:
    """The clean key of each anchor, (n, D)."""
    n, keys = q.shape[0], k.shape[0]
    if offset + n > keys:
        raise InputError(f"{n} anchors from key {offset} on need at least {offset + n} keys; got {keys}")
    return k if n == keys else k[offset : offset + n]


def _mixed(positives: Tensor, mix: Mix | None) -> Tensor:
    """The targets: positives (n, D), mixed as the virtual labels are."""
    if mix is None:
        return positives
    _check_mix(mix, len(positives))
    lam = mix.lam.to(positives)[:, None]
    return lam * positives + (1 - lam) * positives.index_select(0, mix.partner)


def _check_mix(mix: Mix, n: int) -> None:
    """Refuse virtual labels of other shapes, which would be broadcast to something without meaning."""
    for name in Mix._fields:
        shape = tuple(getattr(getattr(mix, name, None), "shape", ("no tensor",)))
        if shape != (n,):
            raise InputError(f"the virtual labels of {n} anchors are a Mix with {name} of shape ({n},); got {shape}")


def class_labels(labels: Tensor, n: int) -> Tensor:
    """Class labels (n,): any numbers, of which equal ones are a class."""
    shape = tuple(labels.shape) if isinstance(labels, Tensor) else type(labels).__name__
    if shape != (n,):
        raise InputError(f"the labels of {n} samples are a tensor ({n},); got {shape}")
    return labels if labels.is_floating_point() else labels.long()


def _by_class(k: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """For each key, the sum of the keys of its class, (N, D), and how many they are, (N,)."""
    # The first place of a label among the sorted ones names its class: no sizes that depend on the data.
    labels = class_labels(labels, len(k))
    index = torch.searchsorted(labels.sort().values, labels)
    sums = torch.zeros_like(k).index_add(0, index, k)
    counts = torch.zeros_like(k[:, 0]).index_add(0, index, torch.ones_like(k[:, 0]))
    return sums[index], counts[index]


def _mean_positive(sums: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Mean of the positives, zero where there are none, and whether there are any (1 or 0)."""
    exists = (counts > 0).to(sums)
    return exists[:, None] * sums / counts.clamp(min=1)[:, None], exists


def _unit(x: Tensor, temperature: float = 1.0) -> Tensor:
    """Embeddings of length 1, or of 1 / temperature."""
    if not temperature > 0:
        raise InputError(f"temperature must be above 0; got {temperature}")
    unit = F.normalize(_full(x), dim=1, eps=EPS)
    return unit if isinstance(temperature, float | int) and temperature == 1 else unit / temperature


def _full(x: Tensor) -> Tensor:
    return x if x.dtype in FULL else x.to(torch.promote_types(x.dtype, torch.float32))


def _full_precision(x: Tensor) -> AbstractContextManager[object]:
    device = x.device.type
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()
