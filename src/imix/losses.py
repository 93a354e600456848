"""Contrastive losses as pure functions of embeddings and virtual labels.

All losses have the same form. An anchor q_i is attracted to its *target*, the (mixed) mean of its positive keys. Losses
with negatives also repel it from all of its keys:

    loss_i = logsumexp_k s(q_i, k) / tau  -  q_i . target_i / tau,    target_i = lam * pos_i + (1 - lam) * pos_partner

This is the cross-entropy of the paper, because the virtual label sums to one and s is linear in the normalized key.
Mixing changes only the target, so every loss is linear in the virtual label (appendix B of the paper).

Embeddings need not be normalized. Losses are computed in at least float32, even under autocast, and averaged over
anchors. In distributed training, anchors are local and keys are gathered from all ranks; `offset` is the index of the
key of the first local anchor.
"""

from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor

from imix.errors import InputError
from imix.mix import Mix
from imix.runtime.logsumexp import log_sum_exp

FULL_PRECISION = (torch.float32, torch.float64)
EPS = 1e-6  # bounds the gradient of embeddings close to zero


def npair(q: Tensor, k: Tensor, mix: Mix | None = None, *, temperature: float, offset: int = 0) -> Tensor:
    """N-pair contrastive loss, an N-way classification: Eq. (5), and Eq. (6) with `mix`.

    Parameters
    ----------
    q : Tensor of shape (n, D)
        Embeddings of the anchors, mixed according to `mix`.
    k : Tensor of shape (N, D)
        Embeddings of the unmixed keys. The positive of anchor i is k[offset + i].
    mix : Mix, optional
        Virtual labels of the anchors; None if they are not mixed.
    temperature : float
        Temperature tau of the softmax.
    offset : int
        Index of the key of the first anchor.

    Returns
    -------
    Tensor of shape ()

    Examples
    --------
    >>> q, k = torch.eye(4), torch.eye(4)
    >>> imix.losses.npair(q, k, temperature=0.1)
    tensor(0.0001)
    """
    with _autocast_disabled(q):
        q, k = _normalize(q, temperature), _normalize(k)
        return _cross_entropy(q, k, _mix_targets(_self_keys(q, k, offset), mix)).mean()


