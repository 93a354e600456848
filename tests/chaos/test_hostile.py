"""Malicious files: nothing in them is executed, trusted, written elsewhere or shown as markup."""

import ast
import json
import os
import pickle
import resource
import struct
import zipfile
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import imix
from imix import InputError
from imix.run import checkpoint
from imix.run.classifier import HEAD_FILE, load_head
from imix.run.config import read_config
from imix.run.result import Result, Split
from tests.chaos import corpus
from tests.chaos.processes import SMALL, run_command, small_data

SOURCE = Path(imix.__file__).parent
ARCHITECTURE = {"encoder": "mlp:16-16", "shape": [6], "groups": [], "standardize": True, "clip": None}
RUN_FILES = ("encoder.safetensors", "config.json", "checkpoint.pt", "metrics.jsonl", "evaluations.jsonl")
FORBIDDEN_CALLS = ("eval", "exec", "pickle.load", "pickle.loads", "joblib.load", "os.system")


class MakesFolder:
    """Creates a folder when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a finished run."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    x, y = small_data()
    imix.evaluate(imix.pretrain(x, SMALL, labels=y, out=folder, progress=False), x, "knn", labels=y)
    return folder


@pytest.fixture
def run(finished, tmp_path):
    """A copy of the finished run that a test may damage."""
    (tmp_path / "run").mkdir()
    for path in finished.iterdir():
        (tmp_path / "run" / path.name).write_bytes(path.read_bytes())
    return tmp_path / "run"


def nested(depth):
    """A list in a list in a list ..."""
    value = []
    for _ in range(depth):
        value = [value]
    return value


def assert_short(error):
    """Assert that an error message is one short line."""
    message = str(error.value)
    assert len(message.splitlines()) == 1 and len(message) < 600


def resume(run):
    x, y = small_data()
    return imix.pretrain(x, SMALL, labels=y, out=run, resume=True, progress=False)


def test_the_library_never_unpickles():
    """Checks every call in the source: torch.load has weights_only=True and np.load has no allow_pickle."""
    loaders = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func)
            keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            assert name not in FORBIDDEN_CALLS, path
            assert "shell" not in keywords, path
            if name == "torch.load":
                assert keywords.get("weights_only") == "True", path
            if name == "np.load":
                assert keywords.get("allow_pickle", "False") == "False", path  # False is NumPy's default
            loaders.add(name)
    assert {"torch.load", "np.load"} <= loaders, "the library loads files in another way, which this test must check"


@pytest.mark.parametrize("form", ["torch", "pickle", "old torch", "nested"])
def test_a_checkpoint_that_would_execute_code_is_rejected(run, tmp_path, form):
    payload, path = MakesFolder(tmp_path / "executed"), run / "checkpoint.pt"
    if form == "pickle":
        path.write_bytes(pickle.dumps(payload))
    elif form == "nested":
        state = checkpoint.load(path)
        torch.save(state | {"optimizer": {"state": payload, "param_groups": []}}, path)
    else:
        torch.save({"learner": payload}, path, _use_new_zipfile_serialization=form == "torch")
    with pytest.raises(InputError, match=r"checkpoint\.pt is damaged or not a checkpoint"):
        resume(run)
    assert not (tmp_path / "executed").exists()


def write_nested_key(path):
    """Write a file whose pickle is a dict with a key of 2**45 nested tuples, whose hash would take days."""
    key = b")" + b"".join(b"q%ch%c\x86" % (i, i) for i in range(45))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}" + key + b"K\x00s.")
        archive.writestr("archive/version", b"3\n")


def test_a_small_file_that_would_take_forever_is_rejected(run, tmp_path):
    write_nested_key(run / "checkpoint.pt")
    with pytest.raises(InputError, match=r"checkpoint\.pt is damaged .*a key of type tuple"):
        resume(run)
    write_nested_key(tmp_path / "hb.pt")
    with pytest.raises(InputError, match=r"cannot read the weights in .*hb\.pt': .*a key of type tuple"):
        imix.pretrain(small_data()[0], SMALL, init=tmp_path / "hb.pt", progress=False)


def test_weights_that_would_execute_code_are_rejected_without_advice_to_load_them_anyway(tmp_path):
    torch.save({"a": MakesFolder(tmp_path / "executed")}, tmp_path / "hb.pt")
    with pytest.raises(InputError, match=r"hb\.pt': it contains posix\.mkdir, which is not part of a tensor$"):
        imix.pretrain(small_data()[0], SMALL, init=tmp_path / "hb.pt", progress=False)


def test_a_pipe_as_a_checkpoint_is_rejected(run):
    (run / "checkpoint.pt").unlink()
    os.mkfifo(run / "checkpoint.pt")
    with pytest.raises(InputError, match=r"checkpoint\.pt is damaged .*it is not a regular file"):
        resume(run)


@pytest.mark.parametrize(
    "change",
    [
        {"epoch": -1},
        {"step": 10**6},
        {"epoch": 10**9},
        {"epoch": "3"},
        {"step": None},
        {"losses": [1.0]},
        {"learner": {}},
        {"learner": {"encoder.layers.1.weight": torch.zeros(1)}},
        {"optimizer": {}},
        {"optimizer": {"state": {0: 3}, "param_groups": [{"params": [0]}]}},
        {"optimizer": {"state": {}, "param_groups": "none"}},
        {"epoch": 10**400},
        {"losses": torch.zeros(1)},
        {"losses": torch.zeros(1).expand(3 * 10**9)},
        {"losses": torch.zeros(0, 2)},
        {"losses": torch.zeros(0, dtype=torch.complex64)},
        {"losses": torch.zeros(0, dtype=torch.float8_e4m3fn)},
        {"losses": torch.zeros(0, device="meta")},
    ],
    ids=repr,
)
def test_a_checkpoint_with_invalid_values_is_rejected(run, change):
    state = checkpoint.load(run / "checkpoint.pt")
    torch.save(state | change, run / "checkpoint.pt")
    metrics = (run / "metrics.jsonl").read_bytes()
    with pytest.raises(InputError, match="checkpoint"):
        resume(run)
    assert (run / "metrics.jsonl").read_bytes() == metrics


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("damage", ["one number", "expanded", "missing"])
def test_a_checkpoint_with_malicious_optimizer_state_is_rejected(tmp_path, optimizer, damage):
    """torch's fused optimizers check nothing: with these tensors they would write to memory that is not theirs."""
    x, _ = small_data()
    options = {"optimizer": optimizer, "epochs": 2, "batch_size": 16, "encoder": "mlp:16-16", "device": "cpu"}
    imix.pretrain(x, **options, out=tmp_path / "run", progress=False)
    state = checkpoint.load(tmp_path / "run" / "checkpoint.pt")
    for entry in state["optimizer"]["state"].values():
        for name, value in entry.copy().items():
            entry[name] = torch.zeros(1) if damage == "one number" else torch.zeros(1).expand(2, *value.shape)[0]
            if damage == "missing":
                del entry[name]
    torch.save(state, tmp_path / "run" / "checkpoint.pt")
    with pytest.raises(InputError, match="the checkpoint does not match the encoder"):
        imix.pretrain(x, **options, out=tmp_path / "run", resume=True, progress=False)


