"""Mixing operators compared with explicit loops over samples, for any shape, dtype and batch structure."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from imix.batch import Batch, fields
from imix.errors import InputError
from imix.mix import CutMix, InputMix, Mix, MixUp, no_mix

properties = settings(derandomize=True, deadline=None, max_examples=50)

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
seeds = st.integers(0, 2**32 - 1)
batch_sizes = st.integers(1, 9)
sample_shapes = st.lists(st.integers(1, 4), max_size=4).map(tuple)
booleans = st.booleans()
alphas = st.sampled_from([0.1, 0.5, 1.0, 2.0, 8.0])


@dataclass(frozen=True)
class Field:
    """Shape (without the sample axis) and dtype of a field."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    def rows(self, n: int) -> Tensor:
        return torch.randn(n, *self.shape, dtype=torch.float64).to(self.dtype)


structures = st.recursive(
    st.builds(Field, sample_shapes, st.sampled_from(FLOATS)),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3)
        | st.lists(inner, min_size=1, max_size=3).map(tuple)
        | st.dictionaries(st.sampled_from("abcd"), inner, min_size=1, max_size=3)
    ),
    max_leaves=5,
)


def build(structure: object, n: int) -> Batch:
    match structure:
        case Field():
            return structure.rows(n)
        case dict():
            return {key: build(part, n) for key, part in structure.items()}
        case _:
            return type(structure)(build(part, n) for part in structure)


def layout(batch: Batch) -> object:
    """The structure of a batch with the shape and dtype of each field."""
    if isinstance(batch, Tensor):
        return tuple(batch.shape), batch.dtype
    if isinstance(batch, dict):
        return {key: layout(part) for key, part in batch.items()}
    return type(batch)(layout(part) for part in batch)


def mix_with_loop(x: Tensor, mix: Mix) -> Tensor:
    rows = []
    for i in range(len(x)):
        lam, partner = mix.lam[i], mix.partner[i].item()
        dtype = torch.promote_types(x.dtype, lam.dtype)
        rows.append(lam * x[i].to(dtype) + (1 - lam) * x[partner].to(dtype))
    return torch.stack(rows).to(x.dtype)


def distinct(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
    """A tensor whose values are all different, so that each mixed value shows where it came from."""
    return torch.arange(math.prod(shape)).view(shape).to(dtype)


def pasted_box(x: Tensor, mixed: Tensor, mix: Mix, i: int, axes: int) -> Tensor:
    """Mask of the cells of sample i that came from its partner; the same for all channels."""
    original, partner = x[i], x[mix.partner[i]]
    pasted = mixed[i] == partner
    assert torch.equal(mixed[i], torch.where(pasted, partner, original))  # same positions, no other values
    channels = pasted.flatten(0, -axes - 1)
    assert (channels == channels[0]).all()
    return channels[0]


def is_interval(mask: Tensor) -> bool:
    indices = mask.nonzero().flatten().tolist()
    return not indices or indices == list(range(indices[0], indices[-1] + 1))


def is_box(cells: Tensor) -> bool:
    if cells.dim() == 1:
        return is_interval(cells)
    rows, columns = cells.any(1), cells.any(0)
    return torch.equal(cells, rows[:, None] & columns[None]) and is_interval(rows) and is_interval(columns)


def assert_boxes_match_lam(x: Tensor, mixed: Tensor, mix: Mix, axes: int) -> None:
    for i in range(len(x)):
        if mix.partner[i] == i:
            assert torch.equal(mixed[i], x[i])
            continue
        cells = pasted_box(x, mixed, mix, i, axes)
        assert is_box(cells)
        assert mix.lam[i] == 1 - cells.sum().to(mix.lam) / cells.numel()


# All operators


OPERATORS: dict[str, Callable[[Batch], object]] = {
    "MixUp": MixUp(),
    "CutMix": CutMix(),
    "InputMix": InputMix(),
}


@pytest.mark.parametrize("name", OPERATORS)
@properties
@given(n=batch_sizes, seed=seeds)
def test_inputs_are_not_modified(name: str, n: int, seed: int) -> None:
    torch.manual_seed(seed)
    batch = {"a": torch.randn(n, 2, 4, 4), "b": [torch.randn(n, 1, 4, 4)]}
    before = [field.clone() for field in fields(batch)]
    OPERATORS[name](batch)
    for field, copy in zip(fields(batch), before, strict=True):
        assert torch.equal(field, copy)


@pytest.mark.parametrize("name", OPERATORS)
@properties
@given(seed=seeds)
def test_result_depends_only_on_the_seed(name: str, seed: int) -> None:
    x = torch.arange(32.0 * 64).view(32, 1, 8, 8)

    def mixed(seed: int) -> Tensor:
        torch.manual_seed(seed)
        result = OPERATORS[name](x)
        return result[0] if isinstance(result, tuple) else result

    assert torch.equal(mixed(seed), mixed(seed))
    assert not torch.equal(mixed(seed), mixed(seed + 1))


@pytest.mark.parametrize("operator", [MixUp, CutMix, InputMix])
@pytest.mark.parametrize("alpha", [0.0, -1.0, math.nan, math.inf, -math.inf])
def test_alpha_must_be_a_positive_number(operator: Callable[..., object], alpha: float) -> None:
    with pytest.raises(InputError, match=f"alpha must be a positive number; got alpha={alpha}"):
        operator(alpha=alpha)


@pytest.mark.parametrize("name", OPERATORS)
def test_fields_must_have_the_same_number_of_samples(name: str) -> None:
    with pytest.raises(InputError, match=r"same number of samples; got \[3, 2\]"):
        OPERATORS[name]((torch.zeros(3, 1, 4, 4), torch.zeros(2, 1, 4, 4)))


@pytest.mark.parametrize("operator", [MixUp(), InputMix()])
@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool])
def test_blending_rejects_integer_and_boolean_fields(operator: Callable[[Batch], object], dtype: torch.dtype) -> None:
    batch = {"continuous": torch.randn(4, 3), "category": torch.ones(4, 1).to(dtype)}
    with pytest.raises(InputError, match=f"{type(operator).__name__} .*floating point; got {dtype}"):
        operator(batch)


