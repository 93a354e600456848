"""config.json: the round trip through JSON, defaults, format versions, and errors for damaged files."""

import copy
import errno
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

import imix
from imix import DataSettings, InputError, Settings
from imix.data import load
from imix.encoders.mel import Clip
from imix.files import write_json
from imix.run.config import FORMAT_VERSION, Architecture, DataConfig, RunConfig, read_config

FRAME = pa.table(
    {
        "age": [31.5, 45.0, None, 62.0, 18.0, 77.0],
        "city": ["Rome", "Oslo", None, "Oslo", "Rome", "Rome"],
        "member": [True, False, True, True, False, None],
        "since": np.array(["2020-01-01", "2021-06-05", "2022-02-03"] * 2, "datetime64[s]"),
        "id": ["a", "b", "c", "d", "e", "f"],
    }
)


def make_config(name: str, shape: tuple[int, ...] | None, encoder: str = "small", **values: object) -> RunConfig:
    """A config with some of the values of its data and architecture."""
    data = DataConfig(name, 6, shape, DataSettings(), table=None, fingerprint="0123456789abcdef")
    architecture = Architecture(encoder, shape, groups=(), standardize=True, clip=None)
    versions = {"imix": "0.1.0", "torch": "2.11.0", "python": "3.11.7"}
    return replace(RunConfig(Settings(), data, architecture, 1, {}, versions), **values)


def table_config() -> RunConfig:
    data = load(FRAME, DataSettings(label="id"))
    config = make_config("people.csv", data.train.shape)
    return replace(
        config,
        data=replace(config.data, settings=data.settings, table=data.table),
        architecture=replace(config.architecture, groups=data.table.groups, standardize=False),
    )


def audio_config() -> RunConfig:
    config = make_config("words", (1, 4000))
    data = replace(config.data, settings=DataSettings(seconds=0.25, n_mels=64), fingerprint=None)  # streamed
    clip = Clip(samples=4000, n_mels=64)
    return replace(config, data=data, architecture=replace(config.architecture, standardize=False, clip=clip))


def image_config() -> RunConfig:
    settings = Settings(method="moco", mix="cutmix", encoder="resnet18", lr=0.1, milestones=(60, 80), warmup=3)
    config = make_config("photos", (3, 64, 64), "resnet18", settings=settings, ranks=2)
    return replace(config, user_supplied={"augment": "Flip", "mix": "MyMix"})


def fields_config() -> RunConfig:
    return make_config("in-memory data", None, "custom")


CONFIGS = {"table": table_config, "audio": audio_config, "images": image_config, "several fields": fields_config}


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_config_is_the_same_after_a_round_trip_through_json(kind, tmp_path):
    config = CONFIGS[kind]()
    value = config.to_json()
    assert json.loads(json.dumps(value)) == value and value["format"] == FORMAT_VERSION
    assert RunConfig.from_json(copy.deepcopy(value)) == config
    write_json(tmp_path / "config.json", value)
    assert read_config(tmp_path) == config


def test_the_config_of_a_trained_run_is_the_same_as_the_stored_one(tmp_path):
    rows = imix.Settings(epochs=1, batch_size=4, encoder="mlp:8-8", device="cpu")
    for name, data in {"table": FRAME, "rows": np.ones((8, 3))}.items():
        run = imix.pretrain(data, rows, out=tmp_path / name, progress=False)
        assert imix.load_run(tmp_path / name).config == run.config
    fields = {"a": torch.randn(8, 3), "b": torch.randn(8, 2)}
    encoder = FieldsEncoder()
    run = imix.pretrain(fields, rows, encoder=encoder, augment=dict, out=tmp_path / "fields", progress=False)
    assert run.config.architecture.shape is None and run.config.architecture.is_custom
    assert imix.load_run(tmp_path / "fields", FieldsEncoder()).config == run.config


class FieldsEncoder(torch.nn.Module):
    """Encodes samples with the fields `a` and `b`."""

    def __init__(self):
        super().__init__()
        self.width = 4
        self.layer = torch.nn.Linear(5, 4)

    def forward(self, x):
        return self.layer(torch.cat([x["a"], x["b"]], 1))


