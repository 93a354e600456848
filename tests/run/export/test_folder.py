"""Folders for the Hugging Face Hub: imix loads them like runs, timm loads the encoders it has, nothing is left half."""

import json
import re
import shutil
import sys

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import imix
from imix import InputError, StorageError
from imix.cli import main
from imix.run.export import export, folder
from imix.run.export.folder import timm_config
from tests.run.export.runs import RUNS, build_run

pytestmark = pytest.mark.slow

SMALL = imix.Settings(epochs=1, batch_size=16, encoder="mlp:16-32", device="cpu")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A CSV file with labels, and the folder of a run on it."""
    path = tmp_path_factory.mktemp("private")
    rows = "".join(f"{i * 0.37 % 5},{'red' if i % 3 else 'blue'},{'yes' if i % 2 else 'no'}\n" for i in range(60))
    (path / "customers.csv").write_text(f"age,color,churned\n{rows}")
    data_settings = imix.DataSettings(label="churned")
    imix.pretrain(path / "customers.csv", SMALL, data_settings, out=path / "run", progress=False)
    return path / "customers.csv", path / "run"


@pytest.fixture
def cli(monkeypatch):
    """A function that runs an `imix` command in this process and returns its exit code."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["imix", *map(str, arguments)])
        try:
            main()
        except SystemExit as error:
            return error.code
        return 0

    return run


@pytest.mark.parametrize("kind", RUNS)
def test_imix_loads_the_same_encoder_from_the_folder_and_from_its_weights_file(tmp_path, kind):
    run, out = RUNS[kind](), tmp_path / "model"
    instructions = export(run, "huggingface", out)
    assert f"imix.load_encoder({str(out)!r})" in instructions
    assert sorted(path.name for path in out.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    shutil.copy(out / "model.safetensors", tmp_path / "alone.safetensors")
    x = torch.rand(3, *run.config.architecture.shape)
    expected = run.encoder(x)
    for encoder in (
        imix.load_encoder(out),
        imix.load_run(out).encoder,
        imix.load_encoder(out / "model.safetensors"),
        imix.load_encoder(tmp_path / "alone.safetensors"),
    ):
        assert not encoder.training
        assert torch.equal(encoder(x), expected)


def test_the_weights_have_the_names_of_the_plain_backbone(tmp_path):
    run = build_run("mlp:16-32", (5,))
    export(run, "huggingface", tmp_path / "model")
    assert load_file(tmp_path / "model" / "model.safetensors").keys() == run.encoder[1].state_dict().keys()


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("resnet18:standard", (3, 32, 32)),
        ("resnet50:standard", (1, 32, 32)),
        ("resnet18:standard", (2, 32, 32)),
        ("timm:test_resnet", (3, 32, 32)),
        ("timm:test_efficientnet.r160_in1k", (1, 32, 32)),
        ("timm:test_vit", (3, 160, 160)),
        ("timm:test_convnext", (2, 64, 64)),
    ],
)
def test_timm_loads_the_folder(tmp_path, name, shape):
    run = build_run(name, shape)
    instructions = export(run, "huggingface", tmp_path / "model")
    assert f"timm.create_model('local-dir:{tmp_path}/model', pretrained=True)" in instructions
    model = timm.create_model(f"local-dir:{tmp_path}/model", pretrained=True).eval()
    x = torch.rand(2, *shape)
    assert torch.equal(model(run.encoder[0](x)), run.encoder(x))
    assert model.num_features == run.encoder[1].width
    inputs = timm.data.resolve_model_data_config(model)
    assert inputs["input_size"] == list(shape)
    assert inputs["mean"] == run.encoder[0].mean.tolist() and inputs["std"] == run.encoder[0].std.tolist()
    classifier = timm.create_model(f"local-dir:{tmp_path}/model", pretrained=True, num_classes=7).eval()
    assert classifier(run.encoder[0](x)).shape == (2, 7)


@pytest.mark.parametrize("kind", ["resnet, small stem", "mlp", "small, audio"])
def test_config_json_does_not_describe_a_model_that_timm_lacks(tmp_path, kind):
    run = RUNS[kind]()
    assert timm_config(run) is None
    assert "timm" not in export(run, "huggingface", tmp_path / "model")
    assert json.loads((tmp_path / "model" / "config.json").read_text()).keys() == {"imix"}


def test_tables_are_embedded_from_the_folder_as_from_the_run(table, tmp_path, cli, capsys):
    path, run = table
    expected = imix.embed(run, path, device="cpu")
    assert cli("export", run, "--format", "huggingface", "--out", tmp_path / "model") == 0
    assert "check that config.json may be shared: it contains column names" in capsys.readouterr().out
    assert np.array_equal(imix.embed(tmp_path / "model", path, device="cpu"), expected)
    import polars

    frame = polars.read_csv(path).drop("churned")
    assert np.array_equal(imix.embed(imix.load_run(tmp_path / "model"), frame, device="cpu"), expected)
    batch = imix.Embedder(tmp_path / "model", device="cpu")(frame)
    assert np.array_equal(np.stack(batch["embedding"].to_numpy()), expected)


