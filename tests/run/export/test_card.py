"""Model cards: what they say, code that runs as it is written, and names that cannot inject Markdown or HTML."""

import re
from dataclasses import replace

import markdown
import pytest
import torch
import yaml
from torch import nn

import imix
from imix.evaluation import Result, Split
from imix.run.export import export
from imix.run.export.card import model_card
from tests.run.export.runs import RUNS, audio_run, build_run

pytestmark = pytest.mark.slow

HOSTILE = "a|b\n# Title\n---\n`<img src=x onerror=alert(1)>` [link](javascript:x) \x1b[31m\u202e ![i](http://x/y) "
HOSTILE += "{{ 7 * 7 }} \\"


def front_matter(card):
    """The YAML at the start of a card."""
    return yaml.safe_load(card.split("---\n")[1])


def section(card, heading):
    return re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", card, re.DOTALL | re.MULTILINE)[1]


def rows(card, heading):
    """The cells of the tables in a section, by the text of their first cell."""
    table = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in section(card, heading).splitlines() if "|" in line
    ]
    return {cells[0].strip("`"): [cell.strip("`") for cell in cells[1:]] for cells in table}


def code_blocks(card):
    return re.findall(r"^```py\n(.*?)^```", card, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("kind", RUNS)
def test_the_code_runs_as_it_is_written_and_every_library_gives_the_same_features(tmp_path, monkeypatch, kind):
    run = RUNS[kind]()
    export(run, "huggingface", tmp_path / "model")
    monkeypatch.chdir(tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text()
    libraries = [re.search(r"import (imix|timm|torchvision)\n", code)[1] for code in code_blocks(card)]
    expected = ["imix"]
    expected += ["timm"] if kind in ("resnet, standard stem", "resnet, audio", "timm") else []
    expected += ["torchvision"] if kind.startswith("resnet") else []
    assert libraries == expected
    for library, code in zip(libraries, code_blocks(card), strict=True):
        variables = {}
        exec(code, variables)
        encoder = run.encoder if library == "imix" else nn.Sequential(nn.Identity(), run.encoder[1])
        inputs = variables["inputs"]
        if library != "imix" and run.config.architecture.standardize:
            inputs = run.encoder[0](inputs)
        assert torch.equal(variables["features"], encoder(inputs))


def test_the_code_for_a_table_embeds_the_table_in_the_folder(tmp_path, monkeypatch):
    content = "age,color\n" + "".join(f"{i * 0.37 % 5},{'red' if i % 3 else 'blue'}\n" for i in range(40))
    (tmp_path / "t.csv").write_text(content)
    run = imix.pretrain(tmp_path / "t.csv", epochs=1, device="cpu", progress=False)
    export(run, "huggingface", tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text()
    assert "the rows of a table, encoded as 3 numbers," in card
    assert "config.json contains the column names, categories, means, standard deviations and medians" in card
    assert rows(card, "Data")["columns"] == ["1 numeric, 1 categorical"]
    (tmp_path / "model" / "table.csv").write_text(content)
    monkeypatch.chdir(tmp_path / "model")
    variables = {}
    exec(code_blocks(card)[0], variables)
    assert (variables["features"] == imix.embed(run, tmp_path / "t.csv", device="cpu")).all()


def test_the_card_of_a_user_supplied_encoder_says_that_its_code_is_needed(tmp_path, monkeypatch):
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 6))
    run = imix.pretrain("digits", epochs=1, device="cpu", encoder=module, progress=False)
    export(run, "huggingface", tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text()
    assert "The network is user-supplied code, which this folder does not contain." in section(card, "Limitations")
    assert rows(card, "Method and settings")["encoder"] == ["user-supplied"]
    monkeypatch.chdir(tmp_path / "model")
    variables = {"module": nn.Sequential(nn.Flatten(), nn.Linear(64, 6))}
    (code,) = code_blocks(card)
    exec(code, variables)
    x = torch.rand(2, 1, 8, 8)
    assert torch.equal(variables["encoder"](x), run.encoder(x))


def test_the_front_matter_names_the_library_that_can_load_the_model():
    images = front_matter(model_card(build_run("resnet18:standard"), [], in_timm=True))
    assert (images["library_name"], images["pipeline_tag"]) == ("timm", "image-feature-extraction")
    assert {"imix", "i-mix", "self-supervised-learning"} <= set(images["tags"])
    assert "license" not in images  # the user's choice
    small = front_matter(model_card(build_run("small", (3, 8, 8)), [], in_timm=False))
    assert (small["library_name"], small["pipeline_tag"]) == ("imix", "image-feature-extraction")
    for run in (build_run("small", (5,)), audio_run("resnet18:standard")):
        other = front_matter(model_card(run, [], in_timm=False))
        assert other["library_name"] == "imix" and "pipeline_tag" not in other


def test_the_card_lists_the_method_and_the_settings_that_differ_from_the_defaults():
    run = build_run("small", (5,))
    settings = imix.Settings(method="moco", epochs=7, temperature=0.3, momentum=0.99, predictor="mlp", knn_every=2)
    data = replace(run.config.data, settings=imix.DataSettings(fraction=0.5))
    run.config = replace(run.config, settings=settings, data=data)
    shown = rows(model_card(run, [], in_timm=False), "Method and settings")
    assert shown["method"] == ["MoCo v2"]
    expected = {"mix": "mixup", "epochs": "7", "seed": "0", "temperature": "0.3", "momentum": "0.99"}
    assert {name: shown[name][0] for name in expected} == expected
    # the default; unused by moco; no effect on what is learned
    assert not {"queue", "predictor", "knn_every"} & shown.keys()
    assert rows(model_card(run, [], in_timm=False), "Data")["fraction"] == ["0.5"]


def test_the_card_has_the_latest_result_of_each_evaluation_with_its_protocol_and_baselines():
    split = Split(train=800, test=200, held_out=True, seed=0)
    knn = Result("knn", "digits", {"accuracy": 0.9, "majority_accuracy": 0.1}, {"k": 20}, split)
    few = replace(knn, labels_per_class=10, draws=5, std={"accuracy": 0.02})
    results = [
        replace(knn, metrics={"accuracy": 0.5, "majority_accuracy": 0.1}),  # evaluated again later
        replace(knn, representation="inputs", metrics={"accuracy": 0.8, "macro_f1": 0.7}),
        few,
        replace(knn, intervals={"accuracy": (0.85, 0.95)}),
        replace(knn, protocol="majority", representation="none", metrics={"accuracy": 0.1}, hyperparameters={}),
    ]
    card = model_card(build_run("small", (5,)), results, in_timm=False)
    lines = section(card, "Evaluation").splitlines()
    conditions = "`train 800, test 200 held out with seed 0; k 20`"
    assert (
        "| `digits` | `knn` | `features` | all | accuracy 90.00% | 85.00% to 95.00% | 10.00% | – | " + conditions + " |"
        in lines
    )
    assert f"| `digits` | `knn` | `inputs` | all | accuracy 80.00% | – | – | macro F1 70.00% | {conditions} |" in lines
    assert any("| 10, 5 draws | accuracy 90.00% ± 2.00% |" in line for line in lines)
    assert any(line.startswith("| `digits` | `majority` | – | all | accuracy 10.00%") for line in lines)
    assert "- `knn`: k nearest neighbors by cosine similarity" in lines
    assert not any("50.00%" in line for line in lines)


def test_a_card_without_results_says_so():
    card = model_card(build_run("small", (5,)), [], in_timm=False)
    assert "This encoder was not evaluated before it was exported" in section(card, "Evaluation")
    assert "The encoder was trained on only 8 samples." in section(card, "Limitations")


def test_names_cannot_inject_markdown_html_or_control_characters(tmp_path):
    run = build_run("small", (5,))
    data = replace(run.config.data, name=HOSTILE, settings=imix.DataSettings(label=HOSTILE, columns={HOSTILE: "drop"}))
    components = {"method": HOSTILE, HOSTILE: HOSTILE}
    run.config = replace(run.config, data=data, user_supplied=components, versions={HOSTILE: HOSTILE})
    metrics = {"accuracy": 0.5, HOSTILE: 0.5}
    split = Split(8, 2, test_file=HOSTILE, by=HOSTILE)
    result = Result(HOSTILE, HOSTILE, metrics, {HOSTILE: HOSTILE}, split, label=HOSTILE, representation=HOSTILE)
    card = model_card(run, [result], in_timm=False)
    harmless = model_card(build_run("small", (5,)), [replace(result, data="x", protocol="knn")], in_timm=False)
    assert all(character.isprintable() or character == "\n" for character in card)
    assert front_matter(card) == front_matter(harmless)
    html = markdown.markdown(card.split("---\n", 2)[2], extensions=["tables", "fenced_code"])
    for tag in ("<img", "<script", "<a ", "onerror=alert(1)>"):
        assert tag not in html
    headings = ["Data", "Method and settings", "Evaluation", "Limitations", "How to load it", "Versions", "Citation"]
    assert re.findall(r"<h2>(.*?)</h2>", html) == headings
    assert len(re.findall("<h1>", html)) == 1
    assert "{{ 7 * 7 }}" in html  # no template
    widths = {line.count("|") for line in section(card, "Evaluation").splitlines() if line.startswith("|")}
    assert widths == {10}


def test_long_names_are_shortened():
    run = build_run("small", (5,))
    run.config = replace(run.config, data=replace(run.config.data, name="x" * 10_000))
    assert len(model_card(run, [], in_timm=False)) < 5_000
