"""The base class: features, width, and the validation of its parameters."""

import copy
import inspect

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import imix
from imix import InputError
from imix.batch import map_fields
from imix.methods import NPair
from imix.mix import MixUp
from tests.methods.helpers import ENCODERS, METHODS, N, build, loss_of, table_learner, views


@pytest.mark.parametrize("method", METHODS)
def test_encode_returns_the_features_of_the_trained_encoder(method):
    learner = table_learner(method, MixUp())
    with torch.no_grad():
        for parameter in learner.encoder.parameters():
            parameter.add_(0.1)
    x, _ = views()
    buffers = copy.deepcopy(dict(learner.named_buffers()))
    features = learner.encode(x)
    assert features.shape == (N, 12)
    assert not features.requires_grad
    assert_close(features, copy.deepcopy(learner.encoder).eval()(x).detach(), rtol=0, atol=0)
    if method in ("moco", "byol"):
        assert not torch.allclose(features, copy.deepcopy(learner.key_encoder).eval()(x))
    assert_close(dict(learner.named_buffers()), buffers, rtol=0, atol=0)


@pytest.mark.parametrize("kind", ENCODERS)
def test_encode_accepts_any_kind_of_batch_and_encodes_samples_independently(kind):
    learner = build("npair", ENCODERS[kind]())
    x, _ = views(kind)
    alone = [learner.encode(map_fields(lambda field, i=i: field[i : i + 1], x)) for i in range(N)]
    assert_close(learner.encode(x), torch.cat(alone))


def test_encode_restores_the_mode_of_each_submodule():
    learner = table_learner("moco")
    learner.encoder.layers[2].eval()  # a batch normalization that the user froze
    modes = [part.training for part in learner.modules()]
    modes_inside: list[bool] = []
    learner.encoder.register_forward_pre_hook(
        lambda module, _: modes_inside.extend(part.training for part in module.modules())
    )
    learner.encode(views()[0])
    assert not any(modes_inside)
    assert [part.training for part in learner.modules()] == modes


def test_encode_restores_modes_after_an_error():
    learner = table_learner("npair")
    with pytest.raises(RuntimeError):
        learner.encode(torch.randn(N, 3))
    assert all(part.training for part in learner.modules())


class NoWidth(nn.Module):
    """An encoder without an attribute for its feature dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(20, 12)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class WithWidth(NoWidth):
    """An encoder with such an attribute."""

    def __init__(self, attribute: str) -> None:
        super().__init__()
        setattr(self, attribute, 12)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "encoder",
    [
        *[lambda name=name: WithWidth(name) for name in ("width", "num_features", "out_features")],
        lambda: nn.Linear(20, 12),
        lambda: nn.Sequential(nn.Linear(20, 7), nn.ReLU(), nn.Linear(7, 12)),
        lambda: nn.Sequential(nn.Linear(20, 12), nn.BatchNorm1d(12)),
        lambda: nn.Sequential(nn.Linear(20, 7), nn.Sequential(nn.ReLU(), WithWidth("width"))),
    ],
    ids=["width", "num_features", "out_features", "linear", "sequential", "normed", "nested"],
)
def test_width_is_inferred_from_the_encoder(method, encoder):
    learner = build(method, encoder())
    assert learner.width == 12
    first = learner.classifier if method == "supervised" else learner.head[0]
    assert first.in_features == 12


@pytest.mark.parametrize("method", METHODS)
def test_width_can_be_passed(method):
    learner = build(method, NoWidth(), width=12)
    assert learner.width == 12
    loss_of(learner, *views()).backward()


def test_passed_width_overrides_the_attribute_of_the_encoder():
    assert build("npair", WithWidth("width"), width=5).width == 5


@pytest.mark.parametrize("encoder", [NoWidth, lambda: nn.Sequential(nn.Linear(20, 12), nn.ReLU()), nn.Sequential])
@pytest.mark.parametrize("method", METHODS)
def test_unknown_width_error_says_to_pass_width(method, encoder):
    encoder = encoder()
    with pytest.raises(imix.InputError, match=rf"{type(encoder).__name__}.*width="):
        build(method, encoder)


@pytest.mark.parametrize("method", METHODS)
def test_the_encoder_is_not_run_to_infer_its_width(method):
    encoder = WithWidth("width")
    encoder.forward = lambda x: pytest.fail("the encoder was run")
    build(method, encoder)


def test_unknown_head_is_rejected():
    with pytest.raises(imix.InputError, match=r"mlpbn3.*choose from mlpbn, mlpbn1, mlp, linear"):
        NPair(nn.Linear(5, 4), head="mlpbn3")


def test_views_of_different_size_are_rejected():
    for method in ("npair", "simclr", "moco", "byol"):
        with pytest.raises(InputError, match=r"same number of samples; got \[3, 4\]"):
            build(method, nn.Linear(5, 4))(torch.randn(3, 5), torch.randn(4, 5))


def test_input_mix_is_rejected_as_mixing_operator():
    with pytest.raises(InputError, match="apply it to the views"):
        imix.NPair(nn.Linear(5, 4), mix=imix.InputMix())


@pytest.mark.parametrize("method", [imix.NPair, imix.SimCLR, imix.MoCo, imix.BYOL, imix.SupCLR, imix.SupNPair])
@pytest.mark.parametrize("option", [{"temperature": 0.0}, {"temperature": float("nan")}, {"momentum": 1.5}, {"dim": 0}])
def test_invalid_numbers_are_rejected_at_construction(method, option):
    (name,) = option
    if name in inspect.signature(method).parameters:
        with pytest.raises(InputError, match=rf"{name} must be"):
            method(nn.Linear(5, 4), **option)
