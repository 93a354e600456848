"""Files that are made to do harm: nothing in them is executed, believed, written elsewhere or shown as markup."""

import ast
import json
import os
import pickle
import struct
from pathlib import Path

import corpus
import numpy as np
import pytest
import torch
from harm import SMALL, Command, command, table
from safetensors.torch import save_file

import imix
from imix import InputError
from imix.config import read_config
from imix.train import checkpoint

SOURCE = Path(imix.__file__).parent
NAMES = ("<img src=x onerror=alert(1)>.png", "</script><script>alert(1)</script>.png".replace("/", "\u2044"))


class Executes:
    """Makes a folder when it is unpickled."""

    def __init__(self, place):
        self.place = place

    def __reduce__(self):
        return os.mkdir, (str(self.place),)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "run"
    x, y = table()
    imix.pretrain(x, SMALL, labels=y, out=folder, progress=False)
    return folder


@pytest.fixture
def run(finished, tmp_path):
    """A finished run, to be spoiled."""
    for path in finished.iterdir():
        (tmp_path / "run").mkdir(exist_ok=True)
        (tmp_path / "run" / path.name).write_bytes(path.read_bytes())
    return tmp_path / "run"


def resume(run):
    x, y = table()
    return imix.pretrain(x, SMALL, labels=y, out=run, resume=True, progress=False)


def test_nothing_is_unpickled_anywhere():
    """Every call that could is known, and says that it does not."""
    found = []
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func)
            told = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            if name.split(".")[-1] in ("load", "loads") and name.split(".")[0] not in (
                "json",
                "Run",
                "checkpoint",
                "imix",
            ):
                found.append((path.name, name, told))
            assert name not in ("eval", "exec", "pickle.load", "pickle.loads", "joblib.load", "os.system"), path
            assert "shell" not in told, path
    for _, name, told in found:
        if name == "torch.load":
            assert told.get("weights_only") == "True"
        if name == "np.load":
            assert told.get("allow_pickle", "False") == "False"  # which is NumPy's default
    assert {name for _, name, _ in found} & {"torch.load", "np.load"}


@pytest.mark.parametrize("how", ["torch", "pickle", "old torch", "inside"])
def test_a_checkpoint_that_executes_is_refused(run, tmp_path, how):
    harm, path = Executes(tmp_path / "executed"), run / "checkpoint.pt"
    if how == "pickle":
        path.write_bytes(pickle.dumps(harm))
    elif how == "inside":
        state = checkpoint.load(path)
        torch.save(state | {"optimizer": {"state": harm, "param_groups": []}}, path)
    else:
        torch.save({"learner": harm}, path, _use_new_zipfile_serialization=how == "torch")
    with pytest.raises(InputError, match=r"checkpoint\.pt is damaged or not a checkpoint"):
        resume(run)
    assert not (tmp_path / "executed").exists()


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
    ],
    ids=repr,
)
def test_a_checkpoint_that_lies_is_refused_and_not_waited_for(run, change):
    state = checkpoint.load(run / "checkpoint.pt")
    torch.save(state | change, run / "checkpoint.pt")
    with pytest.raises(InputError, match="checkpoint"):
        resume(run)


@pytest.mark.parametrize("name", ["encoder.safetensors", "config.json", "checkpoint.pt", "metrics.jsonl"])
def test_a_file_of_a_run_with_bytes_changed_is_read_or_refused(run, name):
    content = (run / name).read_bytes()
    draw = np.random.default_rng(0)
    for _ in range(40):
        changed = bytearray(content)
        for at in draw.integers(0, min(len(content), 3000), 3):
            changed[at] = draw.integers(256)
        (run / name).write_bytes(changed[: draw.integers(1, len(changed) + 1)])
        try:
            imix.Run.load(run)
            checkpoint.load(run / "checkpoint.pt")
        except InputError:
            continue


@pytest.mark.parametrize(
    "told",
    [
        None,
        3,
        [],
        {},
        {"encoder": "small"},
        {"encoder": "mlp:900000-900000-900000", "shape": [6], "groups": [], "standardise": True},
        {"encoder": "mlp:16-16", "shape": [10**12], "groups": [], "standardise": True},
        {"encoder": "mlp:16-16", "shape": ["x"], "groups": [], "standardise": True},
        {"encoder": "mlp:16-16", "shape": [6], "groups": [3, -9], "standardise": True},
        {"encoder": ["small"], "shape": [6], "groups": [], "standardise": True},
        {"encoder": "__import__('os').system('true')", "shape": [6], "groups": [], "standardise": False},
        {"encoder": "custom", "shape": [6], "groups": [], "standardise": False},
        {"encoder": "mlp:16-16", "shape": [6], "groups": [], "standardise": True, "clip": {"rate": 0}},
    ],
    ids=repr,
)
def test_an_encoder_file_that_lies_about_its_network_is_refused_before_it_takes_memory(tmp_path, told):
    save_file({"weight": torch.zeros(3)}, tmp_path / "encoder.safetensors", {"imix": json.dumps(told)})
    with pytest.raises(InputError):
        imix.load_encoder(tmp_path / "encoder.safetensors")


