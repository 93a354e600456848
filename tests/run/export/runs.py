"""Runs with untrained encoders, for tests of the export."""

import torch
from torch import nn

import imix
from imix.encoders.mel import Clip
from imix.run import Run
from imix.run.config import Architecture, DataConfig, RunConfig
from imix.run.stored_encoder import assemble


def build_run(
    name: str, shape: tuple[int, ...] = (3, 32, 32), standardize: bool = True, groups: tuple[int, ...] = ()
) -> Run:
    """A run whose weights and statistics all differ from those of a newly built encoder."""
    torch.manual_seed(0)
    architecture = Architecture(name, shape, groups, standardize, None)
    encoder = assemble(architecture)
    if standardize:
        encoder[0].mean.copy_(torch.linspace(0.4, 0.5, shape[0]))
        encoder[0].std.copy_(torch.linspace(0.2, 0.3, shape[0]))
    for part in encoder.modules():
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
            part.running_mean.uniform_(-0.1, 0.1)
            part.running_var.uniform_(0.5, 1.5)
            part.weight.data.uniform_(0.5, 1.5)
    return as_run(encoder.eval(), architecture)


def audio_run(name: str = "small") -> Run:
    torch.manual_seed(0)
    architecture = Architecture(name, (1, 4000), (), False, Clip(samples=4000))
    return as_run(assemble(architecture).eval(), architecture)


def as_run(encoder: nn.Sequential, architecture: Architecture) -> Run:
    data = DataConfig("arrays", 8, architecture.shape, imix.DataSettings(), None, None)
    settings = imix.Settings(encoder=architecture.encoder)
    return Run(encoder, RunConfig(settings, data, architecture, 1, {}, {"imix": "0.1.0"}))


RUNS = {  # one of every kind of encoder
    "mlp": lambda: build_run("mlp:16-32:bn", (9,), groups=(3, 6)),
    "small, rows": lambda: build_run("small", (5,)),
    "small, sequences": lambda: build_run("small", (2, 40)),
    "small, images": lambda: build_run("small", (3, 8, 8), standardize=False),
    "small, audio": audio_run,
    "resnet, small stem": lambda: build_run("resnet18", (3, 16, 16)),
    "resnet, standard stem": lambda: build_run("resnet18:standard", (1, 32, 32)),
    "resnet, audio": lambda: audio_run("resnet18:standard"),
    "timm": lambda: build_run("timm:test_resnet", (3, 32, 32)),
}
