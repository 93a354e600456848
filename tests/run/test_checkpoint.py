"""Checkpoints: what they restore, and the ones that are refused before torch uses their tensors."""

import copy
import errno
import zipfile
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from torch import nn

from imix import InputError
from imix.run import checkpoint

OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, fused=True),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.1, fused=True),
}
STATE = [("sgd", "momentum_buffer"), ("adamw", "step"), ("adamw", "exp_avg"), ("adamw", "exp_avg_sq")]


class Network(nn.Module):
    """A layer that is trained, a convolution in the memory format of training, and a layer that is not used."""

    def __init__(self):
        super().__init__()
        self.layer, self.unused = nn.Linear(6, 5), nn.Linear(3, 3)
        self.convolution = nn.Conv2d(5, 4, 2).to(memory_format=torch.channels_last)
        self.norm = nn.BatchNorm1d(5)

    def forward(self, x):
        return self.convolution(self.norm(self.layer(x))[:, :, None, None].expand(-1, -1, 3, 3))


def start(optimizer):
    torch.manual_seed(0)
    network = Network()
    return network, build(optimizer, network)


def build(name, network):
    optimizer = OPTIMIZERS[name](network.parameters())
    checkpoint.create_optimizer_state(optimizer)
    return optimizer


def take_steps(network, optimizer, n=3):
    for step in range(n):
        torch.manual_seed(step)
        network(torch.randn(8, 6)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def saved_state(optimizer, path):
    """The checkpoint of a network that has taken three steps, through a file."""
    network, optimizer = start(optimizer)
    take_steps(network, optimizer)
    position = {"epoch": 0, "step": 3, "losses": torch.zeros(3)}
    checkpoint.save(path, checkpoint.snapshot(network, optimizer) | position)
    return checkpoint.load(path)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_restored_network_continues_with_the_same_bits(tmp_path, name):
    network, optimizer = start(name)
    take_steps(network, optimizer)
    restored, new_optimizer = start(name)
    checkpoint.restore(saved_state(name, tmp_path / "c.pt"), restored, new_optimizer)
    for each in ((network, optimizer), (restored, new_optimizer)):
        take_steps(*each)
    assert all(map(torch.equal, network.state_dict().values(), restored.state_dict().values()))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_state_that_was_created_before_the_first_step_gives_the_same_bits(name):
    network, optimizer = start(name)
    plain = copy.deepcopy(network)
    take_steps(network, optimizer)
    take_steps(plain, OPTIMIZERS[name](plain.parameters()))
    assert all(map(torch.equal, network.state_dict().values(), plain.state_dict().values()))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_created_state_is_what_torch_creates(name):
    _, optimizer = start(name)
    network = copy.deepcopy(start(name)[0])
    lazy = OPTIMIZERS[name](network.parameters())
    for parameter in network.parameters():
        parameter.grad = torch.zeros_like(parameter)
    lazy.step()
    for created, expected in zip(optimizer.state.values(), lazy.state.values(), strict=True):
        assert list(created) == list(expected)
        for key, value in expected.items():
            assert (created[key].dtype, created[key].device) == (value.dtype, value.device)
            assert (created[key].shape, created[key].stride()) == (value.shape, value.stride())
            assert not created[key].requires_grad and not created[key].any()


def test_missing_state_of_adamw_is_refused(tmp_path):
    state = saved_state("adamw", tmp_path / "c.pt")
    state["optimizer"]["state"][1] = {}
    with pytest.raises(InputError, match="its optimizer state of parameter 1 have no 'step'"):
        checkpoint.restore(state, *start("adamw"))


def test_restored_tensors_own_their_memory_and_keep_the_layout_of_the_parameter(tmp_path):
    state = saved_state("sgd", tmp_path / "c.pt")
    network, optimizer = start("sgd")
    checkpoint.restore(state, network, optimizer)
    for parameter, entry in optimizer.state.items():
        assert entry["momentum_buffer"].stride() == parameter.stride()
    for saved in state["optimizer"]["state"].values():
        for value in saved.values():
            value.fill_(7)
    assert not any((entry["momentum_buffer"] == 7).any() for entry in optimizer.state.values())


def test_views_of_larger_tensors_are_saved_without_the_rest(tmp_path):
    network = nn.Linear(4, 4)
    flat = torch.randn(100)
    network.weight.data = flat[10:26].view(4, 4).T
    optimizer = build("sgd", network)
    network(torch.randn(3, 4)).sum().backward()
    optimizer.step()
    checkpoint.save(
        tmp_path / "c.pt",
        checkpoint.snapshot(network, optimizer) | {"epoch": 0, "step": 1, "losses": torch.zeros(1)},
    )
    restored = nn.Linear(4, 4)
    checkpoint.restore(checkpoint.load(tmp_path / "c.pt"), restored, build("sgd", restored))
    assert torch.equal(restored.weight, network.weight)


DAMAGES = {
    "one number": lambda value: torch.zeros(1, dtype=value.dtype),
    "expanded": lambda value: (
        torch.zeros(1, dtype=value.dtype).expand(2, *value.shape)[0] if value.dim() else value[None]
    ),
    "expanded to 3e9 numbers": lambda value: torch.zeros(1, dtype=value.dtype).expand(3 * 10**9),
    "half": lambda value: value.flatten()[: value.numel() // 2].clone(),
    "three times": lambda value: torch.cat([value.reshape(-1)] * 3),
    "transposed shape": lambda value: torch.zeros((*value.shape, 1)).T.contiguous(),
    "a view of a larger tensor": lambda value: torch.zeros(2, *value.shape, dtype=value.dtype)[1],
    "not contiguous": lambda value: torch.zeros(2, *value.shape, dtype=value.dtype).movedim(0, -1)[..., 0],
    "double": lambda value: value.double(),
    "int": lambda value: value.int(),
    "complex": lambda value: value.to(torch.complex64),
    "a number": lambda value: 3.0,
    "a list": lambda value: value.tolist(),
    "none": lambda value: None,
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(("optimizer", "name"), STATE)
def test_optimizer_state_that_does_not_match_its_parameter_is_refused(tmp_path, optimizer, name, damage):
    state = saved_state(optimizer, tmp_path / "c.pt")
    entry = state["optimizer"]["state"][0]
    entry[name] = DAMAGES[damage](entry[name])
    torch.save(state, tmp_path / "c.pt")
    with pytest.raises(InputError, match=rf"{name} of parameter 0 must be a contiguous float32 tensor of shape \("):
        checkpoint.restore(checkpoint.load(tmp_path / "c.pt"), *start(optimizer))


@pytest.mark.parametrize("damage", DAMAGES)
def test_weights_that_do_not_match_the_encoder_are_refused(tmp_path, damage):
    state = saved_state("sgd", tmp_path / "c.pt")
    state["learner"]["layer.weight"] = DAMAGES[damage](state["learner"]["layer.weight"])
    torch.save(state, tmp_path / "c.pt")
    with pytest.raises(InputError, match=r"layer\.weight must be a contiguous float32 tensor of shape \(5, 6\)"):
        checkpoint.restore(checkpoint.load(tmp_path / "c.pt"), *start("sgd"))


def test_a_sparse_tensor_is_refused(tmp_path):
    state = saved_state("sgd", tmp_path / "c.pt")
    state["learner"]["layer.weight"] = state["learner"]["layer.weight"].to_sparse()
    with pytest.raises(InputError, match=r"layer\.weight must be a contiguous float32 tensor"):
        checkpoint.restore(state, *start("sgd"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.clear(), "its optimizer state have no 0"),
        (lambda state: state.pop(0), "its optimizer state have no 0"),
        (lambda state: state.update({99: state[0]}), "its optimizer state have unknown 99"),
        (lambda state: state.update({0: torch.zeros(2)}), "its optimizer state of parameter 0 must be a dict"),
        (lambda state: state[0].clear(), "its optimizer state of parameter 0 have no 'momentum_buffer'"),
        (lambda state: state[0].update(more=torch.zeros(5, 6)), "parameter 0 have unknown 'more'"),
        (lambda state: state[0].update({torch.zeros(3): 1}), "parameter 0 have unknown tensor"),
        (lambda state: state.update({0: {"exp_avg": state[0]["momentum_buffer"]}}), "have no 'momentum_buffer'"),
    ],
)
def test_missing_or_unknown_optimizer_state_is_refused(tmp_path, change, message):
    state = saved_state("sgd", tmp_path / "c.pt")
    change(state["optimizer"]["state"])
    with pytest.raises(InputError, match=message):
        checkpoint.restore(state, *start("sgd"))


@pytest.mark.parametrize(
    "groups",
    ["none", [], [{"lr": torch.zeros(1).expand(3 * 10**9)}], [{"params": [3, 2, 1], "momentum": 7.0}], [[[]]]],
    ids=["a string", "empty", "a huge lr", "other options", "nested lists"],
)
def test_options_of_the_optimizer_in_a_checkpoint_are_not_used(tmp_path, groups):
    state = saved_state("sgd", tmp_path / "c.pt")
    torch.save(state | {"optimizer": state["optimizer"] | {"param_groups": groups}}, tmp_path / "c.pt")
    network, optimizer = start("sgd")
    before = copy.deepcopy([{**group, "params": []} for group in optimizer.param_groups])
    checkpoint.restore(checkpoint.load(tmp_path / "c.pt"), network, optimizer)
    assert [{**group, "params": []} for group in optimizer.param_groups] == before


def test_metadata_of_a_checkpoint_cannot_replace_the_parameters(tmp_path):
    state = saved_state("sgd", tmp_path / "c.pt")
    state["learner"] = OrderedDict(state["learner"])
    state["learner"]._metadata = {"layer": {"assign_to_params_buffers": True}}
    torch.save(state, tmp_path / "c.pt")
    state = checkpoint.load(tmp_path / "c.pt")
    network, optimizer = start("sgd")
    memory = network.layer.weight.data_ptr()
    checkpoint.restore(state, network, optimizer)
    assert network.layer.weight.data_ptr() == memory


def test_a_checkpoint_that_may_not_be_read_is_not_said_to_be_damaged(tmp_path, monkeypatch):
    def fail(*args, **options):
        raise PermissionError(errno.EACCES, "Permission denied")

    (tmp_path / "c.pt").touch()
    monkeypatch.setattr(Path, "open", fail)  # root may read every file
    with pytest.raises(InputError, match=r"^cannot read checkpoint .*: Permission denied$"):
        checkpoint.load(tmp_path / "c.pt")


@pytest.mark.parametrize("trick", ["compressed", "same record twice"])
def test_a_file_that_claims_more_memory_than_it_is_long_is_refused(tmp_path, trick):
    path = tmp_path / "c.pt"
    state = saved_state("sgd", path) | {"losses": torch.zeros(10**6)}
    torch.save(state, path)
    with zipfile.ZipFile(path) as original:
        records = {info: original.read(info) for info in original.infolist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED if trick == "compressed" else zipfile.ZIP_STORED) as archive:
        for info, content in records.items():
            archive.writestr(info.filename, content)
        if trick == "same record twice":
            largest = max(archive.infolist(), key=lambda info: info.file_size)
            archive.infolist().append(largest)
    with pytest.raises(InputError, match=r"c\.pt is damaged or not a checkpoint \(its records are longer"):
        checkpoint.load(path)
