"""Two ranks have the same loss, gradients and state as one process with the same global batch (gloo, CPU)."""

from functools import cache

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from imix import losses
from imix.runtime import distributed
from tests.runtime.two_ranks import (
    CASES,
    DIM,
    LABELS,
    ROWS_PER_RANK,
    WORLD_SIZE,
    N,
    PresetMix,
    assert_same,
    build_learner,
    noise,
    rows_of,
    train,
    two_field_learner,
    views,
)


@cache
def train_alone(method: str, norm: str, mixed: bool) -> dict:
    return train(method, norm, mixed, None)


# Methods


@pytest.mark.parametrize(("method", "norm", "mixed"), CASES)
def test_loss_is_that_of_one_process(ranks, method, norm, mixed):
    for step in range(2):
        loss = torch.stack([result["train"][method, norm, mixed]["losses"][step] for result in ranks]).mean()
        assert_same(loss, train_alone(method, norm, mixed)["losses"][step])


@pytest.mark.parametrize(("method", "norm", "mixed"), CASES)
def test_gradients_are_those_of_one_process(ranks, method, norm, mixed):
    for step in range(2):
        expected = train_alone(method, norm, mixed)["gradients"][step]
        assert all(gradient.any() for name, gradient in expected.items() if gradient.dim() == 2)
        for result in ranks:
            assert_same(result["train"][method, norm, mixed]["gradients"][step], expected)


@pytest.mark.parametrize(("method", "norm", "mixed"), CASES)
def test_state_after_two_steps_is_that_of_one_process(ranks, method, norm, mixed):
    """Parameters, key network, batch statistics and the position in the queue."""
    expected = train_alone(method, norm, mixed)["state"]
    for result in ranks:
        state = result["train"][method, norm, mixed]["state"]
        assert state.keys() == expected.keys()
        for name in expected.keys() - {"queue"}:
            assert_same(state[name], expected[name])


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("norm", ["no norm", "sync norm"])
def test_queue_contains_keys_of_every_rank(ranks, norm, mixed):
    def sort_rows(queue: Tensor) -> Tensor:
        return queue[queue[:, 0].argsort()]

    expected = train_alone("moco", norm, mixed)["state"]["queue"]
    initial = build_learner("moco", norm).double().queue
    assert (initial != expected).any(1).sum() == 2 * N
    for result in ranks:
        assert_same(sort_rows(result["train"]["moco", norm, mixed]["state"]["queue"]), sort_rows(expected))


@pytest.mark.parametrize(("method", "norm", "mixed"), CASES)
def test_ranks_have_equal_gradients_and_state(ranks, method, norm, mixed):
    first, second = (result["train"][method, norm, mixed] for result in ranks)
    assert_close(first["state"], second["state"], rtol=0, atol=0)
    assert_close(first["gradients"], second["gradients"], rtol=0, atol=0)
    assert first["losses"] != second["losses"], "each rank has different anchors"


@pytest.mark.parametrize("method", ["npair", "simclr", "moco", "supclr", "supnpair"])
def test_positives_are_offset_by_rank(ranks, method):
    """The positive of each sample equals it and all others are orthogonal: a wrong row would cost 1 / tau = 50."""
    for result in ranks:
        assert 0 <= result["orthogonal"][method] < 1e-15


def test_keys_of_other_ranks_have_a_gradient(ranks):
    view_1, view_2 = (view.clone().requires_grad_() for view in views())
    learner = build_learner("npair", "no norm").double()
    q, k = learner.project(view_1[rows_of(0)], view_2)
    losses.npair(q, k, temperature=learner.temperature).backward()
    for rank, result in enumerate(ranks):
        assert view_2.grad[rows_of(rank)].any(1).all()
        assert_same(result["rank 0 only"]["keys"], view_2.grad[rows_of(rank)])
        assert_same(result["rank 0 only"]["anchors"], view_1.grad[rows_of(rank)])


def test_preset_mix_has_the_same_partners_on_ranks_and_in_one_process():
    """Otherwise the comparisons above would mean nothing."""
    for n_views in (1, 2):
        samples = torch.arange(n_views * N, dtype=torch.float64)[:, None]
        expected, mix = PresetMix(n_views, None)(samples)
        assert not mix.partner.equal(torch.arange(n_views * N))
        for rank in range(WORLD_SIZE):
            rows = torch.arange(n_views * N).view(n_views, N)[:, rows_of(rank)].flatten()
            mixed, mix_of_rank = PresetMix(n_views, rank)(samples[rows])
            assert_close(mixed, expected[rows], rtol=0, atol=0)
            assert rows[mix_of_rank.partner].equal(mix.partner[rows])


