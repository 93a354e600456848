"""The communication between two ranks equals the formula in docs/performance/ranks.md."""

import importlib
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def communication():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        yield importlib.import_module("communication")


@pytest.fixture(scope="module")
def counted(communication):
    return communication.count_traffic("small", ranks=2)


@pytest.mark.subprocess
@pytest.mark.parametrize("method", ["npair", "simclr", "moco", "byol"])
def test_counted_collectives_and_bytes_match_the_formula(communication, counted, method):
    learner = communication.build_learner(method, "small")
    assert counted[method] == communication.expected_traffic(learner, communication.SAMPLES, 2, "cpu")


def test_only_keys_with_a_gradient_grow_with_the_number_of_ranks(communication):
    for method, grows in (("npair", True), ("simclr", True), ("moco", False), ("byol", False)):
        learner = communication.build_learner(method, "small")
        few, many = (communication.expected_traffic(learner, 256, ranks) for ranks in (8, 64))
        assert (few.gradients, few.statistics, few.calls) == (many.gradients, many.statistics, many.calls)
        assert (many.keys > few.keys) == grows
    npair = communication.expected_traffic(communication.build_learner("npair", "small"), 256, 8)
    assert npair.keys == 4 * 256 * 128 * (1 + 8)
