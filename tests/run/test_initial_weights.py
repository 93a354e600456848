"""Weights that a run starts from: `init`."""

import json
from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import imix
from imix.run.initial_weights import read_initial_weights
from tests.chaos.corpus import write_image

QUICK = {"epochs": 1, "batch_size": 16, "lr": 1e-30, "weight_decay": 0.0, "device": "cpu", "progress": False}
FRAME = pd.DataFrame({"age": [20.0, 31, 45, 62] * 8, "city": ["Rome", "Oslo", "Bern", "Rome"] * 8})


@pytest.fixture(autouse=True)
def _no_network(monkeypatch, tmp_path):
    def refuse(*args, **kwargs):
        raise OSError("no network")

    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setattr("torch.hub.urlopen", refuse)


@pytest.fixture(scope="module")
def rows():
    return torch.randn(32, 5, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def folder(rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "first"
    imix.pretrain(rows, encoder="mlp:16-16", out=path, seed=3, **QUICK)
    return path


def linear():
    return nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4))


def assert_starts_from(run, state):
    """The learning rate is so small that training does not change the weights (batch statistics change)."""
    for name, value in run.encoder[-1].named_parameters():
        torch.testing.assert_close(value, state[name], rtol=0, atol=1e-12)


def weights(folder):
    return imix.load_encoder(folder)[-1].state_dict()


def test_a_run_folder_gives_its_architecture_and_weights(folder, rows):
    run = imix.pretrain(rows, init=folder, **QUICK)
    assert run.settings.encoder == "mlp:16-16"
    assert_starts_from(run, weights(folder))


def test_momentum_networks_start_from_the_same_weights(folder, rows):
    assert_starts_from(imix.pretrain(rows, init=folder, method="moco", queue=32, **QUICK), weights(folder))


def test_config_stores_the_absolute_path(folder, rows, tmp_path, monkeypatch):
    monkeypatch.chdir(folder.parent)
    imix.pretrain(rows, init="first", out=tmp_path / "run", **QUICK)
    assert json.loads((tmp_path / "run/config.json").read_text())["settings"]["init"] == str(folder)


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".safetensors"])
@pytest.mark.parametrize("prefix", ["", "module.", "backbone.", "model.encoder."])
def test_files_with_any_common_prefix(suffix, prefix, rows, tmp_path):
    state = linear().state_dict()
    stored = {prefix + name: value for name, value in state.items()} | {prefix + "fc.weight": torch.ones(3, 4)}
    save = save_file if suffix == ".safetensors" else torch.save
    save(stored, tmp_path / f"weights{suffix}")
    run = imix.pretrain(rows, encoder=linear(), init=tmp_path / f"weights{suffix}", **QUICK)
    assert_starts_from(run, state)


def test_an_encoder_file_written_by_imix_gives_its_architecture_too(folder, rows):
    run = imix.pretrain(rows, init=folder / "encoder.safetensors", **QUICK)
    assert run.settings.encoder == "mlp:16-16"
    assert_starts_from(run, weights(folder))


def test_a_checkpoint_with_the_key_state_dict_and_without_batch_counts(rows, tmp_path):
    state = linear().state_dict()
    del state["1.num_batches_tracked"]
    torch.save(
        {"epoch": 3, "state_dict": {f"module.{name}": value.half() for name, value in state.items()}}, tmp_path / "a.pt"
    )
    run = imix.pretrain(rows, encoder=linear(), init=tmp_path / "a.pt", **QUICK)
    assert_starts_from(run, {name: value.half().float() for name, value in state.items()})


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda state: state.pop("0.bias"), r"missing: 0\.bias$"),
        (lambda state: state.update({"2.weight": torch.ones(2)}), r"unexpected: 2\.weight$"),
        (
            lambda state: state.update({"0.weight": torch.ones(4, 6)}),
            r"0\.weight is float32 \(4, 6\) instead of float32 \(4, 5\)",
        ),
        (
            lambda state: state.update({"0.bias": torch.ones(4, dtype=torch.int8)}),
            r"0\.bias is int8 \(4,\) instead of float32",
        ),
    ],
)
def test_weights_that_do_not_match_are_named(change, problem, rows, tmp_path):
    state = linear().state_dict()
    change(state)
    torch.save(state, tmp_path / "a.pt")
    module = linear()
    before = module[0].weight.clone()
    with pytest.raises(imix.InputError, match=rf"a\.pt' do not match encoder 'custom'; .*{problem}"):
        imix.pretrain(rows, encoder=module, init=tmp_path / "a.pt", **QUICK)
    assert torch.equal(module[0].weight, before)