@pytest.mark.parametrize("name", RUN_FILES)
def test_a_run_file_with_changed_bytes_is_loaded_or_rejected(run, name):
    original = (run / name).read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(40):
        content = bytearray(original)
        for i in rng.integers(0, min(len(content), 3000), 3):
            content[i] = rng.integers(256)
        (run / name).write_bytes(content[: rng.integers(1, len(content) + 1)])
        try:
            _ = imix.load_run(run).evaluations
            checkpoint.load(run / "checkpoint.pt")
        except InputError:
            continue


@pytest.mark.parametrize(
    "architecture",
    [
        None,
        3,
        [],
        {},
        {"encoder": "small"},
        ARCHITECTURE | {"encoder": "mlp:900000-900000-900000"},
        ARCHITECTURE | {"shape": [10**12]},
        ARCHITECTURE | {"shape": ["x"]},
        ARCHITECTURE | {"shape": "66"},
        ARCHITECTURE | {"groups": [3, -9]},
        ARCHITECTURE | {"encoder": ["small"]},
        ARCHITECTURE | {"encoder": "__import__('os').system('true')"},
        ARCHITECTURE | {"encoder": "custom"},
        ARCHITECTURE | {"clip": {"sample_rate": 0}},
        ARCHITECTURE | {"clip": {"volume": 3}},
        ARCHITECTURE | {"clip": {"n_mels": 1_000_000}},
        ARCHITECTURE | {"clip": {"n_mels": -3}},
        ARCHITECTURE | {"clip": {"sample_rate": 10**400}},
        ARCHITECTURE | {"clip": {"samples": 10**18}},
        ARCHITECTURE | {"encoder": "mlp:" + "8-" * 100_000 + "8"},
        ARCHITECTURE | {"encoder": "mlp:" + "9" * 5000},
        ARCHITECTURE | {"encoder": "resnet" + "9" * 5000, "shape": [3, 8, 8]},
        ARCHITECTURE | {"encoder": "small" * 1000},
        ARCHITECTURE | {"shape": [100_000], "groups": [1] * 100_000},
        ARCHITECTURE | {"encoder": "timm:resnet18", "shape": [200_000, 8, 8]},
        ARCHITECTURE | {"encoder": "timm:hf-hub:someone/something", "shape": [3, 8, 8]},
        ARCHITECTURE | {"weights": "elsewhere.pt"},
    ],
    ids=lambda architecture: repr(architecture)[:80],
)
def test_an_encoder_file_with_a_false_architecture_is_rejected_before_memory_is_allocated(tmp_path, architecture):
    save_file({"weight": torch.zeros(3)}, tmp_path / "encoder.safetensors", {"imix": json.dumps(architecture)})
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError) as error:
        imix.load_encoder(tmp_path / "encoder.safetensors")
    assert_short(error)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 100_000  # kB; most of it for importing timm