# Collectives


def test_gathered_rows_are_in_rank_order(ranks):
    for rank, result in enumerate(ranks):
        collectives = result["collectives"]
        assert (collectives["world size"], collectives["rank"], collectives["offset"]) == (WORLD_SIZE, rank, 5 * rank)
        assert collectives["gathered"].equal(noise(N, 3, seed=60))
        assert collectives["transposed"].equal(noise(3, N, seed=60).T)
        assert collectives["integers"].equal(LABELS)


def test_gradient_of_gathered_rows_is_summed_over_ranks(ranks):
    expected = noise(N, 3, seed=70) + noise(N, 3, seed=71)
    for rank, result in enumerate(ranks):
        assert_same(result["collectives"]["gathered gradient"], expected[rows_of(rank)])


def test_mean_over_ranks_has_no_gradient(ranks):
    for result in ranks:
        assert_same(result["collectives"]["mean"], (noise(4, 3, seed=80) + noise(4, 3, seed=81)) / 2)
        assert not result["collectives"]["mean"].requires_grad


def test_rank_poll_combines_the_flags_of_all_ranks(ranks):
    for result in ranks:
        assert result["collectives"]["any"] == [True, True, False, True]


def test_shared_permutation_is_the_same_on_all_ranks(ranks):
    first, second = (result["collectives"] for result in ranks)
    assert first["order"].equal(second["order"])
    assert first["order"].sort().values.equal(torch.arange(N))
    assert first["order"][first["inverse"]].equal(torch.arange(N))
    assert torch.cat([first["shuffled rows"], second["shuffled rows"]]).equal(first["order"])


def test_collectives_do_nothing_in_a_single_process():
    x = torch.randn(3, 2, requires_grad=True)
    assert (distributed.world_size(), distributed.rank(), distributed.row_offset(7)) == (1, 0, 0)
    assert distributed.gather_rows(x) is x
    assert_close(distributed.mean_over_ranks(x), x.detach(), rtol=0, atol=0)
    assert distributed.RankPoll().any(1, True, False) == (True, False)
    module = nn.Linear(2, 2)
    assert distributed.wrap_ddp(module) is module


# Shuffled batch normalization


def keys_without_shuffling(method: str, rows: Tensor, frozen: bool) -> Tensor:
    learner = build_learner(method, "norm").double()
    learner.key_encoder.train(not frozen)
    learner.key_head.train(not frozen)
    with torch.no_grad():
        return learner.key_head(learner.key_encoder(rows))


@pytest.mark.parametrize("method", ["moco", "byol"])
def test_shuffled_keys_are_returned_in_order(ranks, method):
    expected = keys_without_shuffling(method, views()[1], frozen=True)
    for rank, result in enumerate(ranks):
        assert_same(result["shuffle"][method, True]["keys"], expected[rows_of(rank)])


@pytest.mark.parametrize("method", ["moco", "byol"])
def test_keys_are_normalized_together_with_rows_of_other_ranks(ranks, method):
    view = views()[1]
    inputs = [result["shuffle"][method, False]["inputs"] for result in ranks]
    rows = (torch.cat(inputs)[:, None] == view).all(2).long().argmax(1)
    assert rows.sort().values.equal(torch.arange(N)), "every row passes through the key network once"
    assert (rows[:ROWS_PER_RANK] >= ROWS_PER_RANK).any()
    expected = torch.cat([keys_without_shuffling(method, x, frozen=False) for x in inputs])[rows.argsort()]
    for rank, result in enumerate(ranks):
        assert_same(result["shuffle"][method, False]["keys"], expected[rows_of(rank)])


@pytest.mark.parametrize("mode", ["inputs in evaluation", "inputs with sync norm"])
def test_rows_are_not_shuffled_if_it_has_no_effect(ranks, mode):
    for rank, result in enumerate(ranks):
        assert result["shuffle"][mode].equal(views()[1][rows_of(rank)])


def test_fields_of_a_sample_are_shuffled_together(ranks):
    learner, (a, b) = two_field_learner(), views()
    with torch.no_grad():
        expected = learner.key_head(learner.key_encoder({"a": a, "b": b}))
    for rank, result in enumerate(ranks):
        assert_same(result["shuffle"]["keys of fields"], expected[rows_of(rank)])


def test_queue_contains_keys_of_every_rank_with_shuffled_batch_norm(ranks):
    first, second = (result["shuffle"] for result in ranks)
    assert first["queue"].equal(second["queue"])
    assert first["waiting"].shape == (N, DIM)
    assert_same(first["queue"][:N], nn.functional.normalize(first["waiting"]))
    assert first["cursor"] == second["cursor"] == N
