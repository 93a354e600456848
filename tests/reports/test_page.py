"""The content of report.html, and `imix.report`."""

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars
import pytest
import torch
from plotly.offline import get_plotlyjs

import imix
from imix.errors import InputError
from imix.evaluation import Result
from imix.files import read_jsonl, write_jsonl
from imix.reports import page
from imix.reports.groups import RunGroup, group_runs

from .helpers import HOSTILE, QUICK, SPLIT, content_of, quick_run, with_config

pytestmark = pytest.mark.slow


def remove_class_names(run: Path) -> None:
    """Remove the class names from a run's results, as in results on data without class names."""
    lines = read_jsonl(run / "evaluations.jsonl")
    for line in lines:
        line["classes"] = []
    write_jsonl(run / "evaluations.jsonl", lines)


def test_the_page_has_the_standard_sections(report_path):
    headings = re.findall(r"<h2>(.*?)</h2>", report_path.read_text().replace(get_plotlyjs(), ""))
    assert headings == [
        "Results",
        "Training curves",
        "Embedding map",
        "Data exploration",
        "Confusion matrix",
        "Settings",
    ]
    assert not re.search(r"\{\{|\{%", report_path.read_text().replace(get_plotlyjs(), "")), "unfilled placeholder"


def test_the_page_shows_data_options_that_differ(run, tmp_path):
    groups = group_runs([run, with_config(run, "data_settings", standardize="none", label=HOSTILE)])
    groups[0] = replace(groups[0], name=HOSTILE)
    text = page.write_report(tmp_path / "r.html", "two", groups, "", "", samples=10).read_text()
    assert "<th>standardize</th><td>train</td><td>none</td>" in text
    assert "<th>knn_every</th>" in text and "<th>test</th>" not in text and "1 numeric" in text
    assert HOSTILE not in text


def test_numbers_on_the_page_match_the_run_folders(runs, report_path):
    text = report_path.read_text()
    for same_group in (runs[:2], runs[2:]):
        for protocol in ("linear", "knn"):
            values = [
                100 * line["metrics"]["accuracy"]
                for run in same_group
                for line in read_jsonl(run / "evaluations.jsonl")
                if (line["protocol"], line["representation"]) == (protocol, "features") and not line["labels_per_class"]
            ]
            assert f">{np.mean(values):.1f} ± {np.std(values, ddof=1):.1f}</td>" in text
    curves = {curve["key"]: curve for curve in content_of(report_path)["curves"]}
    losses = [record["loss"] for record in read_jsonl(runs[0] / "metrics.jsonl")]
    assert curves["loss"]["lines"][0]["y"] == pytest.approx(losses, rel=1e-4)
    assert {"loss", "effective_rank", "alignment", "uniformity"} <= curves.keys()


def test_the_page_works_offline(report_path):
    assert not re.search(r'(src|href)="http', report_path.read_text().replace(get_plotlyjs(), ""))


def test_confusion_matrices_use_the_classes_of_their_data(table, tmp_path):
    cars = tmp_path / "cars.csv"
    makes = {"cat": "audi", "dog": "bmw", HOSTILE: "citroen"}
    polars.read_csv(table).with_columns(polars.col("breed").replace_strict(makes)).write_csv(cars)
    animals_run = quick_run(table, tmp_path / "animals", "breed")
    imix.evaluate(animals_run, cars)
    remove_class_names(animals_run)
    one_run = content_of(imix.report([animals_run], tmp_path / "r.html", samples=20))
    assert [matrix["classes"] for matrix in one_run["confusionMatrices"]] == [
        [HOSTILE, "cat", "dog"],
        ["0", "1", "2"],
    ]
    cars_run = quick_run(cars, tmp_path / "cars", "breed")
    both_runs = content_of(imix.report([animals_run, cars_run], tmp_path / "r.html"))
    assert [matrix["classes"] for matrix in both_runs["confusionMatrices"]] == [
        [HOSTILE, "cat", "dog"],
        ["audi", "bmw", "citroen"],
        ["audi", "bmw", "citroen"],
    ]


@pytest.mark.parametrize(("classes", "shown"), [(["a", "b"], ["a", "b"]), (["a", "b", "c"], ["0", "1"])])
def test_class_names_of_a_result_are_used_if_their_number_matches(run, classes, shown):
    counts = [[1, 0], [0, 1]]
    result = Result("linear", "elsewhere", {"accuracy": 0.5}, {}, SPLIT, confusion=counts, classes=classes)
    (matrix,) = page._confusion_matrices([RunGroup("N-pair", [run], {"linear": [result]})], {})
    assert matrix["classes"] == shown


