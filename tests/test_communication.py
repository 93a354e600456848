"""What ranks tell each other is what docs/performance/communication.md says: counted, with two ranks."""

import importlib
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture(scope="module")
def communication():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        yield importlib.import_module("communication")


@pytest.fixture(scope="module")
def counted(communication):
    return communication.counted("small", ranks=2)


@pytest.mark.parametrize("method", ["npair", "simclr", "moco", "byol"])
def test_counted_collectives_and_bytes_are_those_of_the_formula(communication, counted, method):
    learner = communication.make(method, "small")
    assert counted[method] == communication.expected(learner, communication.SAMPLES, 2)


def test_only_keys_with_a_gradient_grow_with_the_ranks(communication):
    for method, grows in (("npair", True), ("simclr", True), ("moco", False), ("byol", False)):
        few, many = (communication.expected(communication.make(method, "small"), 256, ranks) for ranks in (8, 64))
        assert (few.gradients, few.statistics, few.calls) == (many.gradients, many.statistics, many.calls)
        assert (many.keys > few.keys) == grows
    npair = communication.expected(communication.make("npair", "small"), 256, 8)
    assert npair.keys == 4 * 256 * 128 * (1 + 8)
