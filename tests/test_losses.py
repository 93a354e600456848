"""Every loss compared with a plain loop that reads like the paper's equation, and edge cases.

Unlike the library, the reference functions build the dense virtual label v of each anchor: one weight per key. `offset`
is the index of the first anchor's key, for anchors that are one rank's part of the batch.
"""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from imix import InputError, losses
from imix.mix import Mix

properties = settings(derandomize=True, deadline=None, max_examples=25)
Rows = list[list[float]]

TAU = 0.2


# The equations of the paper


def s(f: list[float], g: list[float]) -> float:
    """Inner product of the two L2-normalized vectors."""
    return sum(a * b for a, b in zip(f, g, strict=True)) / (math.hypot(*f) * math.hypot(*g))


def one_hot(index: int, length: int) -> list[float]:
    return [1.0 if n == index else 0.0 for n in range(length)]


def blend(lam: float, v_i: list[float], v_j: list[float]) -> list[float]:
    """lam * v_i + (1 - lam) * v_j."""
    return [lam * a + (1 - lam) * b for a, b in zip(v_i, v_j, strict=True)]


def mixed_labels(v: Rows, mix: Mix | None) -> Rows:
    if mix is None:
        return v
    return [
        blend(lam, v[i], v[j]) for i, (j, lam) in enumerate(zip(mix.partner.tolist(), mix.lam.tolist(), strict=True))
    ]


def cross_entropy(f: list[float], keys: Rows, v: list[float], tau: float, excluded: int | None = None) -> float:
    """-sum_n v_n log( exp(s(f, f_n) / tau) / sum_{k != excluded} exp(s(f, f_k) / tau) )."""
    denominator = sum(math.exp(s(f, keys[k]) / tau) for k in range(len(keys)) if k != excluded)
    total = 0.0
    for n in range(len(keys)):
        if v[n] > 0:
            total -= v[n] * math.log(math.exp(s(f, keys[n]) / tau) / denominator)
    return total


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def npair_equation(q: Rows, k: Rows, mix: Mix | None, tau: float, offset: int = 0) -> float:
    """Eq. (5) and (6): v[i][i] = 1."""
    v = mixed_labels([one_hot(offset + i, len(k)) for i in range(len(q))], mix)
    return mean([cross_entropy(q[i], k, v[i], tau) for i in range(len(q))])