def test_confusion_matrices_come_from_the_linear_evaluation(runs, report_path):
    counts = content_of(report_path)["confusionMatrices"][0]["counts"]
    (expected,) = [line["confusion"] for line in read_jsonl(runs[0] / "evaluations.jsonl") if line["confusion"]]
    assert counts == expected


def test_the_settings_table_lists_run_folders_if_there_are_several(runs, run, report_path):
    cells = "".join(f"<td>{first}<br>{second}</td>" for first, second in (runs[:2], runs[2:]))
    assert f"<tr><th>run folder</th>{cells}</tr>" in report_path.read_text()
    assert page._settings(group_runs([run]))["folders"] == []


def test_a_metric_that_is_always_zero_has_no_plot(run):
    records = [{"step": step, "epoch": step, "loss": 1.0, "alignment": 0.0} for step in range(1, 4)]
    assert [curve["key"] for curve in page._curves([RunGroup("N-pair", [replace(run, metrics=records)])])] == ["loss"]
    records[1]["alignment"] = 0.1
    assert len(page._curves([RunGroup("N-pair", [replace(run, metrics=records)])])) == 2


def test_a_run_without_results_is_evaluated(table, tmp_path):
    imix.pretrain(table, QUICK, imix.DataSettings(label="breed"), out=tmp_path / "run", progress=False)
    path = imix.report(tmp_path / "run", tmp_path / "r.html", samples=20)
    protocols = [line["protocol"] for line in read_jsonl(tmp_path / "run" / "evaluations.jsonl")]
    assert protocols == ["majority", "linear", "linear", "knn", "linear"]
    assert "linear (inputs + features)" in path.read_text()


def test_the_report_of_a_run_on_arrays_has_no_map(tmp_path):
    imix.pretrain(torch.randn(40, 5), QUICK, out=tmp_path / "run", progress=False)
    content = content_of(imix.report([tmp_path / "run"], tmp_path / "r.html"))
    assert content["maps"] == [] and content["curves"]


def test_runs_without_a_checkpoint_are_skipped_with_a_message(runs, tmp_path, capsys):
    shutil.copytree(runs[0], tmp_path / "unfinished")
    (tmp_path / "unfinished" / "encoder.safetensors").unlink()
    imix.report([tmp_path / "unfinished", runs[0]], tmp_path / "r.html")
    assert f"skipped {tmp_path / 'unfinished'}: it has not written a checkpoint yet" in capsys.readouterr().err
    with pytest.raises(InputError, match="no encoder at"):
        imix.report([tmp_path / "unfinished"], tmp_path / "r.html")


def test_invalid_arguments_are_rejected(runs, tmp_path):
    with pytest.raises(InputError, match="at least one run"):
        imix.report([], tmp_path / "r.html")
    with pytest.raises(InputError, match="does not exist"):
        imix.report(runs, tmp_path / "nowhere" / "r.html")
    with pytest.raises(InputError, match=r"r\.pdf'; choose a file that ends in \.html or \.htm"):
        imix.report(runs, tmp_path / "r.pdf")
    with pytest.raises(InputError, match="`samples` must be at least 10; got 2"):
        imix.report(runs, tmp_path / "r.html", samples=2)


def test_the_report_of_a_single_run_is_written_to_its_folder(runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert imix.report(runs[0], samples=20) == runs[0] / "report.html"
    assert imix.report(runs[:2], samples=20) == Path("report.html")
    assert (tmp_path / "report.html").exists()


def test_report_map_transfer_and_export_are_commands(runs, table, tmp_path):
    def command(*arguments: object) -> subprocess.CompletedProcess:
        return subprocess.run([sys.executable, "-m", "imix", *map(str, arguments)], capture_output=True, text=True)

    result = command("report", *runs[:2], "--out", tmp_path / "r.html", "--samples", 20)
    assert result.returncode == 0 and (tmp_path / "r.html").stat().st_size > 1e6, result.stderr
    result = command("map", runs[0], "--out", tmp_path / "m.svg", "--classes", "cat", "dog")
    assert result.returncode == 0 and (tmp_path / "m.svg").exists(), result.stderr
    result = command("transfer", *runs[:2], "--data", table, "--protocol", "knn")
    assert result.returncode == 0 and result.stdout.count("%") == 2, result.stderr
    result = command("evaluate", runs[0], "--protocol", "fed")
    assert result.returncode == 0 and "e-4" in result.stdout, result.stderr
    result = command("export", runs[0], "--format", "timm", "--out", tmp_path / "x.pth")
    assert result.returncode == 2 and "ResNet" in result.stderr and "Traceback" not in result.stderr