def simclr(anchors: Tensor, keys: Tensor, mix: Mix | None = None, *, temperature: float, offset: int = 0) -> Tensor:
    """SimCLR loss, a (2N-1)-way classification: Eq. (4), and Eq. (A.2) with `mix`.

    An anchor's own key is excluded from its softmax. If the partner of an anchor is its own other view, the
    partner's positive is that key. The numerator s(q_i, k_i) of the equation is still used, so the term is
    finite.

    Parameters
    ----------
    anchors : Tensor of shape (2n, D)
        Embeddings of both views, concatenated, mixed according to `mix`.
    keys : Tensor of shape (2N, D)
        Embeddings of the unmixed views; keys[offset + i] is anchor i without mixing. Without `mix`, pass the anchors.
    mix : Mix, optional
        Virtual labels of the anchors; None if they are not mixed.
    temperature : float
        Temperature tau of the softmax.
    offset : int
        Index of the key of the first anchor.

    Returns
    -------
    Tensor of shape ()

    Examples
    --------
    >>> z = torch.cat([torch.eye(4), torch.eye(4)])
    >>> imix.losses.simclr(z, z, temperature=0.1)
    tensor(0.0003)
    """
    with _autocast_disabled(anchors):
        q, k = _normalize(anchors, temperature), _normalize(keys)
        if len(q) % 2:
            raise InputError(f"the anchors of simclr must be two views of each sample; got an odd number, {len(q)}")
        self_index = torch.arange(offset, offset + len(q), device=q.device)
        positives = _self_keys(q, k, offset).roll(len(q) // 2, 0)
        return _cross_entropy(q, k, _mix_targets(positives, mix), self_index).mean()


def moco(q: Tensor, k: Tensor, queue: Tensor, mix: Mix | None = None, *, temperature: float, offset: int = 0) -> Tensor:
    """MoCo loss: a (K+1)-way classification, Eq. (7); with `mix` (N+K)-way, Eq. (8) and (9).

    Parameters
    ----------
    q : Tensor of shape (n, D)
        Embeddings of the anchors, mixed according to `mix`.
    k : Tensor of shape (N, D)
        Embeddings of the unmixed keys from the momentum encoder. The positive of anchor i is k[offset + i].
    queue : Tensor of shape (K, D)
        Keys of previous batches, used as negatives.
    mix : Mix, optional
        Virtual labels of the anchors; None if they are not mixed.
    temperature : float
        Temperature tau of the softmax.
    offset : int
        Index of the key of the first anchor.

    Returns
    -------
    Tensor of shape ()

    Examples
    --------
    >>> imix.losses.moco(torch.eye(4), torch.eye(4), -torch.eye(4), temperature=0.1)
    tensor(0.0001)
    """
    with _autocast_disabled(q):
        q, k, queue = _normalize(q, temperature), _normalize(k), _normalize(queue)
        positive = (q * _mix_targets(_self_keys(q, k, offset), mix)).sum(1)
        in_batch = positive if mix is None else log_sum_exp(q, k)  # without mix, other keys are not negatives
        return (torch.logaddexp(in_batch, log_sum_exp(q, queue)) - positive).mean()


def byol(p: Tensor, k: Tensor, mix: Mix | None = None) -> Tensor:
    """BYOL loss, 2 - 2 cos(p_i, target_i): Eq. (10) to (12).

    It needs N similarities, never an N x N matrix.

    Parameters
    ----------
    p : Tensor of shape (N, D)
        Predictions for the anchors, mixed according to `mix`.
    k : Tensor of shape (N, D)
        Embeddings of the unmixed keys from the momentum encoder. The positive of anchor i is k[i].
    mix : Mix, optional
        Virtual labels of the anchors; None if they are not mixed.

    Returns
    -------
    Tensor of shape ()

    Examples
    --------
    >>> imix.losses.byol(torch.eye(4), torch.eye(4))
    tensor(0.)
    """
    with _autocast_disabled(p):
        p, target = _to_full_precision(p), _mix_targets(_self_keys(p, _normalize(k), 0), mix)
        cosine = torch.linalg.vecdot(p, target) / p.norm(dim=1).clamp(min=EPS)
        return torch.rsub(cosine.mean(), 2, alpha=2)  # 2 - 2 cos as a single operation


def supclr(
    anchors: Tensor,
    keys: Tensor,
    labels: Tensor,
    mix: Mix | None = None,
    *,
    temperature: float,
    offset: int = 0,
) -> Tensor:
    """Supervised contrastive loss (the mean over positives is outside of the log): Eq. (A.3), and Eq. (A.4) with `mix`.

    Both sides of a mixed label are normalized by their own number of positives. The key of the anchor itself is never
    a positive: if it is one of the partner's, that term is dropped and not counted. A side without positives
    contributes nothing.

    Parameters
    ----------
    anchors : Tensor of shape (2n, D)
        Embeddings of both views, concatenated, mixed according to `mix`.
    keys : Tensor of shape (2N, D)
        Embeddings of the unmixed views; keys[offset + i] is anchor i without mixing.
    labels : Tensor of shape (2N,)
        Classes of the keys.
    mix : Mix, optional
        Virtual labels of the anchors; None if they are not mixed.
    temperature : float
        Temperature tau of the softmax.
    offset : int
        Index of the key of the first anchor.

    Returns
    -------
    Tensor of shape ()

    Examples
    --------
    >>> z, labels = torch.cat([torch.eye(4), torch.eye(4)]), torch.tensor([0, 1, 2, 3, 0, 1, 2, 3])
    >>> imix.losses.supclr(z, z, labels, temperature=0.1)
    tensor(0.0003)
    """
    with _autocast_disabled(anchors):
        q, k = _normalize(anchors, temperature), _normalize(keys)
        n = len(q)
        self_index = torch.arange(offset, offset + n, device=q.device)
        self_keys, anchor_labels = _self_keys(q, k, offset), labels[self_index]
        class_sums, class_sizes = _by_class(k, labels)
        sums, counts = class_sums[self_index] - self_keys, class_sizes[self_index] - 1
        target, weight = _mean_positive(sums, counts)
        if mix is not None:
            _check_mix(mix, n)
            j = mix.partner
            anchor_is_positive = (anchor_labels[j] == anchor_labels) & (j != torch.arange(n, device=j.device))
            partner_target, partner_weight = _mean_positive(
                sums[j] - anchor_is_positive[:, None] * self_keys,
                counts[j] - anchor_is_positive.to(counts.dtype),
            )
            lam = mix.lam.to(q)
            target = lam[:, None] * target + (1 - lam)[:, None] * partner_target
            weight = lam * weight + (1 - lam) * partner_weight
        return _cross_entropy(q, k, target, self_index, weight).mean()


def supnpair(
    q: Tensor, k: Tensor, labels: Tensor, mix: Mix | None = None, *, temperature: float, offset: int = 0
) -> Tensor:
    """Supervised N-pair loss: Eq. (A.5), and Eq. (A.6) with `mix`.

    The second view of the anchor counts as a positive, in accordance with the factor 1/N_y. Both sides of a mixed label
    are normalized by their own number of positives.

    Parameters
    ----------
    q : Tensor of shape (n, D)
        Embeddings of the anchors, mixed according to `mix`.
    k : Tensor of shape (N, D)
        Embeddings of the unmixed keys; k[offset + i] is the second view of anchor i.
    labels : Tensor of shape (N,)
        Classes of the keys.
    mix : Mix, optional
        Virtual labels of the anchors; None if they are not mixed.
    temperature : float
        Temperature tau of the softmax.
    offset : int
        Index of the key of the first anchor.

    Returns
    -------
    Tensor of shape ()

    Examples
    --------
    >>> imix.losses.supnpair(torch.eye(4), torch.eye(4), torch.arange(4), temperature=0.1)
    tensor(0.0001)
    """
    with _autocast_disabled(q):
        q, k = _normalize(q, temperature), _normalize(k)
        class_sums, class_sizes = _by_class(k, labels)
        positives = (class_sums / class_sizes[:, None])[offset : offset + len(q)]
        return _cross_entropy(q, k, _mix_targets(positives, mix)).mean()


def class_labels(labels: Tensor, n: int) -> Tensor:
    """Check the shape of class labels and convert integers and booleans to long.

    Parameters
    ----------
    labels : Tensor of shape (n,)
        Any numbers; equal numbers are the same class.
    n : int
        Number of samples.

    Returns
    -------
    Tensor of shape (n,)
    """
    shape = tuple(labels.shape) if isinstance(labels, Tensor) else type(labels).__name__
    if shape != (n,):
        raise InputError(f"labels of {n} samples must be a tensor of shape ({n},); got {shape}")
    return labels if labels.is_floating_point() else labels.long()


def _cross_entropy(
    q: Tensor, k: Tensor, target: Tensor, self_index: Tensor | None = None, weight: Tensor | None = None
) -> Tensor:
    """Cross-entropy of each anchor, (n,); `weight` is the sum of its virtual label, `self_index` the excluded key."""
    normalizer = log_sum_exp(q, k, self_index)
    return (normalizer if weight is None else weight * normalizer) - (q * target).sum(1)


def _self_keys(q: Tensor, k: Tensor, offset: int) -> Tensor:
    """The unmixed key of each anchor, (n, D)."""
    n, n_keys = q.shape[0], k.shape[0]
    if offset + n > n_keys:
        raise InputError(f"{n} anchors with offset {offset} need at least {offset + n} keys; got {n_keys}")
    return k if n == n_keys else k[offset : offset + n]


def _mix_targets(positives: Tensor, mix: Mix | None) -> Tensor:
    """The targets (n, D): lam * positives + (1 - lam) * positives of the partners."""
    if mix is None:
        return positives
    _check_mix(mix, len(positives))
    lam = mix.lam.to(positives)[:, None]
    return lam * positives + (1 - lam) * positives.index_select(0, mix.partner)


def _check_mix(mix: Mix, n: int) -> None:
    """Reject virtual labels of the wrong shape, which would silently broadcast to a wrong result."""
    for name in Mix._fields:
        shape = tuple(getattr(getattr(mix, name, None), "shape", ("no tensor",)))
        if shape != (n,):
            raise InputError(f"mix.{name} must have shape ({n},) for {n} anchors; got {shape}")


def _by_class(k: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """For each key, the sum of the keys of its class, (N, D), and their number, (N,)."""
    # Number a class by the position of its first label in sorted order: no tensor size depends on the data.
    labels = class_labels(labels, len(k))
    index = torch.searchsorted(labels.sort().values, labels)
    sums = torch.zeros_like(k).index_add(0, index, k)
    counts = torch.zeros_like(k[:, 0]).index_add(0, index, torch.ones_like(k[:, 0]))
    return sums[index], counts[index]


def _mean_positive(sums: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Mean of the positives, zero if there are none, and whether there are any (1 or 0)."""
    has_positives = (counts > 0).to(sums)
    return has_positives[:, None] * sums / counts.clamp(min=1)[:, None], has_positives


def _normalize(x: Tensor, temperature: float = 1.0) -> Tensor:
    """Scale embeddings to length 1 / temperature."""
    if not temperature > 0:
        raise InputError(f"temperature must be above 0; got {temperature}")
    unit = F.normalize(_to_full_precision(x), dim=1, eps=EPS)
    return unit if isinstance(temperature, float | int) and temperature == 1 else unit / temperature


def _to_full_precision(x: Tensor) -> Tensor:
    return x if x.dtype in FULL_PRECISION else x.to(torch.promote_types(x.dtype, torch.float32))


def _autocast_disabled(x: Tensor) -> AbstractContextManager[object]:
    device = x.device.type
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()
