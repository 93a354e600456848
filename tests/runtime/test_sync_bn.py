"""Batch normalization over two ranks equals that of the global batch, and conversion keeps everything else."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from imix.errors import InputError
from imix.runtime.sync_bn import CPUSyncBatchNorm, convert_sync_bn
from tests.runtime.two_ranks import CPU, NORMS, assert_same, normalize


@pytest.mark.parametrize("kind", NORMS)
def test_sync_batch_norm_is_batch_norm_of_the_global_batch(ranks, kind):
    expected = normalize(kind, None)
    for name in expected.keys() - {"parameters", "buffers"}:
        actual = torch.cat([result["norms"][kind][name] for result in ranks])
        assert_same(actual, expected[name])
    for result in ranks:
        assert_same(result["norms"][kind]["buffers"], expected["buffers"])
    gradients = [sum(parts) for parts in zip(*[result["norms"][kind]["parameters"] for result in ranks], strict=True)]
    assert_same(gradients, expected["parameters"])


def test_sync_batch_norm_in_a_single_process_is_batch_norm():
    x = torch.randn(6, 3, 4)
    norm, sync_norm = nn.BatchNorm1d(3), convert_sync_bn(nn.BatchNorm1d(3), CPU)
    assert_close(sync_norm(x), norm(x), rtol=0, atol=0)
    assert_close(dict(sync_norm.state_dict()), dict(norm.state_dict()), rtol=0, atol=0)


def test_convert_keeps_parameters_buffers_and_modes():
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Linear(4, 3), nn.BatchNorm1d(3, eps=0.1, momentum=0.4), nn.Sequential(nn.BatchNorm1d(3, affine=False))
    )
    module(torch.randn(6, 4))
    module[1].weight.requires_grad_(False)
    module[2].eval()
    parameters, buffers = dict(module.named_parameters()), {k: v.clone() for k, v in module.named_buffers()}
    assert convert_sync_bn(module, CPU) is module
    assert isinstance(module[1], CPUSyncBatchNorm)
    assert isinstance(module[2][0], CPUSyncBatchNorm)
    assert (module[1].eps, module[1].momentum, module[2][0].affine) == (0.1, 0.4, False)
    converted = dict(module.named_parameters())
    assert converted.keys() == parameters.keys()
    assert all(converted[name] is parameter for name, parameter in parameters.items())
    assert_close(dict(module.named_buffers()), buffers, rtol=0, atol=0)
    assert [part.training for part in module] == [True, True, False]
    assert not module[2][0].training


def test_convert_keeps_dtype_and_shared_layers():
    shared = nn.BatchNorm1d(3)
    module = nn.ModuleList([shared, nn.Sequential(shared)]).double()
    state = {name: value.clone() for name, value in module.state_dict().items()}
    convert_sync_bn(module, CPU)
    assert module[0] is module[1][0]
    assert isinstance(module[0], CPUSyncBatchNorm)
    assert all(torch.equal(value, state[name]) for name, value in module.state_dict().items())
    x = torch.randn(5, 3).double()
    assert_close(module[0](x), nn.BatchNorm1d(3).double()(x))


def test_converting_twice_changes_nothing():
    module = convert_sync_bn(nn.Sequential(nn.BatchNorm1d(3)), CPU)
    norm = module[0]
    assert convert_sync_bn(module, CPU)[0] is norm


def test_convert_rejects_custom_subclasses_of_batch_norm():
    class ActivatedNorm(nn.BatchNorm1d):
        def forward(self, x):
            return super().forward(x).relu()

    with pytest.raises(InputError, match=r"ActivatedNorm is a custom subclass of batch normalization.*`sync_bn=False`"):
        convert_sync_bn(nn.Sequential(nn.Linear(3, 4), ActivatedNorm(4)), CPU)


def test_gpus_use_torchs_synchronized_batch_norm():
    module = nn.Sequential(nn.BatchNorm1d(3, eps=0.1), nn.BatchNorm2d(3, affine=False)).eval()
    state = module.state_dict()
    converted = convert_sync_bn(module, torch.device("cuda"))
    assert [type(layer) for layer in converted] == [nn.SyncBatchNorm] * 2
    assert converted[0].eps == 0.1 and not converted[1].affine and not converted[0].training
    assert converted.state_dict().keys() == state.keys()
    x = torch.randn(5, 3)
    assert_close(converted[0](x), nn.BatchNorm1d(3, eps=0.1).eval()(x))
