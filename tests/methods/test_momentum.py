"""The key network of MoCo and BYOL: moving average, batch normalization, symmetric losses."""

import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import imix
from imix import InputError
from imix.methods import MoCo
from imix.mix import MixUp
from imix.runtime.sync_bn import convert_sync_bn
from tests.methods.helpers import ENCODERS, N, build, loss_of, table_learner, views


@pytest.mark.parametrize("method", ["moco", "byol"])
def test_key_network_starts_as_a_copy(method):
    learner = table_learner(method)
    for name in ("encoder", "head"):
        trained, key = getattr(learner, name), getattr(learner, f"key_{name}")
        assert trained is not key
        assert_close(dict(key.state_dict()), dict(trained.state_dict()), rtol=0, atol=0)
        assert not {p.data_ptr() for p in trained.parameters()} & {p.data_ptr() for p in key.parameters()}


@pytest.mark.parametrize("method", ["moco", "byol"])
def test_update_is_the_moving_average_of_every_parameter(method):
    m = 0.9
    torch.manual_seed(0)
    learner = build(method, ENCODERS["table"](), MixUp(), momentum=m).double()
    for _ in range(2):
        before = {name: p.clone() for name, p in learner.named_parameters() if name.startswith("key_")}
        loss_of(learner, *(view.double() for view in views())).backward()
        with torch.no_grad():
            for parameter in (p for p in learner.parameters() if p.requires_grad):
                parameter.add_(torch.randn_like(parameter))
        now = dict(learner.named_parameters())
        assert all(now[name].equal(key) for name, key in before.items()), "the key network moves only at update()"
        trained = {name: p.clone() for name, p in now.items() if not name.startswith("key_")}
        learner.update()
        for name, key in before.items():
            expected = m * key + (1 - m) * trained[name.removeprefix("key_")].detach()
            assert_close(now[name].detach(), expected, rtol=1e-13, atol=1e-13)
        assert all(now[name].equal(p) for name, p in trained.items()), "update() leaves the trained network alone"


@pytest.mark.parametrize("method", ["moco", "byol"])
def test_key_network_keeps_its_own_batch_norm_buffers(method):
    """Parameters are averaged, buffers are not: the key network computes statistics of view 2."""
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.BatchNorm1d(20, momentum=1.0), nn.Linear(20, 12))
    learner = build(method, encoder, momentum=0.5)
    view_1, view_2 = views()
    view_2 = 3 * view_2 + 1
    loss_of(learner, view_1, view_2).backward()
    learner.update()
    assert_close(learner.encoder[0].running_mean, view_1.mean(0))
    assert_close(learner.key_encoder[0].running_mean, view_2.mean(0))
    assert_close(learner.key_encoder[0].running_var, view_2.var(0))
    assert learner.key_encoder[0].num_batches_tracked == 1


@pytest.mark.parametrize("method", ["moco", "byol"])
def test_keys_have_no_gradient(method):
    learner = table_learner(method, MixUp())
    view_1, view_2 = views()
    assert not learner.keys(view_2.requires_grad_())[0].requires_grad
    loss_of(learner, view_1, view_2).backward()
    assert view_2.grad is None
    key_network = [p for name, p in learner.named_parameters() if name.startswith("key_")]
    assert key_network
    assert all(p.grad is None and not p.requires_grad for p in key_network)


@pytest.mark.parametrize("method", ["moco", "byol"])
def test_keys_are_computed_in_training_mode(method):
    learner = table_learner(method)
    assert all(part.training for part in learner.key_encoder.modules())
    assert all(part.training for part in learner.key_head.modules())
    _, view_2 = views()
    twin = copy.deepcopy(learner)
    in_training_mode = twin.key_head.train()(twin.key_encoder.train()(view_2))
    assert_close(learner.keys(view_2)[0], in_training_mode.detach(), rtol=0, atol=0)
    assert not torch.allclose(twin.eval().keys(view_2)[0], in_training_mode)


@pytest.mark.parametrize("mix", [None, MixUp()], ids=["none", "mixup"])
@pytest.mark.parametrize("method", ["moco", "byol"])
def test_symmetric_is_the_mean_of_both_directions(method, mix):
    """Tested without batch normalization, whose statistics the directions would share."""
    torch.manual_seed(0)
    learner = build(method, nn.Linear(20, 12), mix, head="mlp", symmetric=True).double()
    one_way = copy.deepcopy(learner)
    one_way.symmetric = False
    view_1, view_2 = (view.double() for view in views())
    torch.manual_seed(1)
    both = learner(view_1, view_2)
    torch.manual_seed(1)
    assert_close(both, (one_way(view_1, view_2) + one_way(view_2, view_1)) / 2)


@pytest.mark.parametrize("method", ["moco", "byol"])
def test_symmetric_encodes_both_views_in_one_pass(method):
    rows: list[int] = []
    learner = build(method, nn.Linear(20, 12), symmetric=True)
    for network in (learner.encoder, learner.key_encoder):
        network.register_forward_pre_hook(lambda _, inputs: rows.append(len(inputs[0])))
    learner(*views())
    assert rows == [2 * N, 2 * N]


def test_shuffle_bn_considers_the_head_too(monkeypatch):
    learner = imix.MoCo(nn.Linear(5, 4), queue=4)
    monkeypatch.setattr("imix.runtime.distributed.world_size", lambda: 2)
    assert learner._needs_shuffle()
    convert_sync_bn(learner, torch.device("cpu"))
    assert not learner._needs_shuffle()


def test_an_encoder_without_parameters_can_be_updated():
    learner = imix.MoCo(nn.Flatten(), width=5, queue=4)
    learner(torch.randn(4, 5), torch.randn(4, 5))
    learner.update()


def test_a_momentum_too_close_to_1_for_the_dtype_is_rejected():
    learner = MoCo(nn.Linear(4, 4), width=4, queue=8).to(torch.bfloat16)
    with pytest.raises(InputError, match=r"too close to 1 for a moving average in torch\.bfloat16"):
        learner.update()