def test_a_head_whose_shape_claims_more_than_the_file_contains_is_rejected_before_memory_is_allocated(tmp_path):
    save_file({"weight": torch.zeros(10**10, 0), "bias": torch.zeros(3)}, tmp_path / HEAD_FILE)
    with pytest.raises(InputError, match="is not a head written by imix"):
        load_head(tmp_path)


def test_names_of_tensors_cannot_control_the_terminal(tmp_path):
    state = {"encoder.\x1b[31mred": torch.zeros(3)}
    save_file(state, tmp_path / "encoder.safetensors", {"imix": json.dumps(ARCHITECTURE)})
    with pytest.raises(InputError, match=r"do not match the encoder.*\\x1b\[31mred") as error:
        imix.load_encoder(tmp_path / "encoder.safetensors")
    assert str(error.value).isprintable()


@pytest.mark.parametrize("metadata", [None, {"other": "x"}], ids=repr)
def test_an_encoder_file_without_an_architecture_is_rejected(tmp_path, metadata):
    header = json.dumps({"__metadata__": metadata}).encode()
    (tmp_path / "encoder.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(InputError, match="not an encoder written by imix"):
        imix.load_encoder(tmp_path / "encoder.safetensors")


@pytest.mark.parametrize("depth", [100, 900, 100_000])
def test_an_encoder_file_with_nested_json_beside_its_tensors_is_rejected(tmp_path, depth):
    header = f'{{"__metadata__": {{"imix": {json.dumps(json.dumps(ARCHITECTURE))}}}, "w": {"[" * depth}{"]" * depth}}}'
    (tmp_path / "encoder.safetensors").write_bytes(struct.pack("<Q", len(header)) + header.encode())
    with pytest.raises(InputError, match="not an encoder written by imix"):
        imix.load_encoder(tmp_path / "encoder.safetensors")


def test_an_encoder_file_with_a_deeply_nested_header_is_rejected(tmp_path):
    save_file({"weight": torch.zeros(3)}, tmp_path / "encoder.safetensors", {"imix": "[" * 100_000})
    with pytest.raises(InputError, match="not an encoder written by imix"):
        imix.load_encoder(tmp_path / "encoder.safetensors")


def test_an_encoder_file_that_claims_a_false_size_is_rejected(tmp_path):
    header = json.dumps({"w": {"dtype": "F32", "shape": [10**9, 10**6], "data_offsets": [0, 4 * 10**15]}}).encode()
    for length in (len(header), 2**60):
        (tmp_path / "encoder.safetensors").write_bytes(struct.pack("<Q", length) + header)
        with pytest.raises(InputError, match="not an encoder written by imix"):
            imix.load_encoder(tmp_path / "encoder.safetensors")


@pytest.mark.parametrize(
    "damage",
    [
        lambda config: [],
        lambda config: config | {"format": None},
        lambda config: config | {"format": [["x" * 1000] * 1000]},
        lambda config: config | {"settings": []},
        lambda config: config | {"settings": {"epochs": None}},
        lambda config: config | {"settings": {"epochs": True}},
        lambda config: config | {"settings": {"method": "dino"}},
        lambda config: config | {"settings": {"method": ["npair"]}},
        lambda config: config | {"settings": {"alpha": "x" * 1000}},
        lambda config: config | {"settings": {"alpha": 10**4000}},
        lambda config: config | {"settings": {"alpha": float("nan")}},
        lambda config: config | {"settings": {"two\nlines" * 1000: 1}},
        lambda config: config | {"data": {"name": 3}},
        lambda config: config | {"data": config["data"] | {"settings": 7}},
        lambda config: config | {"data": config["data"] | {"settings": {"test": 7}}},
        lambda config: config | {"data": config["data"] | {"settings": {"columns": {"a": ["drop"]}}}},
        lambda config: config | {"data": config["data"] | {"samples": "70"}},
        lambda config: config | {"data": config["data"] | {"shape": "6"}},
        lambda config: config | {"data": config["data"] | {"fingerprint": {}}},
        lambda config: config | {"data": config["data"] | {"table": {"columns": 3, "ignored": {}}}},
        lambda config: config | {"architecture": None},
        lambda config: config | {"architecture": config["architecture"] | {"shape": [6.5]}},
        lambda config: config | {"architecture": config["architecture"] | {"clip": [1, 2, 3]}},
        lambda config: config | {"ranks": "two"},
        lambda config: config | {"user_supplied": {"mix": nested(500)}},
        lambda config: config | {"versions": []},
        lambda config: {"settings": {}},
    ],
)
def test_an_invalid_config_is_rejected(run, damage):
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(damage(config)))
    with pytest.raises(InputError, match=r"not a run folder|config\.json .* is damaged|written in format") as error:
        read_config(run)
    assert_short(error)
    assert str(run) in str(error.value)
    with pytest.raises(InputError):
        resume(run)


