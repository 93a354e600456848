"""Recorded calls, with a stand-in for CUDA graphs that does what they do: run the kernels on the memory held."""

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import imix
import imix.train.step
from imix.evaluation.linear import Classifiers, Linear
from imix.train.record import BEFORE_RECORDING, Recorded
from imix.train.step import RecordedStep

CPU = torch.device("cpu")
SMALL = imix.Settings(epochs=3, batch_size=16, encoder="mlp:16-16", device="cpu", queue=40)


class Graph:
    def __init__(self, recorded):
        self.recorded = recorded

    def replay(self):
        self.recorded.result = self.recorded.function(*self.recorded.held)


@pytest.fixture(autouse=True)
def graphs(monkeypatch):
    def record(recorded, given):
        recorded.held, recorded.graph = tuple(part.clone() for part in given), Graph(recorded)

    nothing = SimpleNamespace(wait_stream=lambda other: None)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: nothing)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: nothing)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(Recorded, "_record", record)


def test_the_fourth_call_and_those_after_it_are_replayed():
    seen = []
    recorded = Recorded(lambda x, y: seen.append(x.data_ptr()) or x + y, CPU)
    found = [recorded(torch.tensor(n), torch.tensor(10 * n)) for n in range(BEFORE_RECORDING + 3)]
    assert [int(n) for n in found] == [0, 11, 22, 33, 44, 55]
    assert len({*seen[BEFORE_RECORDING:]}) == 1


def test_what_comes_before_a_call_is_not_recorded():
    at = []
    recorded = Recorded(lambda x: x + len(at), CPU)
    found = [recorded(torch.tensor(0), before=lambda: at.append(0)) for _ in range(6)]
    assert [int(n) for n in found] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("method", ["moco", "supnpair"])
def test_a_recorded_step_replays_with_its_own_batch_rate_and_random_numbers(method, monkeypatch):
    monkeypatch.setattr(torch.optim.SGD, "step", _step_with_rate_in_memory(torch.optim.SGD.step))
    x = torch.randn(200, 6, generator=torch.Generator().manual_seed(0)).numpy()
    settings = replace(SMALL, method=method)
    plain = imix.pretrain(x, settings, labels=np.arange(200) % 3, progress=False)
    monkeypatch.setattr(imix.train.step, "Step", RecordedStep)
    recorded = imix.pretrain(x, settings, labels=np.arange(200) % 3, progress=False)
    assert [record["loss"] for record in plain.metrics] == [record["loss"] for record in recorded.metrics]
    for name, value in plain.encoder.state_dict().items():
        assert torch.equal(value, recorded.encoder.state_dict()[name])


def _step_with_rate_in_memory(step):
    """On a GPU the fused optimiser reads the rate as a tensor; on a CPU it must be a number."""

    def taken(optimizer):
        for group in optimizer.param_groups:
            group["lr"] = float(np.float32(group["lr"]))
        return step(optimizer)

    return taken


def test_linear_classifiers_learn_the_same_from_recorded_steps():
    x, labels = nn.functional.normalize(torch.randn(100, 5)), torch.arange(100) % 3
    protocol = Linear(rates=(0.1, 1.0, 3.0), epochs=6, batch_size=32, milestones=(3, 5))
    plain, recorded = Classifiers(3, protocol), Classifiers(3, protocol)
    recorded.whole_batch = Recorded(recorded._step, CPU)
    for epoch in range(protocol.epochs):
        plain.learn(x, labels, epoch)
        recorded.learn(x, labels, epoch)
    assert torch.equal(plain.weight, recorded.weight)
    assert torch.equal(plain.bias, recorded.bias)