def test_a_file_with_two_encoders_is_refused(rows, tmp_path):
    state = {
        f"{part}.{name}": value for part in ("encoder_q", "encoder_k") for name, value in linear().state_dict().items()
    }
    torch.save(state, tmp_path / "moco.pt")
    with pytest.raises(imix.InputError, match=r"several encoders: encoder_k\., encoder_q\.; save the weights of one"):
        imix.pretrain(rows, encoder=linear(), init=tmp_path / "moco.pt", **QUICK)


class NotATensor:
    """A class that must not be created by loading a file."""


@pytest.mark.parametrize("content", [NotATensor(), {"epoch": 3}, {}, [torch.ones(2)]])
def test_files_that_are_not_state_dicts(content, tmp_path):
    torch.save(content, tmp_path / "a.pt")
    with pytest.raises(imix.InputError, match=r"a\.pt' is not a state dict|cannot read the weights in .*a\.pt'"):
        read_initial_weights(str(tmp_path / "a.pt"))


def test_damaged_files(tmp_path):
    for suffix in (".pt", ".safetensors"):
        path = tmp_path / f"a{suffix}"
        path.write_bytes(b"not weights")
        with pytest.raises(imix.InputError, match="cannot read the weights in"):
            read_initial_weights(str(path))


@pytest.mark.parametrize("init", ["nosuch", "nosuch.pt", "resnet18"])
def test_unknown_source_error_lists_what_is_allowed(init, rows):
    with pytest.raises(imix.InputError, match=rf"`init='{init}'` must be a run folder, a file .*IMAGENET1K_V1"):
        imix.pretrain(rows, init=init, **QUICK)


def test_a_folder_that_is_not_a_run(rows, tmp_path):
    with pytest.raises(imix.InputError, match="not a run folder"):
        imix.pretrain(rows, init=tmp_path, **QUICK)


def test_a_run_with_another_encoder_or_another_shape_is_refused(folder, rows):
    with pytest.raises(imix.InputError, match=r"do not match encoder 'mlp:8-16'; .*instead of float32 \(8, 5\)"):
        imix.pretrain(rows, init=folder, encoder="mlp:8-16", **QUICK)
    with pytest.raises(
        imix.InputError, match=r"do not match encoder 'mlp:16-16'; .*\(16, 5\) instead of float32 \(16, 3\)"
    ):
        imix.pretrain(rows[:, :3], init=folder, **QUICK)


def test_a_run_with_a_user_supplied_encoder_needs_the_module(rows, tmp_path):
    first = imix.pretrain(rows, encoder=linear(), out=tmp_path / "run", **QUICK)
    with pytest.raises(imix.InputError, match="has a user-supplied encoder; pass the module as `encoder`"):
        imix.pretrain(rows, init=tmp_path / "run", **QUICK)
    run = imix.pretrain(rows, init=tmp_path / "run", encoder=linear(), **QUICK)
    assert_starts_from(run, first.encoder[-1].state_dict())


# Tables


def test_a_table_is_encoded_as_in_the_initial_run(tmp_path):
    first = imix.pretrain(FRAME, encoder="mlp:8-8", out=tmp_path / "run", **QUICK)
    other = FRAME.assign(age=FRAME.age * 2)[FRAME.city != "Oslo"]
    run = imix.pretrain(other, init=tmp_path / "run", **QUICK)
    assert run.table == first.table
    assert_starts_from(run, first.encoder[-1].state_dict())


