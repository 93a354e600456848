"""CUDA graphs, with a fake graph on the CPU that runs the captured function on the static inputs."""

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import imix
import imix.train.step
from imix.probes.linear_paper import LinearClassifiers, LinearPaper
from imix.runtime.cuda_graph import WARMUP_CALLS, CudaGraph
from imix.train.step import TrainingStep

CPU = torch.device("cpu")
SMALL = imix.Settings(epochs=3, batch_size=16, encoder="mlp:16-16", device="cpu", queue=40)


class FakeGraph:
    def __init__(self, owner):
        self.owner = owner

    def replay(self):
        self.owner.static_output = self.owner.function(*self.owner.static_inputs)


@pytest.fixture(autouse=True)
def fake_cuda(monkeypatch):
    def capture(cuda_graph, inputs):
        cuda_graph.static_inputs, cuda_graph.graph = tuple(x.clone() for x in inputs), FakeGraph(cuda_graph)

    stream = SimpleNamespace(wait_stream=lambda other: None)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(CudaGraph, "_capture", capture)


def test_calls_after_the_warmup_are_replayed_on_static_inputs():
    addresses = []
    graph = CudaGraph(lambda x, y: addresses.append(x.data_ptr()) or x + y, CPU)
    outputs = [graph(torch.tensor(n), torch.tensor(10 * n)) for n in range(WARMUP_CALLS + 3)]
    assert [int(n) for n in outputs] == [0, 11, 22, 33, 44, 55]
    assert len({*addresses[WARMUP_CALLS:]}) == 1


def test_before_is_called_before_every_call():
    calls = []
    graph = CudaGraph(lambda x: x + len(calls), CPU)
    outputs = [graph(torch.tensor(0), before=lambda: calls.append(0)) for _ in range(6)]
    assert [int(n) for n in outputs] == [1, 2, 3, 4, 5, 6]


class GraphTrainingStep(TrainingStep):
    def __init__(self, make_views, network, optimizer, setup):
        super().__init__(make_views, network, optimizer, replace(setup, use_cuda_graph=True))


@pytest.mark.parametrize("method", ["moco", "supnpair"])
def test_replayed_training_steps_equal_ordinary_steps(method, monkeypatch):
    monkeypatch.setattr(torch.optim.SGD, "step", _with_float_lr(torch.optim.SGD.step))
    x = torch.randn(200, 6, generator=torch.Generator().manual_seed(0)).numpy()
    settings = replace(SMALL, method=method)
    expected = imix.pretrain(x, settings, labels=np.arange(200) % 3, progress=False)
    monkeypatch.setattr(imix.train.step, "TrainingStep", GraphTrainingStep)
    replayed = imix.pretrain(x, settings, labels=np.arange(200) % 3, progress=False)
    assert [record["loss"] for record in replayed.metrics] == [record["loss"] for record in expected.metrics]
    for name, value in expected.encoder.state_dict().items():
        assert torch.equal(value, replayed.encoder.state_dict()[name])


def _with_float_lr(step):
    """Convert the learning rate to a number: the fused optimizer accepts a tensor on a GPU only."""

    def wrapped(optimizer):
        for group in optimizer.param_groups:
            group["lr"] = float(np.float32(group["lr"]))
        return step(optimizer)

    return wrapped


def test_linear_classifiers_trained_with_a_graph_are_the_same():
    x, labels = nn.functional.normalize(torch.randn(100, 5)), torch.arange(100) % 3
    protocol = LinearPaper(lrs=(0.1, 1.0, 3.0), epochs=6, batch_size=32, milestones=(3, 5))
    expected, replayed = LinearClassifiers(3, protocol), LinearClassifiers(3, protocol)
    replayed.full_batch_step = CudaGraph(replayed._step, CPU)
    for epoch in range(protocol.epochs):
        expected.train_epoch(x, labels, epoch)
        replayed.train_epoch(x, labels, epoch)
    assert torch.equal(expected.weight, replayed.weight)
    assert torch.equal(expected.bias, replayed.bias)
