"""Joining the ranks started by torchrun."""

from imix.runtime import launch


def test_ranks_are_not_joined_twice(ranks):
    assert not any(result["collectives"]["joined again"] for result in ranks)


def test_a_single_process_joins_no_ranks(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with launch.join_ranks() as joined:
        assert not joined