def test_a_table_with_other_columns_is_refused(folder, tmp_path):
    imix.pretrain(FRAME, encoder="mlp:8-8", out=tmp_path / "run", **QUICK)
    (tmp_path / "images").mkdir()
    for i in range(4):
        write_image(tmp_path / "images" / f"{i}.png", seed=i)
    options = QUICK | {"init": tmp_path / "run"}
    with pytest.raises(imix.InputError, match="does not have the columns of the run; missing: 'city'"):
        imix.pretrain(FRAME[["age"]], **options)
    with pytest.raises(imix.InputError, match="not encoded as in the run"):
        imix.pretrain(imix.data.load(FRAME.assign(age=FRAME.age + 1)), **options)
    with pytest.raises(imix.InputError, match=rf"is a table, unlike the data of the run in '{folder}'$"):
        imix.pretrain(FRAME, **QUICK | {"init": folder})
    with pytest.raises(imix.InputError, match=rf"is not a table, unlike the data of the run in '{tmp_path}/run'$"):
        imix.pretrain(tmp_path / "images", **options)
    with pytest.raises(imix.InputError, match="has no labels in a column 'churned'"):
        imix.pretrain(FRAME, label="churned", **options)


@pytest.mark.parametrize("name", ["encoder.safetensors", "best_encoder.safetensors"])
def test_an_encoder_file_of_a_table_run_is_its_run(name, tmp_path):
    options = QUICK | {"keep_best": "effective_rank"}
    first = imix.pretrain(FRAME, encoder="mlp:8-8", out=tmp_path / "run", **options)
    options = QUICK | {"init": tmp_path / "run" / name}
    assert imix.pretrain(FRAME.assign(age=FRAME.age * 2), **options).table == first.table
    with pytest.raises(imix.InputError, match="does not have the columns of the run; missing: 'city'"):
        imix.pretrain(FRAME.rename(columns={"city": "town"}), **options)
    (tmp_path / name).write_bytes((tmp_path / "run" / name).read_bytes())
    with pytest.raises(imix.InputError, match="is the encoder of a table; pass its run folder, which has the table"):
        imix.pretrain(FRAME, **options | {"init": tmp_path / name})


# Resuming


@pytest.mark.parametrize("again", [{}, {"init": None, "encoder": "mlp:16-16"}, {"init": "nosuch"}])
def test_resume_ignores_init(again, folder, rows, tmp_path):
    options = QUICK | {"out": tmp_path / "run", "init": tmp_path / "source"}
    (tmp_path / "source").symlink_to(folder)
    first = imix.pretrain(rows, **options)
    (tmp_path / "source").unlink()
    run = imix.pretrain(rows, **options | again, resume=True)
    assert run.settings == first.settings
    assert_starts_from(run, first.encoder[-1].state_dict())


def test_resume_without_checkpoint_starts_from_the_stored_init(folder, rows, tmp_path):
    options = QUICK | {"out": tmp_path / "run", "encoder": "mlp:16-16"}
    imix.pretrain(rows, init=folder, **options)
    (tmp_path / "run/checkpoint.pt").unlink()
    assert_starts_from(imix.pretrain(rows, resume=True, **options), weights(folder))


# torchvision


def cache_torchvision_weights(folder):
    import torchvision

    state = torchvision.models.resnet18().state_dict()
    url = torchvision.models.ResNet18_Weights.IMAGENET1K_V1.url
    (folder / "hub/checkpoints").mkdir(parents=True)
    torch.save(state, folder / "hub/checkpoints" / Path(url).name)
    return state


@pytest.mark.slow
def test_torchvision_weights_from_the_cache(tmp_path):
    state = cache_torchvision_weights(tmp_path / "torch")
    options = QUICK | {"init": "ResNet18_Weights.IMAGENET1K_V1", "batch_size": 2}
    images = torch.rand(4, 3, 32, 32)
    run = imix.pretrain(images, encoder="resnet18:standard", **options)
    assert run.settings.init == "ResNet18_Weights.IMAGENET1K_V1"
    assert_starts_from(run, state)
    with pytest.raises(
        imix.InputError, match=r"conv1\.weight is float32 \(64, 3, 7, 7\) instead of float32 \(64, 3, 3, 3\)"
    ):
        imix.pretrain(images, encoder="resnet18", **options)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("ResNet18_Weights.IMAGENET1K_V1", "no network"),
        ("ResNet18_Weights.NOSUCH", "NOSUCH"),
        ("No_Weights.X", "No_Weights"),
    ],
)
def test_torchvision_weights_that_cannot_be_loaded(name, reason):
    with pytest.raises(imix.InputError, match=f"^cannot load the torchvision weights '{name}': .*{reason}"):
        read_initial_weights(name)