def test_no_mix_returns_the_same_batch_and_no_virtual_labels() -> None:
    batch = (torch.randn(3, 2), torch.arange(3))
    result, mix = no_mix(batch)
    assert result is batch
    assert mix is None


# MixUp


@properties
@given(
    n=batch_sizes, shape=sample_shapes, dtype=st.sampled_from(FLOATS), per_sample=booleans, fold=booleans, seed=seeds
)
def test_mixup_matches_a_plain_loop(
    n: int, shape: tuple[int, ...], dtype: torch.dtype, per_sample: bool, fold: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    x = Field(shape, dtype).rows(n)
    mixed, mix = MixUp(per_sample=per_sample, fold=fold)(x)
    assert mixed.shape == x.shape
    assert mixed.dtype == x.dtype
    assert torch.equal(mixed, mix_with_loop(x, mix))


@properties
@given(structure=structures, n=batch_sizes, seed=seeds)
def test_mixup_uses_the_same_partner_and_lam_for_all_fields(structure: object, n: int, seed: int) -> None:
    torch.manual_seed(seed)
    batch = build(structure, n)
    mixed, mix = MixUp()(batch)
    assert layout(mixed) == layout(batch)
    for x, y in zip(fields(batch), fields(mixed), strict=True):
        assert torch.equal(y, mix_with_loop(x, mix))


@properties
@given(n=batch_sizes, alpha=alphas, fold=booleans, seed=seeds)
def test_mixup_of_one_hot_rows_is_the_virtual_label(n: int, alpha: float, fold: bool, seed: int) -> None:
    torch.manual_seed(seed)
    mixed, mix = MixUp(alpha=alpha, fold=fold)(torch.eye(n, dtype=torch.float64))
    for i in range(n):
        v = torch.zeros(n, dtype=torch.float64)
        v[i] += mix.lam[i]
        v[mix.partner[i]] += 1 - mix.lam[i]
        assert torch.equal(mixed[i], v)


@pytest.mark.parametrize("operator", [MixUp, CutMix])
@properties
@given(n=batch_sizes, alpha=alphas, per_sample=booleans, fold=booleans, seed=seeds)
def test_partners_are_a_permutation_and_lam_is_within_bounds(
    operator: Callable[..., MixUp | CutMix], n: int, alpha: float, per_sample: bool, fold: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    _, mix = operator(alpha=alpha, per_sample=per_sample, fold=fold)(torch.randn(n, 1, 5, 5))
    assert mix.partner.dtype == torch.int64
    assert sorted(mix.partner.tolist()) == list(range(n))
    assert mix.lam.shape == (n,)
    assert mix.lam.is_floating_point()
    assert (mix.lam >= (0.5 if fold else 0.0)).all()
    assert (mix.lam <= 1).all()


@pytest.mark.parametrize(("dtype", "lam_dtype"), list(zip(FLOATS, [torch.float32] * 3 + [torch.float64], strict=True)))
def test_lam_is_float32_or_float64(dtype: torch.dtype, lam_dtype: torch.dtype) -> None:
    assert MixUp()(torch.ones(3, 2, dtype=dtype))[1].lam.dtype == lam_dtype


@pytest.mark.parametrize("operator", [MixUp(), CutMix()])
def test_every_partner_is_equally_likely(operator: MixUp | CutMix) -> None:
    torch.manual_seed(0)
    n, draws, x = 4, 2000, torch.zeros(4, 1, 2, 2)
    counts = torch.zeros(n, n)
    for _ in range(draws):
        counts[torch.arange(n), operator(x)[1].partner] += 1
    # Rows and columns of a permutation sum to one, so (n - 1)^2 of the n^2 counts are free.
    chi_squared = ((counts - draws / n) ** 2 / (draws / n)).sum().item() * (n - 1) / n
    assert stats.chi2.sf(chi_squared, (n - 1) ** 2) > 1e-3


def folded_beta_cdf(alpha: float) -> Callable[[float], float]:
    """Cumulative distribution function of max(lam, 1 - lam)."""
    beta = stats.beta(alpha, alpha)
    return lambda x: beta.cdf(x) - beta.cdf(1 - x)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_lam_is_beta_distributed(alpha: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    lam = MixUp(alpha=alpha, fold=False)(torch.zeros(20_000, 1, dtype=dtype))[1].lam.double().numpy()
    assert stats.kstest(lam, stats.beta(alpha, alpha).cdf).pvalue > 1e-3
    assert (stats.kstest(lam, "uniform").pvalue > 1e-3) == (alpha == 1)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0])
def test_folded_lam_is_the_larger_of_lam_and_its_complement(alpha: float) -> None:
    torch.manual_seed(0)
    lam = MixUp(alpha=alpha, fold=True)(torch.zeros(20_000, 1))[1].lam.double().numpy()
    assert stats.kstest(lam, folded_beta_cdf(alpha)).pvalue > 1e-3
    assert stats.kstest(lam, stats.beta(alpha, alpha).cdf).pvalue < 1e-6


@pytest.mark.parametrize("fold", [False, True])
def test_lam_per_batch_has_the_same_distribution(fold: bool) -> None:
    torch.manual_seed(0)
    operator, x = MixUp(alpha=2.0, per_sample=False, fold=fold), torch.zeros(3, 1)
    draws = torch.stack([operator(x)[1].lam for _ in range(2000)]).double()
    assert (draws == draws[:, :1]).all()
    assert stats.kstest(draws[:, 0].numpy(), folded_beta_cdf(2.0) if fold else stats.beta(2, 2).cdf).pvalue > 1e-3


def test_lam_is_drawn_for_every_sample() -> None:
    torch.manual_seed(0)
    assert len(MixUp()(torch.zeros(256, 1))[1].lam.unique()) > 250


def test_lam_is_independent_of_the_partner() -> None:
    torch.manual_seed(0)
    mix = MixUp()(torch.zeros(20_000, 1))[1]
    assert stats.pearsonr(mix.lam.numpy(), mix.lam[mix.partner].numpy()).pvalue > 1e-3
    assert stats.pearsonr(mix.lam.numpy(), mix.partner.numpy()).pvalue > 1e-3


# CutMix


sides = st.integers(1, 9)
channels = st.lists(st.integers(1, 3), min_size=1, max_size=2).map(tuple)


@properties
@given(n=batch_sizes, c=st.integers(1, 3), height=sides, width=sides, alpha=alphas, fold=booleans, seed=seeds)
def test_cutmix_of_images_pastes_a_box_of_area_one_minus_lam(
    n: int, c: int, height: int, width: int, alpha: float, fold: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    x = distinct(n, c, height, width)
    mixed, mix = CutMix(alpha=alpha, fold=fold)(x)
    assert_boxes_match_lam(x, mixed, mix, axes=2)


@properties
@given(n=batch_sizes, c=st.integers(1, 3), length=st.integers(1, 30), alpha=alphas, fold=booleans, seed=seeds)
def test_cutmix_of_sequences_pastes_an_interval(
    n: int, c: int, length: int, alpha: float, fold: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    x = distinct(n, c, length)
    mixed, mix = CutMix(alpha=alpha, fold=fold)(x)
    assert_boxes_match_lam(x, mixed, mix, axes=1)


@properties
@given(n=batch_sizes, lead=channels, height=sides, width=sides, axes=st.sampled_from([1, 2]), seed=seeds)
def test_cutmix_axes_override_the_default(
    n: int, lead: tuple[int, ...], height: int, width: int, axes: int, seed: int
) -> None:
    torch.manual_seed(seed)
    x = distinct(n, *lead, height, width)
    mixed, mix = CutMix(axes=axes, fold=False)(x)
    assert_boxes_match_lam(x, mixed, mix, axes)


@properties
@given(n=batch_sizes, height=sides, width=sides, seed=seeds)
def test_cutmix_uses_the_same_box_and_partner_for_all_fields(n: int, height: int, width: int, seed: int) -> None:
    torch.manual_seed(seed)
    batch = {
        "photo": distinct(n, 3, height, width, dtype=torch.float64),
        "rest": (distinct(n, 1, height, width), [distinct(n, 2, 2, height, width, dtype=torch.int32)]),
    }
    mixed, mix = CutMix(fold=False)(batch)
    assert layout(mixed) == layout(batch)
    for x, y in zip(fields(batch), fields(mixed), strict=True):
        assert_boxes_match_lam(x, y, mix, axes=2)
    for i in range(n):
        if mix.partner[i] != i:
            boxes = [pasted_box(x, y, mix, i, axes=2) for x, y in zip(fields(batch), fields(mixed), strict=True)]
            assert all(torch.equal(box, boxes[0]) for box in boxes)


def test_cutmix_along_one_axis_accepts_fields_with_different_numbers_of_axes() -> None:
    torch.manual_seed(0)
    batch = [distinct(6, 2, 12), distinct(6, 2, 5, 12)]
    mixed, mix = CutMix(axes=1)(batch)
    for x, y in zip(batch, mixed, strict=True):
        assert_boxes_match_lam(x, y, mix, axes=1)


@properties
@given(n=st.integers(2, 9), axes=st.sampled_from([1, 2]), seed=seeds)
def test_cutmix_per_batch_uses_one_box(n: int, axes: int, seed: int) -> None:
    torch.manual_seed(seed)
    x = distinct(n, 1, 9, 9)
    mixed, mix = CutMix(per_sample=False, axes=axes)(x)
    assert_boxes_match_lam(x, mixed, mix, axes)
    assert len(mix.lam.unique()) == 1
    boxes = [pasted_box(x, mixed, mix, i, axes) for i in range(n) if mix.partner[i] != i]
    assert all(torch.equal(box, boxes[0]) for box in boxes)


def test_cutmix_per_sample_draws_a_box_for_every_sample() -> None:
    torch.manual_seed(0)
    x = distinct(64, 1, 32, 32)
    mixed, mix = CutMix()(x)
    boxes = {tuple(pasted_box(x, mixed, mix, i, 2).flatten().tolist()) for i in range(64) if mix.partner[i] != i}
    assert len(boxes) > 55


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.uint8, torch.bool])
def test_cutmix_keeps_values_of_any_dtype(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = (100 * torch.randn(7, 2, 6, 6)).abs().to(dtype)
    index = distinct(7, 2, 6, 6)
    (mixed, mixed_index), _ = CutMix(fold=False)((x, index))
    assert mixed.dtype == dtype
    assert torch.equal(mixed, x.flatten()[mixed_index])


@pytest.mark.parametrize("shape", [(5, 2, 1, 1), (5, 2, 1, 8), (5, 2, 8, 1), (5, 2, 1), (1, 1, 1, 1)])
def test_cutmix_of_axes_with_length_one_has_a_lam_that_matches_the_box(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x = distinct(*shape)
    for _ in range(50):
        mixed, mix = CutMix(alpha=0.1, fold=False)(x)
        assert_boxes_match_lam(x, mixed, mix, axes=len(shape) - 2)


def test_cutmix_intervals_have_a_uniform_center_and_are_clipped_at_the_ends() -> None:
    torch.manual_seed(0)
    length, n = 16, 20_000
    # With lam ~ Beta(1, 1), the side floor(length * (1 - lam)) is uniform over 0 ... length - 1, like the center.
    probability = torch.zeros(length, dtype=torch.float64)
    for side in range(length):
        for center in range(length):
            start = center - side // 2
            probability[max(start, 0) : min(start + side, length)] += 1 / length**2
    x = torch.arange(n).view(n, 1, 1).expand(n, 1, length).contiguous()
    mixed, mix = CutMix(alpha=1.0, fold=False)(x)
    is_mixed = mix.partner != torch.arange(n)
    frequency = (mixed != x)[is_mixed, 0].double().mean(0)
    std = (probability * (1 - probability) / is_mixed.sum()).sqrt()
    assert ((frequency - probability).abs() < 5 * std).all()
    assert mix.lam.double().mean().item() == pytest.approx(
        1 - probability.mean().item(), abs=5 * mix.lam.std().item() / n**0.5
    )


def test_expected_lam_of_cutmix_is_that_of_a_square_with_uniform_center() -> None:
    torch.manual_seed(0)
    side, n = 8, 20_000
    expected_area = 0.0
    for s in range(side):
        probability = ((s + 1) / side) ** 2 - (s / side) ** 2  # floor(side * sqrt(u)) == s with u uniform
        extents = [min(c - s // 2 + s, side) - max(c - s // 2, 0) for c in range(side)]
        expected_area += probability * (sum(extents) / side) ** 2
    lam = CutMix(alpha=1.0, fold=False)(torch.zeros(n, 1, side, side))[1].lam.double()
    assert lam.mean().item() == pytest.approx(1 - expected_area / side**2, abs=5 * lam.std().item() / n**0.5)


@pytest.mark.parametrize("shape", [(8, 5), (8,)])
@pytest.mark.parametrize("axes", [None, 2])
def test_cutmix_rejects_tables_and_suggests_mixup(shape: tuple[int, ...], axes: int | None) -> None:
    with pytest.raises(InputError) as error:
        CutMix(axes=axes)(torch.zeros(shape))
    assert f"({', '.join(['N', *map(str, shape[1:])])})" in str(error.value)
    assert "use MixUp" in str(error.value)


def test_cutmix_rejects_a_table_among_images() -> None:
    with pytest.raises(InputError, match=r"\(N, 7\)"):
        CutMix()({"image": torch.zeros(3, 1, 4, 4), "table": torch.zeros(3, 7)})


@pytest.mark.parametrize(
    "batch",
    [
        (torch.zeros(3, 1, 4, 4), torch.zeros(3, 1, 4, 5)),
        (torch.zeros(3, 1, 4), torch.zeros(3, 1, 5)),
        (torch.zeros(3, 1, 4, 4), torch.zeros(3, 1, 4)),
    ],
)
def test_cutmix_rejects_fields_of_different_sizes(batch: Batch) -> None:
    with pytest.raises(InputError, match="sizes differ"):
        CutMix()(batch)


@pytest.mark.parametrize("axes", [0, 3, -1])
def test_cutmix_rejects_axes_other_than_one_or_two(axes: int) -> None:
    with pytest.raises(InputError, match=f"got axes={axes}"):
        CutMix(axes=axes)


# InputMix


@properties
@given(n=batch_sizes, auxiliaries=st.integers(1, 4), alpha=alphas, dtype=st.sampled_from(FLOATS), seed=seeds)
def test_inputmix_weight_of_the_principal_sample_is_at_least_half(
    n: int, auxiliaries: int, alpha: float, dtype: torch.dtype, seed: int
) -> None:
    torch.manual_seed(seed)
    weights = InputMix(auxiliaries, alpha)(torch.eye(n, dtype=dtype))
    assert (weights.diagonal() >= 0.5).all()
    assert (weights >= 0).all()


@properties
@given(n=batch_sizes, auxiliaries=st.integers(1, 4), alpha=alphas, seed=seeds)
def test_inputmix_weights_sum_to_one(n: int, auxiliaries: int, alpha: float, seed: int) -> None:
    torch.manual_seed(seed)
    weights = InputMix(auxiliaries, alpha)(torch.eye(n))
    torch.testing.assert_close(weights.sum(1), torch.ones(n), rtol=0, atol=1e-6)


@properties
@given(n=batch_sizes, shape=sample_shapes, dtype=st.sampled_from(FLOATS), seed=seeds)
def test_inputmix_keeps_shape_and_dtype(n: int, shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> None:
    torch.manual_seed(seed)
    x = Field(shape, dtype).rows(n)
    mixed = InputMix()(x)
    assert mixed.shape == x.shape
    assert mixed.dtype == x.dtype


@properties
@given(n=batch_sizes, auxiliaries=st.integers(1, 4), seed=seeds)
def test_inputmix_uses_the_same_auxiliaries_and_weights_for_all_fields(n: int, auxiliaries: int, seed: int) -> None:
    torch.manual_seed(seed)
    batch = {
        "x": torch.randn(n, 3, dtype=torch.float64),
        "weights": torch.eye(n, dtype=torch.float64),
        "rest": [torch.randn(n, dtype=torch.float64), (torch.randn(n, 2, 2, dtype=torch.float64),)],
    }
    mixed = InputMix(auxiliaries)(batch)
    assert layout(mixed) == layout(batch)
    weights = mixed["weights"]
    for x, y in zip(fields(batch), fields(mixed), strict=True):
        for i in range(n):
            expected = sum(weights[i, j] * x[j] for j in range(n))
            torch.testing.assert_close(y[i], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("auxiliaries", [1, 2, 3, 5])
def test_inputmix_blends_in_the_given_number_of_auxiliaries(auxiliaries: int) -> None:
    torch.manual_seed(0)
    n = 256
    weights = InputMix(auxiliaries)(torch.eye(n))
    n_blended = (weights > 0).sum(1)
    assert (n_blended <= 1 + auxiliaries).all()  # fewer if a sample was drawn twice
    assert (n_blended == 1 + auxiliaries).float().mean() > 0.9
    assert ((weights > 0).sum(0) <= 1 + auxiliaries).all()  # every sample is an auxiliary once per permutation


@pytest.mark.parametrize(("auxiliaries", "alpha"), [(1, 1.0), (2, 1.0), (2, 0.5), (3, 2.0)])
def test_inputmix_weights_are_dirichlet_distributed(auxiliaries: int, alpha: float) -> None:
    torch.manual_seed(0)
    weights = InputMix(auxiliaries, alpha)(torch.eye(1000, dtype=torch.float64))
    principal = weights.diagonal()
    all_distinct = (weights > 0).sum(1) == 1 + auxiliaries
    l_0 = 2 * principal[all_distinct] - 1  # the first coordinate of the Dirichlet draw
    assert stats.kstest(l_0.numpy(), stats.beta(alpha, auxiliaries * alpha).cdf).pvalue > 1e-3


def test_inputmix_needs_at_least_one_auxiliary() -> None:
    with pytest.raises(InputError, match="auxiliaries=0"):
        InputMix(auxiliaries=0)


def test_cutmix_cuts_only_the_long_axis_if_the_other_has_length_one() -> None:
    x = torch.randn(64, 2, 1, 50)
    mixed, mix = CutMix()(x)
    assert (mix.lam < 1).any()
    for i in range(64):
        replaced = (mixed[i] != x[i]).any(0).sum().item()
        assert replaced in (0, round(50 * (1 - mix.lam[i].item())))


def test_cutmix_axes_allow_batches_without_channels() -> None:
    assert (CutMix(axes=1)(torch.randn(32, 40))[1].lam < 1).any()
    assert (CutMix(axes=2)(torch.randn(32, 8, 8))[1].lam < 1).any()


@pytest.mark.parametrize("alpha", [1e-25, 1e-3, 0.01, 0.09])
def test_lam_of_a_small_alpha_has_the_beta_distribution(alpha: float) -> None:
    torch.manual_seed(0)
    lam = MixUp(alpha=alpha, fold=False)(torch.zeros(50_000, 1))[1].lam.double().numpy()
    assert np.isfinite(lam).all()
    for x in (1e-20, 1e-6, 0.1, 0.5, 0.9):
        assert abs((lam <= x).mean() - stats.beta(max(alpha, 1e-9), max(alpha, 1e-9)).cdf(x)) < 0.01