@pytest.mark.parametrize("version", [0, 2, "1.5", None, ["x" * 1000] * 1000])
def test_another_format_version_is_rejected_and_both_versions_are_named(tmp_path, version):
    write_json(tmp_path / "config.json", image_config().to_json() | {"format": version})
    with pytest.raises(InputError, match=rf"was written in format .* reads format {FORMAT_VERSION}$") as error:
        read_config(tmp_path)
    assert str(tmp_path) in str(error.value) and len(str(error.value)) < 600
    assert isinstance(version, list) or f"format {version!r}," in str(error.value)


def test_settings_that_a_config_lacks_get_their_defaults(tmp_path):
    value = image_config().to_json()
    del value["settings"]["temperature"], value["data"]["settings"]["n_mels"]
    write_json(tmp_path / "config.json", value)
    assert read_config(tmp_path) == image_config()
    value["settings"] = value["data"]["settings"] = {}
    write_json(tmp_path / "config.json", value)
    config = read_config(tmp_path)
    assert (config.settings, config.data.settings) == (Settings(), DataSettings())


def damaged(config: RunConfig, path: tuple[object, ...], new: object = ...) -> dict:
    """The config as JSON, with another value at a path, or without it."""
    value = section = config.to_json()
    for key in path[:-1]:
        section = section[key]
    if new is ...:
        del section[path[-1]]
    else:
        section[path[-1]] = new
    return value