def simclr_equation(anchors: Rows, keys: Rows, mix: Mix | None, tau: float, offset: int = 0) -> float:
    """Eq. (A.1) and (A.2): v[i][(N + i) mod 2N] = 1, and no column k = i."""
    n = len(anchors)
    v = mixed_labels([one_hot(offset + (i + n // 2) % n, len(keys)) for i in range(n)], mix)
    return mean([cross_entropy(anchors[i], keys, v[i], tau, excluded=offset + i) for i in range(n)])


def moco_equation(q: Rows, k: Rows, queue: Rows, mix: Mix | None, tau: float, offset: int = 0) -> float:
    """Eq. (7) with K + 1 columns for each anchor; with mix, Eq. (8) and (9) with N + K columns."""
    if mix is None:
        columns = [[k[offset + i], *queue] for i in range(len(q))]
        return mean([cross_entropy(q[i], columns[i], one_hot(0, 1 + len(queue)), tau) for i in range(len(q))])
    v = mixed_labels([one_hot(offset + i, len(k) + len(queue)) for i in range(len(q))], mix)
    return mean([cross_entropy(q[i], k + queue, v[i], tau) for i in range(len(q))])


def byol_equation(p: Rows, k: Rows, mix: Mix | None) -> float:
    """Eq. (11) and (12), the right-hand side: 2 - 2 g . F v, with F the normalized keys."""
    v = mixed_labels([one_hot(i, len(k)) for i in range(len(p))], mix)
    return mean([2 - 2 * sum(v[i][n] * s(p[i], k[n]) for n in range(len(k))) for i in range(len(p))])


def over_positives(is_positive: list[bool]) -> list[float]:
    """1 / (number of positives) for each positive; all zero if there are none."""
    return [float(positive) / max(1, sum(is_positive)) for positive in is_positive]


def supclr_equation(anchors: Rows, keys: Rows, y: list[int], mix: Mix | None, tau: float, offset: int = 0) -> float:
    """Eq. (A.3) and (A.4): v[i][n] = 1 / (number of positives) if y_n = y_i and n != i, for each side of a mix.

    Anchor i is not a positive of its partner either, because it has no column.
    """
    losses_ = []
    for i in range(len(anchors)):
        self_index = offset + i
        v = over_positives([y[n] == y[self_index] and n != self_index for n in range(len(keys))])
        if mix is not None:
            j = offset + mix.partner[i].item()
            v_j = over_positives([y[n] == y[j] and n != j and n != self_index for n in range(len(keys))])
            v = blend(mix.lam[i].item(), v, v_j)
        losses_.append(cross_entropy(anchors[i], keys, v, tau, excluded=self_index))
    return mean(losses_)


def supnpair_equation(q: Rows, k: Rows, y: list[int], mix: Mix | None, tau: float, offset: int = 0) -> float:
    """Eq. (A.5) and (A.6): v[i][n] = 1 / N_y if y_n = y_i, including the second view of the anchor."""
    v = [over_positives([y[n] == y[offset + i] for n in range(len(k))]) for i in range(len(q))]
    v = mixed_labels(v, mix)
    return mean([cross_entropy(q[i], k, v[i], tau) for i in range(len(q))])


# A common interface to the library and to the equations


LOSSES = ("npair", "simclr", "moco", "byol", "supclr", "supnpair")
GATHERED = (
    "npair",
    "simclr",
    "moco",
    "supclr",
    "supnpair",
)  # losses that take the anchors of one rank and the keys of all


def default_labels(rows: int) -> Tensor:
    """Labels of both views, concatenated: two classes, the first one larger if there are enough samples."""
    y = (torch.arange(max(1, rows // 2)) % 3 == 1).long()
    return torch.cat([y, y])[:rows]


def default_queue(dimensions: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(5, dimensions, generator=torch.Generator().manual_seed(9), dtype=torch.float64).to(dtype)


def library(
    name: str,
    q: Tensor,
    k: Tensor,
    mix: Mix | None = None,
    *,
    labels: Tensor | None = None,
    queue: Tensor | None = None,
    tau: float = TAU,
    offset: int = 0,
) -> Tensor:
    labels = default_labels(len(k)) if labels is None else labels
    queue = default_queue(k.shape[1], k.dtype) if queue is None else queue
    match name:
        case "npair":
            return losses.npair(q, k, mix, temperature=tau, offset=offset)
        case "simclr":
            return losses.simclr(q, k, mix, temperature=tau, offset=offset)
        case "moco":
            return losses.moco(q, k, queue, mix, temperature=tau, offset=offset)
        case "byol":
            return losses.byol(p=q, k=k, mix=mix)
        case "supclr":
            return losses.supclr(q, k, labels, mix, temperature=tau, offset=offset)
        case "supnpair":
            return losses.supnpair(q, k, labels, mix, temperature=tau, offset=offset)
    raise AssertionError(name)


def equation(
    name: str,
    q: Tensor,
    k: Tensor,
    mix: Mix | None = None,
    *,
    labels: Tensor | None = None,
    queue: Tensor | None = None,
    tau: float = TAU,
    offset: int = 0,
) -> Tensor:
    y = (default_labels(len(k)) if labels is None else labels).tolist()
    memory = (default_queue(k.shape[1], k.dtype) if queue is None else queue).tolist()
    a, b = q.tolist(), k.tolist()
    value = {
        "npair": lambda: npair_equation(a, b, mix, tau, offset),
        "simclr": lambda: simclr_equation(a, b, mix, tau, offset),
        "moco": lambda: moco_equation(a, b, memory, mix, tau, offset),
        "byol": lambda: byol_equation(a, b, mix),
        "supclr": lambda: supclr_equation(a, b, y, mix, tau, offset),
        "supnpair": lambda: supnpair_equation(a, b, y, mix, tau, offset),
    }[name]()
    return torch.tensor(value, dtype=torch.float64)


def embeddings(
    rows: int, dimensions: int = 4, seed: int = 0, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    """Anchors and keys with very different norms."""
    generator = torch.Generator().manual_seed(seed)
    directions = torch.randn(2, rows, dimensions, generator=generator, dtype=torch.float64)
    norms = torch.logspace(-1, 1, rows, dtype=torch.float64)[:, None]
    return (directions[0] * norms).to(dtype), (directions[1] * norms.flip(0)).to(dtype)


def random_mix(rows: int, seed: int = 0) -> Mix:
    generator = torch.Generator().manual_seed(seed + 1000)
    partner = torch.randperm(rows, generator=generator)
    return Mix(partner, torch.rand(rows, generator=generator, dtype=torch.float64))


def constant_mix(partner: Tensor, lam: float) -> Mix:
    return Mix(partner, torch.full((len(partner),), lam, dtype=torch.float64))


def assert_exact(actual: Tensor, expected: Tensor | float) -> None:
    """Equal up to float64 rounding."""
    expected = torch.as_tensor(expected, dtype=torch.float64)
    assert_close(actual, expected, rtol=1e-12, atol=1e-12)


def gradients(loss: Callable[[Tensor, Tensor], Tensor], q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Value, gradient of the anchors, gradient of the keys."""
    q, k = q.clone().requires_grad_(), k.clone().requires_grad_()
    value = loss(q, k)
    value.backward()
    return value.detach(), q.grad, k.grad


def assert_finite(name: str, q: Tensor, k: Tensor, mix: Mix | None, **options: object) -> Tensor:
    value, *grads = gradients(lambda q, k: library(name, q, k, mix, **options), q, k)
    assert value.isfinite()
    for grad in grads:
        assert grad is not None
        assert grad.isfinite().all()
    return value


all_losses = pytest.mark.parametrize("name", LOSSES)
mixed_or_not = pytest.mark.parametrize("mixed", [False, True], ids=["clean", "mixed"])


# The equations


@all_losses
@mixed_or_not
@properties
@given(pairs=st.integers(1, 5), dimensions=st.integers(1, 6), tau=st.sampled_from([0.07, 0.2, 1.0]), seed=st.integers())
def test_loss_matches_its_equation(name: str, mixed: bool, pairs: int, dimensions: int, tau: float, seed: int) -> None:
    seed %= 2**31
    q, k = embeddings(2 * pairs, dimensions, seed)
    mix = random_mix(2 * pairs, seed) if mixed else None
    labels = torch.randint(-1, 3, (2 * pairs,), generator=torch.Generator().manual_seed(seed))
    options = {"labels": labels, "tau": tau}
    assert_exact(library(name, q, k, mix, **options), equation(name, q, k, mix, **options))


@pytest.mark.parametrize("name", ["npair", "moco", "byol", "supnpair"])
@mixed_or_not
@pytest.mark.parametrize("rows", [1, 3, 7])
def test_loss_of_odd_batch_sizes_matches_its_equation(name: str, mixed: bool, rows: int) -> None:
    q, k = embeddings(rows)
    mix = random_mix(rows) if mixed else None
    labels = torch.arange(rows) % 2
    assert_exact(library(name, q, k, mix, labels=labels), equation(name, q, k, mix, labels=labels))


@all_losses
@mixed_or_not
def test_loss_in_float32_matches_its_equation(name: str, mixed: bool) -> None:
    q, k = embeddings(8, dtype=torch.float32)
    mix = random_mix(8) if mixed else None
    value = library(name, q, k, mix)
    assert value.dtype == torch.float32
    assert_close(value.double(), equation(name, q, k, mix), rtol=1e-5, atol=1e-6)


@mixed_or_not
def test_simclr_accepts_the_same_tensor_as_anchors_and_keys(mixed: bool) -> None:
    views, _ = embeddings(8)
    mix = random_mix(8) if mixed else None
    assert_exact(losses.simclr(views, views, mix, temperature=TAU), equation("simclr", views, views, mix))


@all_losses
@mixed_or_not
def test_loss_is_a_scalar_and_does_not_depend_on_embedding_norms(name: str, mixed: bool) -> None:
    q, k = embeddings(6)
    mix = random_mix(6) if mixed else None
    scale = torch.linspace(0.1, 30, 6, dtype=torch.float64)[:, None]
    value = library(name, q, k, mix)
    assert value.shape == ()
    assert_exact(library(name, scale * q, k / scale, mix), value)


@all_losses
@mixed_or_not
def test_gradient_matches_finite_differences(name: str, mixed: bool) -> None:
    q, k = (x.requires_grad_() for x in embeddings(6, dimensions=3))
    mix = random_mix(6) if mixed else None
    assert torch.autograd.gradcheck(lambda q, k: library(name, q, k, mix), (q, k))


@mixed_or_not
def test_gradient_of_the_queue_matches_finite_differences(mixed: bool) -> None:
    q, k = embeddings(4, dimensions=3)
    queue = default_queue(3).requires_grad_()
    mix = random_mix(4) if mixed else None
    assert torch.autograd.gradcheck(lambda queue: losses.moco(q, k, queue, mix, temperature=TAU), (queue,))


@pytest.mark.parametrize("labels", [[0, 0, 0, 0, 0, 0], [0, 1, 2, 3, 4, 5], [0, 1, 1, 2, 2, 2]])
@pytest.mark.parametrize("name", ["supclr", "supnpair"])
@mixed_or_not
def test_gradient_of_supervised_losses_matches_finite_differences(name: str, mixed: bool, labels: list[int]) -> None:
    q, k = (x.requires_grad_() for x in embeddings(6, dimensions=3))
    mix = random_mix(6) if mixed else None
    assert torch.autograd.gradcheck(lambda q, k: library(name, q, k, mix, labels=torch.tensor(labels)), (q, k))


# Appendix B: linear in the virtual label


@all_losses
@properties
@given(lam=st.floats(0, 1), seed=st.integers(0, 1000))
def test_constant_lam_interpolates_between_both_labels(name: str, lam: float, seed: int) -> None:
    q, k = embeddings(6, seed=seed)
    partner = random_mix(6, seed).partner
    unmixed, swapped, mixed = (library(name, q, k, constant_mix(partner, weight)) for weight in (1.0, 0.0, lam))
    assert_exact(mixed, lam * unmixed + (1 - lam) * swapped)


@all_losses
@properties
@given(seed=st.integers(0, 1000))
def test_loss_is_linear_in_the_virtual_label_of_each_anchor(name: str, seed: int) -> None:
    rows = 6
    q, k = embeddings(rows, seed=seed)
    partner, lam = random_mix(rows, seed)
    swapped = library(name, q, k, constant_mix(partner, 0.0))
    expected = swapped
    for i in range(rows):
        only_i = torch.eye(rows, dtype=torch.float64)[i]  # anchor i keeps its label, the others get their partner's
        expected = expected + lam[i] * (library(name, q, k, Mix(partner, only_i)) - swapped)
    assert_exact(library(name, q, k, Mix(partner, lam)), expected)


@all_losses
def test_lam_of_zero_uses_the_label_of_the_partner(name: str) -> None:
    rows = 6
    q, k = embeddings(rows)
    partner = torch.tensor([1, 2, 0, 4, 5, 3])
    options = {"labels": torch.tensor([0, 1, 2, 0, 1, 2])}
    swapped = library(name, q, k, constant_mix(partner, 0.0), **options)
    if name in ("simclr", "supclr"):  # each anchor excludes its own key, so permuting the keys is not equivalent
        assert_exact(swapped, equation(name, q, k, constant_mix(partner, 0.0), **options))
    else:
        unmixed = Mix(torch.arange(rows), torch.ones(rows, dtype=torch.float64))
        options = {"labels": options["labels"][partner]}
        assert_exact(swapped, library(name, q, k[partner], unmixed, **options))
    assert (swapped - library(name, q, k, constant_mix(partner, 1.0))).abs() > 1e-3


@pytest.mark.parametrize("name", [name for name in LOSSES if name != "moco"])
@pytest.mark.parametrize("partner", ["anyone", "self"])
def test_trivial_mix_equals_no_mix(name: str, partner: str) -> None:
    q, k = embeddings(6)
    mix = random_mix(6)
    mix = constant_mix(mix.partner, 1.0) if partner == "anyone" else Mix(torch.arange(6), mix.lam)
    assert_exact(library(name, q, k, mix), library(name, q, k))


# Edge cases


def partners(rows: int) -> dict[str, Tensor]:
    index = torch.arange(rows)
    return {"self": index, "other view": index.roll(-(rows // 2)), "next": index.roll(1), "always 0": index * 0}


LABELS = {
    "one class": [3, 3, 3, 3, 3, 3],
    "one class per sample": [0, 1, 2, 3, 4, 5],
    "pairs": [0, 1, 2, 0, 1, 2],
    "one class of size 1": [0, 1, 1, 1, 1, 1],
}


@all_losses
@pytest.mark.parametrize("lam", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("partner", partners(6))
@pytest.mark.parametrize("tau", [0.01, 0.2])
def test_loss_is_finite_for_any_partner(name: str, lam: float, partner: str, tau: float) -> None:
    q, k = embeddings(6)
    mix = constant_mix(partners(6)[partner], lam)
    for labels in map(torch.tensor, LABELS.values()):
        value = assert_finite(name, q, k, mix, tau=tau, labels=labels)
        assert_exact(value, equation(name, q, k, mix, tau=tau, labels=labels))
        assert_finite(name, q.float(), k.float(), mix, tau=tau, labels=labels)


@all_losses
@mixed_or_not
def test_loss_of_a_single_sample_is_finite(name: str, mixed: bool) -> None:
    rows = 2 if name in ("simclr", "supclr") else 1  # both views of one sample
    q, k = embeddings(rows)
    mix = constant_mix(torch.arange(rows).flip(0), 0.3) if mixed else None
    value = assert_finite(name, q, k, mix)
    assert_exact(value, equation(name, q, k, mix))
    if name in ("npair", "supnpair") or (name in ("simclr", "supclr") and not mixed):
        assert_exact(value, 0.0)  # the positive is the only key


@all_losses
@mixed_or_not
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("tau", [0.01, 0.2])
def test_loss_of_collapsed_embeddings_is_the_log_of_the_number_of_keys(
    name: str, mixed: bool, dtype: torch.dtype, tau: float
) -> None:
    rows, dimensions, memory = 6, 4, 5
    same = torch.tensor([3.0, 1.0, -2.0, 0.5], dtype=dtype)
    q, k, queue = (same.expand(n, dimensions).contiguous() for n in (rows, rows, memory))
    mix = random_mix(rows) if mixed else None
    columns = {
        "npair": rows,
        "simclr": rows - 1,
        "moco": rows + memory if mixed else 1 + memory,
        "byol": 1,
        "supclr": rows - 1,
        "supnpair": rows,
    }
    value = assert_finite(name, q, k, mix, queue=queue, tau=tau, labels=torch.tensor([0, 0, 0, 1, 1, 1]))
    rounding = 8 * torch.finfo(dtype).eps / tau  # the logits are 1 / tau, and cancel
    assert value.item() == pytest.approx(math.log(columns[name]), abs=rounding)


@all_losses
@mixed_or_not
def test_loss_of_opposite_embeddings_at_a_small_temperature_is_finite(name: str, mixed: bool) -> None:
    q = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    assert_finite(name, q, -q, random_mix(6) if mixed else None, tau=0.01)


@all_losses
@mixed_or_not
@pytest.mark.parametrize("which", ["anchors", "keys", "both"])
def test_loss_of_zero_embeddings_is_finite(name: str, mixed: bool, which: str) -> None:
    q, k = embeddings(6, dtype=torch.float32)
    q, k = q * (which == "keys"), k * (which == "anchors")
    assert library(name, q, k, random_mix(6) if mixed else None).isfinite()


@all_losses
@mixed_or_not
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_inputs_are_computed_in_float32(name: str, mixed: bool, dtype: torch.dtype) -> None:
    q, k = embeddings(6, dtype=dtype)
    mix = random_mix(6) if mixed else None
    value, grad_q, grad_k = gradients(lambda q, k: library(name, q, k, mix), q, k)
    queue = default_queue(4, dtype).float()
    expected, full_q, full_k = gradients(lambda q, k: library(name, q, k, mix, queue=queue), q.float(), k.float())
    assert value.dtype == torch.float32
    assert_close(value, expected)
    assert_close(grad_q, full_q.to(dtype))
    assert_close(grad_k, full_k.to(dtype))


@all_losses
@mixed_or_not
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_loss_is_computed_in_float32_under_autocast(name: str, mixed: bool, dtype: torch.dtype) -> None:
    q, k = embeddings(6, dtype=dtype)
    mix = random_mix(6) if mixed else None

    def inside(q: Tensor, k: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return library(name, q, k, mix)

    value, *grads = gradients(inside, q, k)
    expected, *full_grads = gradients(lambda q, k: library(name, q, k, mix), q, k)
    assert value.dtype == torch.float32
    assert_close(value, expected)
    assert_close(grads, full_grads)


# MoCo


def test_moco_without_mix_has_no_in_batch_negatives() -> None:
    q, k = embeddings(6)
    other_keys = torch.cat([k[:1], -k[1:]])
    assert_exact(library("moco", q[:1], other_keys), library("moco", q[:1], k))
    separate = torch.stack([library("moco", q[i : i + 1], k[i : i + 1]) for i in range(6)])
    assert_exact(library("moco", q, k), separate.mean())


def test_moco_with_mix_has_in_batch_negatives() -> None:
    q, k = embeddings(6)
    queue, mix = default_queue(4), random_mix(6)
    assert_exact(
        losses.moco(q, k, queue, mix, temperature=TAU),
        losses.npair(q, torch.cat([k, queue]), mix, temperature=TAU),
    )
    unmixed = constant_mix(mix.partner, 1.0)
    with_in_batch = losses.moco(q, k, queue, unmixed, temperature=TAU)
    assert with_in_batch > losses.moco(q, k, queue, temperature=TAU) + 1e-3


@mixed_or_not
def test_moco_with_an_empty_queue_is_finite(mixed: bool) -> None:
    q, k = embeddings(4)
    mix = random_mix(4) if mixed else None
    value = assert_finite("moco", q, k, mix, queue=torch.zeros(0, 4, dtype=torch.float64))
    assert_exact(value, library("npair", q, k, mix) if mixed else 0.0)


# BYOL


@mixed_or_not
def test_byol_is_the_squared_distance_plus_the_constant_of_appendix_b(mixed: bool) -> None:
    p, k = embeddings(6)
    mix = random_mix(6) if mixed else None
    unit = torch.nn.functional.normalize
    v = torch.tensor(mixed_labels(torch.eye(6, dtype=torch.float64).tolist(), mix), dtype=torch.float64)
    target = v @ unit(k)
    constant = (target.square().sum(1) - 1).mean()

    def squared_distance(p: Tensor, _: Tensor) -> Tensor:
        return (unit(p) - target).square().sum(1).mean()

    value, grad, _ = gradients(lambda p, k: losses.byol(p, k, mix), p, k)
    distance, distance_grad, _ = gradients(lambda p, k: squared_distance(p, k) + 0 * k.sum(), p, k)
    assert_exact(value, distance - constant)
    assert_close(grad, distance_grad, rtol=1e-12, atol=1e-12)


def test_mixed_byol_is_the_mean_squared_distance_to_both_targets() -> None:
    p, k = embeddings(6)
    mix = random_mix(6)
    p_bar, k_bar = torch.nn.functional.normalize(p), torch.nn.functional.normalize(k)
    to_own = (p_bar - k_bar).square().sum(1)
    to_partner = (p_bar - k_bar[mix.partner]).square().sum(1)
    assert_exact(losses.byol(p, k, mix), (mix.lam * to_own + (1 - mix.lam) * to_partner).mean())


# SimCLR


def test_simclr_is_finite_if_the_positive_of_the_partner_is_the_anchor() -> None:
    q, k = embeddings(2)
    value = assert_finite("simclr", q, k, constant_mix(torch.tensor([1, 0]), 0.0))
    # The only key is the other view; the partner's positive is the anchor's own key, which is excluded.
    a, b = q.tolist(), k.tolist()
    assert_exact(value, mean([(s(a[i], b[1 - i]) - s(a[i], b[i])) / TAU for i in range(2)]))


# SupCLR and SupNPair


def test_supclr_has_the_mean_outside_the_log() -> None:
    q, k = embeddings(8)
    y = torch.tensor([0, 0, 0, 1, 0, 0, 0, 1])
    a, b = q.tolist(), k.tolist()
    inside = []
    for i in range(8):
        denominator = sum(math.exp(s(a[i], b[n]) / TAU) for n in range(8) if n != i)
        positives = [n for n in range(8) if y[n] == y[i] and n != i]
        inside.append(-math.log(mean([math.exp(s(a[i], b[n]) / TAU) / denominator for n in positives])))
    outside = losses.supclr(q, k, y, temperature=TAU)
    assert_exact(outside, equation("supclr", q, k, labels=y))
    assert outside > mean(inside) + 0.1  # Jensen


def test_supclr_does_not_count_the_anchor_as_a_positive_of_its_partner() -> None:
    q, k = embeddings(3)
    y = torch.zeros(3, dtype=torch.long)
    mix = Mix(torch.tensor([1, 2, 0]), torch.zeros(3, dtype=torch.float64))
    # Of three samples of one class, the positives of the partner are the anchor, which is dropped, and the third one.
    a, b = q.tolist(), k.tolist()
    terms = [cross_entropy(a[i], b, one_hot(3 - i - mix.partner[i].item(), 3), TAU, excluded=i) for i in range(3)]
    assert_exact(losses.supclr(q, k, y, mix, temperature=TAU), mean(terms))


def test_supclr_partner_whose_only_positive_is_the_anchor_contributes_nothing() -> None:
    q, k = embeddings(4)
    y, other_view = torch.tensor([0, 1, 0, 1]), torch.tensor([2, 3, 0, 1])
    assert_exact(losses.supclr(q, k, y, constant_mix(other_view, 0.0), temperature=TAU), 0.0)
    plain = losses.supclr(q, k, y, temperature=TAU)
    assert_exact(losses.supclr(q, k, y, constant_mix(other_view, 0.3), temperature=TAU), 0.3 * plain)


def test_supclr_anchor_without_positives_adds_zero_to_the_mean() -> None:
    q, k = embeddings(4)
    y = torch.tensor([0, 1, 1, 1])
    terms = [
        cross_entropy(q[i].tolist(), k.tolist(), over_positives([n not in (0, i) for n in range(4)]), TAU, excluded=i)
        for i in (1, 2, 3)
    ]
    assert_exact(losses.supclr(q, k, y, temperature=TAU), sum(terms) / 4)
    one_class_per_sample = torch.arange(4)
    assert_exact(losses.supclr(q, k, one_class_per_sample, random_mix(4), temperature=TAU), 0.0)


@mixed_or_not
def test_supclr_with_a_class_per_sample_is_simclr(mixed: bool) -> None:
    q, k = embeddings(6)
    y = torch.tensor([0, 1, 2, 0, 1, 2])
    # No partner is the other view of its anchor: there, supclr drops a term that simclr keeps.
    mix = Mix(torch.tensor([1, 2, 0, 5, 3, 4]), random_mix(6).lam) if mixed else None
    assert_exact(losses.supclr(q, k, y, mix, temperature=TAU), losses.simclr(q, k, mix, temperature=TAU))


@mixed_or_not
def test_supnpair_with_a_class_per_sample_is_npair(mixed: bool) -> None:
    q, k = embeddings(5)
    mix = random_mix(5) if mixed else None
    y = torch.tensor([4, 0, 3, 9, -2])
    assert_exact(losses.supnpair(q, k, y, mix, temperature=TAU), losses.npair(q, k, mix, temperature=TAU))


def test_supnpair_counts_the_second_view_of_the_anchor_as_a_positive() -> None:
    q, k = embeddings(3)
    y = torch.tensor([0, 0, 1])
    v = [[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1]]
    terms = [cross_entropy(q[i].tolist(), k.tolist(), v[i], TAU) for i in range(3)]
    assert_exact(losses.supnpair(q, k, y, temperature=TAU), mean(terms))


@pytest.mark.parametrize("name", ["supclr", "supnpair"])
def test_each_side_of_a_mixed_label_is_normalized_by_its_own_number_of_positives(name: str) -> None:
    q, k = embeddings(6)
    y = torch.tensor([0, 1, 1, 0, 1, 1])  # N_0 = 2 and N_1 = 4
    mix = Mix(torch.tensor([1, 0, 5, 4, 3, 2]), random_mix(6).lam)
    assert_exact(library(name, q, k, mix, labels=y), equation(name, q, k, mix, labels=y))


@pytest.mark.parametrize("name", ["supclr", "supnpair"])
@pytest.mark.parametrize("values", [[0, 1, 2], [2, 0, 1], [-7, 10**12, 5]])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float64])
def test_loss_does_not_depend_on_the_values_of_class_labels(name: str, values: list[int], dtype: torch.dtype) -> None:
    if dtype == torch.int32:
        values = [value % 2**30 for value in values]
    q, k = embeddings(6)
    y, mix = torch.tensor([0, 1, 2, 0, 1, 1]), random_mix(6)
    renamed = torch.tensor(values, dtype=dtype)[y]
    assert_exact(library(name, q, k, mix, labels=renamed), library(name, q, k, mix, labels=y))


# Anchors of one rank and keys of all ranks


@pytest.mark.parametrize("name", GATHERED)
@mixed_or_not
@properties
@given(pairs=st.integers(1, 3), seed=st.integers(0, 1000))
def test_losses_of_ranks_average_to_the_global_loss(name: str, mixed: bool, pairs: int, seed: int) -> None:
    share = 2 * pairs  # rows per rank, with two ranks; for simclr and supclr, both views of `pairs` samples
    q, k = embeddings(2 * share, seed=seed)
    labels = torch.randint(0, 3, (2 * share,), generator=torch.Generator().manual_seed(seed))
    mixes = [random_mix(share, seed + rank) if mixed else None for rank in (0, 1)]

    def on_rank(rank: int) -> tuple[Tensor, Tensor]:
        local = slice(rank * share, (rank + 1) * share)
        options = {"labels": labels, "offset": rank * share}
        return tuple(side(name, q[local], k, mixes[rank], **options) for side in (library, equation))

    ranks = [on_rank(rank) for rank in (0, 1)]
    for actual, expected in ranks:
        assert_exact(actual, expected)

    # One process has view 1 of all samples, then view 2; the ranks have [v1_r0, v2_r0, v1_r1, v2_r1].
    order = torch.arange(2 * share)
    if name in ("simclr", "supclr"):
        order = order.view(2, 2, pairs).transpose(0, 1).flatten()
    mix = None
    if mixed:
        partner = torch.cat([mixes[0].partner, share + mixes[1].partner])
        position = order.argsort()
        mix = Mix(position[partner[order]], torch.cat([mixes[0].lam, mixes[1].lam])[order])
    expected = library(name, q[order], k[order], mix, labels=labels[order])
    assert_exact((ranks[0][0] + ranks[1][0]) / 2, expected)


@pytest.mark.parametrize("name", GATHERED)
def test_gradients_of_ranks_sum_to_the_gradients_of_the_global_loss(name: str) -> None:
    share, rows = 4, 8
    q, k = embeddings(rows)
    labels = torch.tensor([0, 1, 0, 1, 2, 0, 2, 0])
    mixes = [random_mix(share, rank) for rank in (0, 1)]
    order = torch.tensor([0, 1, 4, 5, 2, 3, 6, 7]) if name in ("simclr", "supclr") else torch.arange(rows)
    partner = torch.cat([mixes[0].partner, share + mixes[1].partner])
    mix = Mix(order.argsort()[partner[order]], torch.cat([mixes[0].lam, mixes[1].lam])[order])

    def loss_of_ranks(q: Tensor, k: Tensor) -> Tensor:
        parts = [
            library(name, q[rank * share : (rank + 1) * share], k, mixes[rank], labels=labels, offset=rank * share)
            for rank in (0, 1)
        ]
        return sum(parts) / 2

    def global_loss(q: Tensor, k: Tensor) -> Tensor:
        return library(name, q[order], k[order], mix, labels=labels[order])

    for actual, expected in zip(gradients(loss_of_ranks, q, k), gradients(global_loss, q, k), strict=True):
        assert_close(actual, expected, rtol=1e-12, atol=1e-12)


def test_gradients_of_zero_embeddings_are_bounded() -> None:
    x = torch.zeros(2, 4, requires_grad=True)
    losses.byol(x, torch.randn(2, 4)).backward()
    assert x.grad.abs().max() < 1e7


def test_invalid_shapes_and_temperatures_are_rejected() -> None:
    q = torch.randn(6, 4)
    with pytest.raises(InputError, match="6 anchors with offset 0 need at least 6 keys; got 1"):
        losses.npair(q, q[:1], temperature=0.1)
    with pytest.raises(InputError, match="odd number, 5"):
        losses.simclr(q[:5], q[:5], temperature=0.1)
    with pytest.raises(InputError, match="temperature must be above 0; got 0"):
        losses.npair(q, q, temperature=0)


def test_labels_may_be_boolean() -> None:
    q, k, labels = torch.randn(6, 4), torch.randn(6, 4), torch.tensor([True, False] * 3)
    assert losses.supnpair(q, k, labels, temperature=0.1) == losses.supnpair(q, k, labels.long(), temperature=0.1)


@pytest.mark.parametrize("lam", [torch.rand(8, 1), torch.rand(4), torch.tensor(0.5), 0.5])
def test_virtual_labels_of_the_wrong_shape_are_rejected(lam: Tensor | float) -> None:
    q, k, labels = torch.randn(8, 8), torch.randn(8, 8), torch.arange(8) % 2
    mix = Mix(torch.randperm(8), lam)
    for loss in (
        lambda: losses.npair(q, k, mix, temperature=0.2),
        lambda: losses.moco(q, k, k, mix, temperature=0.2),
        lambda: losses.simclr(q, k, mix, temperature=0.2),
        lambda: losses.byol(q, k, mix),
        lambda: losses.supclr(q, k, labels, mix, temperature=0.2),
        lambda: losses.supnpair(q, k, labels, mix, temperature=0.2),
    ):
        with pytest.raises(InputError, match=r"mix\.lam must have shape \(8,\) for 8 anchors"):
            loss()


def test_learnable_temperature_has_a_gradient_at_one() -> None:
    temperature = torch.tensor(1.0, requires_grad=True)
    losses.npair(torch.randn(8, 4), torch.randn(8, 4), temperature=temperature).backward()
    assert temperature.grad is not None and temperature.grad != 0
