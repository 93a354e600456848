"""`--config FILE`."""

import json
from dataclasses import asdict, replace

import pytest

import imix
from imix.cli.app import build_app
from imix.cli.flags import DataFlags, TrainingFlags
from imix.settings import DataSettings, Settings


@pytest.fixture
def parse(tmp_path):
    def parse(content, *flags, command="pretrain"):
        path = tmp_path / "config.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        out = ["--out", "run"] if command == "pretrain" else []
        _, arguments, _ = build_app().parse_args([command, "digits", *out, "--config", str(path), *flags])
        settings = Settings(**vars(arguments.kwargs.get("settings", TrainingFlags())))
        return settings, DataSettings(**vars(arguments.kwargs.get("data_settings", DataFlags())))

    return parse


OPTIONS = {"method": "moco", "epochs": 3, "lr": 1, "milestones": [1, 2], "compile": False, "augment": None}
DATA_OPTIONS = {"label": "y", "columns": {"home city": "drop"}, "fraction": 0.5}
EXPECTED = (
    Settings(method="moco", epochs=3, lr=1.0, milestones=(1, 2), compile=False),
    DataSettings(label="y", columns={"home city": "drop"}, fraction=0.5),
)


@pytest.mark.parametrize(
    "content",
    [
        {"settings": OPTIONS, "data_settings": DATA_OPTIONS},
        {"settings": OPTIONS, "data": {"name": "pets", "settings": DATA_OPTIONS}, "versions": {}},
        OPTIONS | DATA_OPTIONS,
    ],
)
@pytest.mark.parametrize("command", ["pretrain", "bench"])
def test_all_forms_of_the_file_give_the_same_settings(parse, content, command):
    assert parse(content, command=command) == EXPECTED


def test_names_may_have_hyphens_as_on_the_command_line(parse):
    assert parse({"batch-size": 64, "data-dir": "here"}) == (Settings(batch_size=64), DataSettings(data_dir="here"))


def test_every_setting_can_be_in_the_file(parse):
    lists = {"augment_columns": ("a", "b"), "milestones": (1, 2)}
    settings = Settings(masking=0.1, lr=0.3, warmup=2, compile=True, head="mlp", augment="none", **lists)
    data_settings = DataSettings(
        label="a", columns={"b": "drop"}, test="c", data_dir="d", image_size=48, seconds=1.5, header="no"
    )
    content = json.loads(json.dumps(asdict(settings) | asdict(data_settings)))
    assert parse(content) == (settings, data_settings)
    assert parse(json.loads(json.dumps(asdict(Settings()) | asdict(DataSettings())))) == (Settings(), DataSettings())


def test_flags_override_the_file(parse):
    settings, data_settings = parse(OPTIONS | DATA_OPTIONS, "--epochs", "5", "--compile", "--columns", "a", "numeric")
    assert (settings.method, settings.epochs, settings.compile) == ("moco", 5, True)
    assert (data_settings.label, data_settings.columns) == ("y", {"a": "numeric"})
    assert parse(OPTIONS, "--compile=none", "--milestones")[0] == Settings(method="moco", epochs=3, lr=1.0)


def test_a_run_is_repeated_with_its_own_config(run_cli, tmp_path):
    flags = ["--epochs", "2", "--encoder", "mlp:16-32", "--device", "cpu", "--masking", "0.1", "--fraction", "0.5"]
    assert run_cli("pretrain", "digits", "--out", tmp_path / "a", *flags)[0] == 0
    config = tmp_path / "a" / "config.json"
    assert run_cli("pretrain", "digits", "--out", tmp_path / "b", "--config", config)[0] == 0
    assert run_cli("pretrain", "digits", "--out", tmp_path / "c", "--config", config, "--seed", "1")[0] == 0
    first, second, other_seed = (imix.load_run(tmp_path / name).config for name in "abc")
    assert (first.settings, first.data.settings) == (second.settings, second.data.settings)
    weights = [(tmp_path / name / "encoder.safetensors").read_bytes() for name in "abc"]
    assert weights[0] == weights[1] != weights[2]
    assert other_seed.settings == replace(first.settings, seed=1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"epoch": 3}, "unknown key 'epoch' in the config file '{}' (did you mean 'epochs'?)"),
        ({"settings": {"labl": "y"}}, "unknown key 'labl' in the config file '{}'"),
        ({"data_settings": {"labl": "y"}}, "unknown key 'labl' in the config file '{}' (did you mean 'label'?)"),
        ({"settings": {}, "dta_settings": {}}, "unknown key 'dta_settings' in the config file '{}' (did you mean"),
        ({"epochs": 2.5}, 'invalid value for [epochs] from {}: unable to convert "2.5" into int'),
        ({"epochs": [3, 4]}, 'invalid value for [epochs] from {}: unable to convert "[3, 4]" into int'),
        ({"dim": None}, 'invalid value for [dim] from {}: unable to convert "null" into int'),
        ({"epochs": "long"}, 'invalid value for [epochs] from {}: unable to convert "long" into int'),
        ({"epochs": 0}, "--epochs must be above 0; got 0"),
        ({"method": "dino"}, 'invalid value "dino" for [method] from {}. Choose from: "npair"'),
        ({"columns": ["a"]}, "invalid value for [columns]: expected pairs"),
        ({"columns": {"a": "number"}}, "unknown kind 'number' for column 'a'"),
        ({"settings": 3}, "config file '{}': settings must be a JSON object; got 3"),
        ([1], "config file '{}': the file must be a JSON object; got [1]"),
        ("{", "the config file '{}' is not valid JSON: "),
        (None, "cannot read the config file '{}': No such file or directory"),
    ],
)
def test_an_invalid_file_is_a_one_line_error(run_cli, tmp_path, content, message):
    path = tmp_path / "config.json"
    if content is not None:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    code, out, err = run_cli("pretrain", "digits", "--out", tmp_path / "run", "--config", path)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("imix: " + message.replace("{}", str(path)))