@pytest.mark.parametrize(
    "path",
    [
        *(("settings",), ("data",), ("architecture",), ("ranks",), ("user_supplied",), ("versions",)),
        *(("data", name) for name in ("name", "samples", "shape", "settings", "table", "fingerprint")),
        *(("architecture", name) for name in ("encoder", "shape", "groups", "standardize", "clip")),
        *(("data", "table", "columns"), ("data", "table", "ignored"), ("data", "table", "columns", 0, "mean")),
    ],
    ids=str,
)
def test_a_missing_key_is_rejected_by_name(tmp_path, path):
    write_json(tmp_path / "config.json", damaged(table_config(), path))
    message = rf"^config\.json in '{tmp_path}' is damaged: [\w.\[\]]*{path[-1]} is missing$"
    with pytest.raises(InputError, match=message):
        read_config(tmp_path)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("settings", "sparkle"), 3, "unknown key 'sparkle' in settings"),
        (("data", "settings", "sparkle"), 3, "unknown key 'sparkle' in data.settings"),
        (("sparkle",), 3, "unknown key 'sparkle'"),
        (("settings",), [], "settings must be an object; got []"),
        (("settings", "epochs"), "ten", "settings.epochs must be an integer; got 'ten'"),
        (("settings", "epochs"), True, "settings.epochs must be an integer; got True"),
        (("settings", "epochs"), 0, "`epochs` must be above 0; got 0"),
        (("settings", "alpha"), float("nan"), "`alpha` must be a number; got nan"),
        (("settings", "fold"), 1, "settings.fold must be true or false; got 1"),
        (("settings", "encoder"), None, "settings.encoder must be a string; got None"),
        (("settings", "milestones"), [1, "2"], "settings.milestones[1] must be an integer; got '2'"),
        (("settings", "mix"), "blend", "settings.mix must be one of mixup, cutmix, none; got 'blend'"),
        (("data", "name"), 3, "data.name must be a string; got 3"),
        (("data", "samples"), 7.5, "data.samples must be an integer; got 7.5"),
        (("data", "shape"), "12", "data.shape must be a list; got '12'"),
        (("data", "settings", "columns"), {"a": 3}, "data.settings.columns['a'] must be a string; got 3"),
        (("data", "settings", "columns"), {"a": "x"}, "unknown kind 'x' for column 'a'; choose from"),
        (("data", "fingerprint"), 12, "data.fingerprint must be a string; got 12"),
        (("architecture",), None, "architecture must be an object; got None"),
        (("architecture", "shape"), [3, "x"], "architecture.shape[1] must be an integer; got 'x'"),
        (("architecture", "clip"), {"volume": 11}, "unknown key 'volume' in architecture.clip"),
        (("architecture", "standardize"), "yes", "architecture.standardize must be true or false; got 'yes'"),
        (("ranks",), "2", "ranks must be an integer; got '2'"),
        (("user_supplied", "mix"), None, "user_supplied['mix'] must be a string; got None"),
        (("versions",), ["0.1"], "versions must be an object; got ['0.1']"),
    ],
)
def test_a_wrong_value_is_rejected_by_name(tmp_path, path, value, message):
    write_json(tmp_path / "config.json", damaged(image_config(), path, value))
    with pytest.raises(InputError) as error:
        read_config(tmp_path)
    assert str(error.value).startswith(f"config.json in {str(tmp_path)!r} is damaged: {message}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ((), 3, "table must be an object; got 3"),
        (("columns",), {}, "table.columns must be a list; got {}"),
        (("columns",), [3], "table.columns[0] must be an object; got 3"),
        (("columns", 0, "mean"), 7.0, "table.columns[0].mean must be a list; got 7.0"),
        (("columns", 0, "mean"), ["x"], "table.columns[0].mean[0] must be a number; got 'x'"),
        (("columns", 0, "has_missing"), 1, "table.columns[0].has_missing must be true or false; got 1"),
        (("columns", 0, "kind"), "categorical", "unknown key 'parts' in table.columns[0]"),
        (("columns", 0, "kind"), None, "table.columns[0].kind must be a string; got None"),
        (("columns", -1, "values"), "Rome", "table.columns[3].values must be a list; got 'Rome'"),
        (("columns", -1, "values", 0), 5, "table.columns[3].values[0] must be a string; got 5"),
        (("ignored",), ["id"], "table.ignored must be an object; got ['id']"),
        (("ignored", "id"), [], "table.ignored['id'] must be a string; got []"),
    ],
)
def test_a_malformed_table_is_rejected_by_name(tmp_path, path, value, message):
    write_json(tmp_path / "config.json", damaged(table_config(), ("data", "table", *path), value))
    with pytest.raises(InputError) as error:
        read_config(tmp_path)
    assert str(error.value) == f"config.json in {str(tmp_path)!r} is damaged: {message}"


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", "{}", "\xff", "[" * 100_000, '{"format": ' * 100_000])
def test_a_file_that_is_not_a_config_is_rejected(tmp_path, text):
    (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=rf"^'{tmp_path}' is not a run folder: it has no valid config\.json$"):
        read_config(tmp_path)


@pytest.mark.parametrize("depth", [50, 500, 900, 100_000])
def test_deeply_nested_json_is_rejected(tmp_path, depth):
    text = json.dumps(image_config().to_json() | {"ranks": "DEEP"}).replace('"DEEP"', "[" * depth + "]" * depth)
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(InputError, match=rf"'{tmp_path}' is (not a run folder|damaged: ranks must be an integer)"):
        read_config(tmp_path)


def test_a_config_that_may_not_be_read_is_not_said_to_be_missing(tmp_path, monkeypatch):
    write_json(tmp_path / "config.json", image_config().to_json())

    def fail(*args, **options):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "read_text", fail)  # root may read every file
    with pytest.raises(InputError, match=rf"^cannot read config\.json in '{tmp_path}': Permission denied$"):
        read_config(tmp_path)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ((0, "kind"), "drop", r"table\.columns\[0\] is inconsistent"),
        ((0, "parts"), [], r"table\.columns\[0\] is inconsistent"),
        ((0, "parts"), ["year"], r"table\.columns\[0\] is inconsistent"),
        ((0, "mean"), [0.0, 0.0], r"table\.columns\[0\] is inconsistent"),
        ((0, "mean"), [float("nan")], r"table\.columns\[0\] is inconsistent"),
        ((0, "std"), [0.0], r"table\.columns\[0\] is inconsistent"),
        ((0, "median"), [], r"table\.columns\[0\] is inconsistent"),
        ((0, "name"), "member", r"table\.columns has two columns of the same name"),
        ((-1, "values"), [], r"is inconsistent"),
        ((-1, "values"), ["Rome", "Rome"], r"is inconsistent"),
        ((-1, "values"), ["Rome"], r"data\.table does not match the shape and groups of architecture"),
    ],
)
def test_a_table_that_contradicts_itself_or_the_encoder_is_rejected(tmp_path, path, value, message):
    write_json(tmp_path / "config.json", damaged(table_config(), ("data", "table", "columns", *path), value))
    with pytest.raises(InputError, match=message):
        read_config(tmp_path)


def test_a_folder_without_a_config_is_rejected(tmp_path):
    with pytest.raises(InputError, match="it has no valid config"):
        read_config(tmp_path)
    with pytest.raises(InputError, match=rf"no run folder '{tmp_path}/nothing'"):
        read_config(tmp_path / "nothing")