def test_a_fine_tuned_run_predicts_from_the_folder(table, tmp_path):
    path, run = table
    tuned = imix.finetune(run, path, epochs=1, device="cpu", out=tmp_path / "tuned")
    export(tmp_path / "tuned", "huggingface", tmp_path / "model")
    expected = imix.predict(tuned, path, device="cpu")
    found = imix.predict(tmp_path / "model", path, device="cpu")
    assert found.classes == expected.classes
    assert np.array_equal(found.probabilities, expected.probabilities)


def test_a_user_supplied_encoder_is_loaded_into_a_module(tmp_path):
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 6))
    run = imix.pretrain("digits", SMALL, encoder=module, progress=False)
    assert "imix.load_encoder('" in export(run, "huggingface", tmp_path / "model")
    x = torch.rand(3, 1, 8, 8)
    copy = nn.Sequential(nn.Flatten(), nn.Linear(64, 6))
    assert torch.equal(imix.load_encoder(tmp_path / "model", copy)(x), run.encoder(x))
    assert torch.equal(imix.load_run(tmp_path / "model", encoder=copy).encoder(x), run.encoder(x))
    with pytest.raises(InputError, match="weights of a user-supplied encoder; pass the module"):
        imix.load_encoder(tmp_path / "model")


def test_the_folder_says_how_far_the_training_was(tmp_path):
    run = build_run("small", (5,))
    run.progress = "epoch 3 of 10, step 30 of 100"
    export(run, "huggingface", tmp_path / "model")
    assert imix.load_run(tmp_path / "model").progress == run.progress
    assert run.progress in (tmp_path / "model" / "README.md").read_text()


def test_no_file_contains_a_path(table, tmp_path):
    path, run = table
    shutil.copytree(run, tmp_path / "run")
    shutil.copy(path, tmp_path / "test.csv")
    settings = imix.Settings(epochs=1, init=run, device="cpu")
    data_settings = imix.DataSettings(label="churned", test=tmp_path / "test.csv")
    imix.pretrain(path, settings, data_settings, out=tmp_path / "second", progress=False)
    imix.evaluate(tmp_path / "second", test=str(tmp_path / "test.csv"), device="cpu", draws=2)
    export(tmp_path / "second", "huggingface", tmp_path / "model")
    for file in (tmp_path / "model").iterdir():
        assert str(path.parent).encode() not in file.read_bytes()
        assert str(tmp_path).encode() not in file.read_bytes()
    config = imix.load_run(tmp_path / "model").config
    assert (config.data.name, config.data.settings.test, config.settings.init) == ("customers.csv", "test.csv", "run")
    card = (tmp_path / "model" / "README.md").read_text()
    assert "test file test.csv" in card and "`customers.csv`" in card


def test_the_weights_and_settings_of_the_folder_start_another_run(table, tmp_path, cli):
    path, run = table
    export(run, "huggingface", tmp_path / "model")
    flags = ("--config", tmp_path / "model" / "config.json", "--init", tmp_path / "model")
    assert cli("pretrain", path, "--out", tmp_path / "next", *flags) == 0
    settings = imix.load_run(tmp_path / "next").settings
    assert (settings.encoder, settings.batch_size) == (SMALL.encoder, SMALL.batch_size)


def test_evaluations_are_not_written_to_the_folder_and_no_run_is_trained_in_it(table, tmp_path):
    path, run = table
    model = tmp_path / "model"
    export(run, "huggingface", model)
    before = {file.name: file.read_bytes() for file in model.iterdir()}
    assert 0 <= imix.evaluate(model, path, "knn", device="cpu").accuracy <= 1
    for options in ({}, {"overwrite": True}, {"resume": True}):
        with pytest.raises(InputError, match="is an exported encoder, not a run folder; choose another `out`"):
            imix.pretrain(path, SMALL, imix.DataSettings(label="churned"), out=model, **options)
    with pytest.raises(InputError, match="is an exported encoder"):
        imix.finetune(run, path, epochs=1, device="cpu", out=model, overwrite=True)
    assert {file.name: file.read_bytes() for file in model.iterdir()} == before