def test_an_encoder_file_that_claims_more_than_it_has_is_refused(tmp_path):
    header = json.dumps({"w": {"dtype": "F32", "shape": [10**9, 10**6], "data_offsets": [0, 4 * 10**15]}}).encode()
    for length in (len(header), 2**60):
        (tmp_path / "encoder.safetensors").write_bytes(struct.pack("<Q", length) + header)
        with pytest.raises(InputError, match="not an encoder written by imix"):
            imix.load_encoder(tmp_path / "encoder.safetensors")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda config: [],
        lambda config: config | {"settings": []},
        lambda config: config | {"settings": {"epochs": None}},
        lambda config: config | {"settings": {"method": "dino"}},
        lambda config: config | {"settings": {"alpha": "x" * 1000}},
        lambda config: config | {"data": {"name": 3}},
        lambda config: config | {"data": config["data"] | {"reading": 7}},
        lambda config: config | {"architecture": None},
        lambda config: {"settings": {}},
    ],
)
def test_a_configuration_that_is_none_is_refused_in_words(run, spoil):
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(spoil(config)))
    with pytest.raises(InputError, match=r"not a run folder|config\.json .* is damaged"):
        read_config(run)
    with pytest.raises(InputError):
        resume(run)


def test_the_page_shows_hostile_names_as_text(tmp_path):
    """What a browser would see is parsed by Python here; test_report looks with a browser where there is one."""
    from html.parser import HTMLParser

    folder = tmp_path / "<!--<script>"
    for kind in ("<b>cats", "&amp;\"'><img src=x onerror=alert(2)>"):
        (folder / kind).mkdir(parents=True)
        for number in range(6):
            corpus.picture(folder / kind / f"{number}{NAMES[number % 2]}", seed=number)
        corpus.picture(folder / kind / os.fsdecode(b"<!--<script> \xff.png"))
    words = ["pretrain", folder, "--out", tmp_path / "<u>run", "--epochs", 1, "--batch-size", 8, "--device", "cpu"]
    assert command(*words, folder=tmp_path).code == 0
    said = command("report", tmp_path / "<u>run", "--out", tmp_path / "report.html", folder=tmp_path)
    assert said.code == 0, said.err

    class Reader(HTMLParser):
        def __init__(self):
            super().__init__()
            self.tags, self.content, self.inside = [], "", ""

        def handle_starttag(self, tag, attributes):
            self.tags.append((tag, dict(attributes)))
            self.inside = dict(attributes).get("id") or ""

        def handle_endtag(self, tag):
            self.inside = ""

        def handle_data(self, data):
            self.content += data if self.inside == "content" else ""

    page = (tmp_path / "report.html").read_text()
    reader = Reader()
    reader.feed(page)
    assert not {"img", "b", "u"} & {tag for tag, _ in reader.tags}
    assert [tag for tag, _ in reader.tags].count("script") == 3
    assert not any(name.startswith("on") for _, attributes in reader.tags for name in attributes)
    assert "<" not in reader.content
    shown = json.loads(reader.content)["samples"][str(folder)]
    assert any("onerror=alert(1)" in name for name in shown["names"])
    assert "<b>cats" in shown["classes"]
    for suffix in ("svg", "png"):
        out = tmp_path / f"map.{suffix}"
        said = command("map", tmp_path / "<u>run", "--out", out, folder=tmp_path)
        assert said.code == 0, said.err
    assert "<img" not in (tmp_path / "map.svg").read_text()


def test_a_run_folder_and_data_of_any_bytes(tmp_path):
    folder = tmp_path / os.fsdecode(b"no text \xff")
    folder.mkdir()
    (folder / "t.csv").write_text(corpus.GOOD)
    out = folder / "run"
    words = ["pretrain", folder / "t.csv", "--label", "label", "--out", out, "--epochs", 1, "--encoder", "mlp:8-8"]
    for arguments in (
        words,
        ["evaluate", out, "--protocol", "knn"],
        ["embed", out, folder / "t.csv", "--out", folder / "z.parquet"],
        ["report", out, "--out", folder / "report.html"],
    ):
        said = Command(arguments, tmp_path).wait()
        assert said.code == 0, said.err