def test_lines_of_evaluations_that_are_not_results_are_skipped(run, capsys):
    result = Result("knn", "digits", {"accuracy": 0.5}, {"k": 20}, Split(train=8, test=2))
    good = result.to_json()
    lines = [
        good,
        [],
        3,
        {},
        good | {"protocol": 3},
        good | {"data": None},
        good | {"metrics": 0.5},
        good | {"metrics": {}},
        good | {"metrics": {"accuracy": "0.5"}},
        good | {"metrics": {"accuracy": True}},
        good | {"metrics": {"accuracy": 0.5, "x\ny" * 1000: None}},
        good | {"protocol": "fed"},
        good | {"hyperparameters": ["k", 20]},
        good | {"split": None},
        good | {"split": {"train": 8}},
        good | {"split": {"train": 8, "test": "2 held out of train"}},
        good | {"inputs": "no"},
        good | {"confusion": [1, 2]},
        good | {"confusion": [["<script>"]]},
        good | {"classes": [{}]},
        good | {"x\ny" * 1000: nested(500)},
        good | {"data": ""},
        good | {"intervals": {"accuracy": [0.1, 0.2, 0.3]}},
        good,
    ]
    (run / "evaluations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    loaded = imix.load_run(run)
    capsys.readouterr()
    assert loaded.evaluations == [result, result]
    messages = capsys.readouterr().err.splitlines()
    assert len(messages) == len(lines) - 2
    assert all(str(run) in message and "skipped" in message and len(message) < 600 for message in messages)
    assert "50.0" in imix.report(loaded, run / "report.html").read_text()


class PageParser(HTMLParser):
    """Collects the tags of a report and the JSON in its script element with the id `content`."""

    def __init__(self):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.content = ""
        self.in_content = False

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.in_content = dict(attrs).get("id") == "content"

    def handle_endtag(self, tag):
        self.in_content = False

    def handle_data(self, data):
        if self.in_content:
            self.content += data


def test_a_report_shows_malicious_names_as_text(tmp_path):
    """Parses the page with Python; tests/reports/test_browser.py uses a browser if there is one.

    None of the tags in these names occurs in a report of images, so each one that the parser finds was injected.
    """
    folder, run = tmp_path / "<!--<script>", tmp_path / "<u>run"
    classes = ["<marquee>cats", "&amp;\"'><img src=x onerror=alert(2)>"]
    suffixes = ["<img src=x onerror=alert(1)>.png", "<\u2044script><script>alert(1)<\u2044script>.png"]
    for name in classes:
        (folder / name).mkdir(parents=True)
        for i in range(6):
            corpus.write_image(folder / name / f"{i}{suffixes[i % 2]}", seed=i)
        corpus.write_image(folder / name / os.fsdecode(b"<!--<script> \xff.png"))
    options = ["--epochs", 1, "--batch-size", 8, "--device", "cpu"]
    assert run_command("pretrain", folder, "--out", run, *options, folder=tmp_path).code == 0
    result = run_command("report", run, "--out", tmp_path / "report.html", folder=tmp_path)
    assert result.code == 0, result.stderr

    parser = PageParser()
    parser.feed((tmp_path / "report.html").read_text())
    tags = [tag for tag, _ in parser.tags]
    assert not {"marquee", "img", "u"} & set(tags)
    assert tags.count("script") == 3
    assert not any(name.startswith("on") for _, attributes in parser.tags for name in attributes)
    assert "<" not in parser.content
    samples = json.loads(parser.content)["samples"][str(folder)]
    assert any("onerror=alert(1)" in name for name in samples["names"])
    assert set(classes) <= set(samples["classes"])
    for suffix in ("svg", "png"):
        result = run_command("map", run, "--out", tmp_path / f"map.{suffix}", folder=tmp_path)
        assert result.code == 0, result.stderr
    svg = (tmp_path / "map.svg").read_text()
    assert "<img" not in svg and "<marquee" not in svg


def test_paths_that_are_not_utf_8_work_in_every_command(tmp_path):
    folder = tmp_path / os.fsdecode(b"not utf-8 \xff")
    folder.mkdir()
    data, run = folder / "t.csv", folder / "run"
    data.write_text(corpus.VALID_CSV)
    for arguments in (
        ["pretrain", data, "--label", "label", "--out", run, "--epochs", 1, "--encoder", "mlp:8-8"],
        ["evaluate", run, "--protocol", "knn"],
        ["embed", run, data, "--out", folder / "z.parquet"],
        ["report", run, "--out", folder / "report.html"],
    ):
        result = run_command(*arguments, folder=tmp_path)
        assert result.code == 0, result.stderr