def test_only_an_earlier_export_is_replaced(tmp_path):
    first, second, model = build_run("small", (5,)), build_run("small", (4,)), tmp_path / "model"
    model.mkdir()
    export(first, "huggingface", model)  # an empty folder
    with pytest.raises(InputError, match="contains an earlier export; pass `overwrite=True`"):
        export(second, "huggingface", model)
    assert imix.load_run(model).config.architecture.shape == (5,)
    export(second, "huggingface", model, overwrite=True)
    assert imix.load_run(model).config.architecture.shape == (4,)
    (model / "LICENSE").write_text("mine")
    with pytest.raises(InputError, match="it contains other files, such as 'LICENSE'"):
        export(first, "huggingface", model, overwrite=True)
    assert imix.load_run(model).config.architecture.shape == (4,)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_other_folders_and_files_are_not_replaced(table, tmp_path, monkeypatch, cli, capsys):
    run = build_run("small", (5,))
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    save_file({"w": torch.ones(1)}, foreign / "model.safetensors")
    (foreign / "config.json").write_text('{"model_type": "bert"}')
    (foreign / "README.md").write_text("another model")
    shutil.copytree(table[1], tmp_path / "run")
    (tmp_path / "started").mkdir()
    shutil.copy(table[1] / "config.json", tmp_path / "started")
    (tmp_path / "file").write_text("content")
    (tmp_path / "here").mkdir()
    for name, message in {
        "foreign": "it is not an earlier export",
        "run": "it contains other files",
        "started": "it is not an earlier export",
        "file": "writes a folder, and this is a file",
        "no/model": "the folder .* does not exist",
    }.items():
        with pytest.raises(InputError, match=message):
            export(run, "huggingface", tmp_path / name, overwrite=True)
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(InputError, match="cannot replace the current folder"):
        export(run, "huggingface", ".")
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["file", "foreign", "here", "run", "started"]
    assert cli("export", table[1], "--format", "huggingface", "--out", foreign) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_failure_leaves_no_partial_folder(tmp_path, monkeypatch, overwrite):
    model = tmp_path / "model"
    if overwrite:
        export(build_run("small", (4,)), "huggingface", model)

    def fail(path, text):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folder, "write_text", fail)
    with pytest.raises(StorageError, match="No space left on device"):
        export(build_run("small", (5,)), "huggingface", model, overwrite=overwrite)
    assert [path.name for path in tmp_path.iterdir()] == (["model"] if overwrite else [])
    if overwrite:
        assert imix.load_run(model).config.architecture.shape == (4,)


@pytest.mark.parametrize("option", ["resume", "overwrite"])
def test_what_a_killed_export_left_in_a_run_folder_does_not_stop_the_run(table, tmp_path, option):
    path, run = table
    shutil.copytree(run, tmp_path / "run")
    leftover = tmp_path / "run" / ".123.model.unfinished"
    leftover.mkdir()
    (leftover / "model.safetensors").write_text("half")
    data_settings = imix.DataSettings(label="churned")
    imix.pretrain(path, SMALL, data_settings, out=tmp_path / "run", progress=False, **{option: True})
    assert not leftover.exists()


def edit_header(path, edit):
    """Change the imix entry of a safetensors header."""
    from safetensors.torch import save

    content = path.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
    entry = json.loads(header["imix"])
    edit(entry)
    path.write_bytes(save(load_file(path), header | {"imix": json.dumps(entry)}))


@pytest.mark.parametrize(
    ("statistics", "message"),
    [
        ("text", "not an encoder written by imix: input_statistics must be an object"),
        ({"mean": [0.0] * 5, "std": [1.0] * 5, "code": [1.0]}, "unknown key 'code'"),
        ({"mean": [0.0] * 4, "std": [1.0] * 4}, "do not match the encoder"),
        ({"mean": [0.0] * 5}, "do not match the encoder"),
        ({"mean": ["0"] * 5, "std": [1.0] * 5}, "must be a number"),
        ({"mean": [[0.0]] * 5, "std": [1.0] * 5}, "must be a number"),
        ({"mean": [10**400] * 5, "std": [1.0] * 5}, "must be a number"),
        ({}, "do not match the encoder"),
        (None, "do not match the encoder"),
    ],
)
def test_a_malicious_header_is_rejected(tmp_path, statistics, message):
    export(build_run("small", (5,)), "huggingface", tmp_path / "model")
    edit_header(tmp_path / "model" / "model.safetensors", lambda entry: entry.update(input_statistics=statistics))
    for load in (imix.load_encoder, imix.load_run):
        with pytest.raises(InputError, match=message):
            load(tmp_path / "model")


@pytest.mark.parametrize("content", ["[]", '{"imix": 3}', '{"imix": [1]}', '{"imix": {"format": 1}}', "{", '"imix"'])
def test_a_damaged_config_is_rejected(tmp_path, content):
    export(build_run("small", (5,)), "huggingface", tmp_path / "model")
    (tmp_path / "model" / "config.json").write_text(content)
    with pytest.raises(InputError, match=r"config\.json"):
        imix.load_run(tmp_path / "model")
    with pytest.raises(InputError, match=r"config\.json"):
        imix.load_encoder(tmp_path / "model")


def test_a_header_that_describes_a_huge_model_needs_no_memory(tmp_path):
    export(build_run("mlp:16-32", (5,)), "huggingface", tmp_path / "model")
    edit_header(
        tmp_path / "model" / "model.safetensors", lambda entry: entry.update(encoder="mlp:99999999-99999999996")
    )
    with pytest.raises(InputError, match=re.escape("model.safetensors")):
        imix.load_encoder(tmp_path / "model" / "model.safetensors")
