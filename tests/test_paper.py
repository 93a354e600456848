"""The paper's tables and figures: as data, as runs, as a page."""

import csv
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pytest
import torch

from imix import InputError, Settings, TrainingError, encoders
from imix.cli import main
from imix.errors import Interrupted
from imix.evaluation import KNN, evaluate
from imix.files import locked, read_lines, write_text
from imix.paper import page
from imix.paper.budget import EXPERIMENTS, all_jobs, cells_of, hours, remaining, wanted
from imix.paper.cluster import write_slurm
from imix.paper.experiment import Measurement, Number
from imix.paper.lines import picture
from imix.paper.listing import listing
from imix.paper.page import table, write_pages
from imix.paper.recipes import SETTINGS
from imix.paper.reproduce import reproduce
from imix.paper.results import Found, add, ours, read
from imix.paper.spelled_out import commands_of
from imix.paper.stand_in import stand_in
from imix.paper.switches import Switches
from imix.paper.work import FILES, Worker

NAMES = (
    *("table1", "table2", "table3", "table4a", "table4b", "tableC1", "tableC2", "tableC3"),
    *("supervised", "figure2", "figure3", "figureC1"),
)
CIFAR_ROW = {"rows": ["CIFAR-10"], "budget": "smoke"}


def cell(name, row, column, budget="paper", switches=Switches()):
    found = [c for c in cells_of(EXPERIMENTS[name], budget, switches) if (c.label, c.column) == (row, column)]
    assert len(found) == 1, (name, row, column)
    return found[0]


# --- as data ---------------------------------------------------------------------------------------------------------


def test_every_table_and_figure_of_the_paper_is_there():
    assert tuple(EXPERIMENTS) == NAMES
    counts = {name: len(EXPERIMENTS[name].cells) for name in NAMES}
    assert counts["table1"] == 24 and counts["table2"] == 8 and counts["table4a"] == 8 and counts["table4b"] == 6
    assert counts["table3"] == 24 + 2  # and i-Mix without InputMix, which the text quotes for both CIFARs
    assert counts["tableC1"] == counts["tableC2"] == counts["tableC3"] == 24
    assert counts["supervised"] == 6 and counts["figureC1"] == 4


@pytest.mark.parametrize(
    ("name", "row", "column", "number"),
    [
        ("table1", "CIFAR-10", "N-pair + i-Mix", (95.6, 0.2)),
        ("table1", "CIFAR-100", "BYOL", (72.7, 0.4)),
        ("table1", "Speech Commands", "MoCo v2", (96.3, 0.1)),
        ("table1", "CovType", "BYOL + i-Mix", (74.1, 0.2)),
        ("table2", "ImageNet-100", "MoCo v2 + i-Mix", (87.0, None)),
        ("table2", "Higgs1M", "MoCo v2", (74.9, None)),
        ("table3", "CIFAR-10, no augmentation", "MoCo v2 + i-Mix", (83.4, 0.4)),
        ("table3", "CIFAR-100, no augmentation", "MoCo v2 + i-Mix, no InputMix", (50.7, None)),
        ("table3", "Speech Commands, no augmentation", "MoCo v2", (76.9, 1.7)),
        ("table3", "Higgs100k, no augmentation", "MoCo v2 + i-Mix", (71.8, None)),
        ("table4a", "CIFAR-100 → CIFAR-10", "MoCo v2 + i-Mix", (90.0, 0.4)),
        ("table4b", "AP75", "MoCo v2 + i-Mix", (64.2, 0.7)),
        ("tableC1", "CIFAR-10 → CIFAR-100", "SimCLR + i-CutMix", (57.1, 0.4)),
        ("tableC1", "CIFAR-100 → CIFAR-100", "N-pair + i-MixUp", (72.3, 0.2)),
        ("tableC2", "CIFAR-10 → CIFAR-10", "supervised N-pair + i-Mix", (97.0, 0.1)),
        ("tableC2", "CIFAR-100 → CIFAR-10", "supervised SimCLR", (86.5, 0.4)),
        ("tableC3", "CIFAR-10 → CIFAR-100", "FED, N-pair + i-Mix", (7.9, None)),
        ("tableC3", "CIFAR-100 → CIFAR-100", "training, N-pair", (85.6, None)),
        ("supervised", "CIFAR-100", "classifier + i-Mix", (82.2, None)),
    ],
)
def test_the_papers_numbers(name, row, column, number):
    assert cell(name, row, column).paper == Number(*number)


@pytest.mark.parametrize(
    ("name", "row", "column", "settings"),
    [
        ("table1", "CIFAR-10", "N-pair", {"epochs": 2000, "mix": "none", "temperature": 0.2, "encoder": "resnet50"}),
        ("table1", "CIFAR-10", "N-pair + i-Mix", {"epochs": 4000, "mix": "mixup", "alpha": 1.0, "weight_decay": 1e-4}),
        ("table1", "CIFAR-100", "BYOL + i-Mix", {"epochs": 4000, "momentum": 0.999, "symmetric": False}),
        (
            "table1",
            "Speech Commands",
            "BYOL",
            {"head": "mlpbn", "predictor": "mlpbn1", "temperature": 0.5, "milestones": (300, 400), "schedule": "step"},
        ),
        ("table1", "CovType", "N-pair + i-Mix", {"masking": 0.2, "alpha": 2.0, "temperature": 0.1, "batch_size": 512}),
        ("table1", "CovType", "MoCo v2 + i-Mix", {"masking": 0.0, "augment_columns": ("numeric",), "head": "mlpbn"}),
        ("table1", "CovType", "MoCo v2", {"masking": 0.2, "epochs": 500, "queue": 4096}),
        (
            "table2",
            "ImageNet-1k",
            "MoCo v2 + i-Mix",
            {"mix": "cutmix", "queue": 65536, "lr": 0.03, "batch_size": 512, "epochs": 800, "head": "mlp"},
        ),
        ("table2", "Higgs100k", "MoCo v2 + i-Mix", {"alpha": 1.0, "encoder": "mlp:bn", "masking": 0.2}),
        ("table3", "CIFAR-10, no augmentation", "MoCo v2 + i-Mix", {"input_mix": 2, "epochs": 1000, "augment": "none"}),
        ("table3", "CIFAR-100, no augmentation", "MoCo v2", {"input_mix": 0, "epochs": 1000}),
        ("table3", "Speech Commands, no augmentation", "MoCo v2 + i-Mix", {"temperature": 0.2, "augment": "none"}),
        ("tableC1", "CIFAR-10 → CIFAR-10", "SimCLR + i-CutMix", {"batch_size": 128, "mix": "cutmix", "epochs": 1000}),
        ("tableC1", "CIFAR-10 → CIFAR-10", "SimCLR", {"batch_size": 256}),
        ("tableC2", "CIFAR-10 → CIFAR-10", "supervised N-pair", {"method": "supnpair"}),
    ],
)
def test_the_settings_behind_them(name, row, column, settings):
    used = cell(name, row, column).training.settings
    assert {key: getattr(used, key) for key in settings} == settings


def test_tables_are_standardised_by_the_whole_file_unless_switched():
    paper = cell("table1", "CovType", "BYOL").training
    assert paper.reading.standardise == "all"
    assert cell("table1", "CovType", "BYOL", switches=Switches(standardise="train")).training.reading.standardise == (
        "train"
    )
    assert cell("table1", "CIFAR-10", "BYOL").training.reading.standardise == "train"


def test_switches_change_what_mixes_and_nothing_else():
    switches = Switches(per_sample=False, fold=False)
    mixed = cell("table1", "CIFAR-10", "MoCo v2 + i-Mix", switches=switches).training.settings
    assert (mixed.per_sample, mixed.fold) == (False, False)
    for column in ("MoCo v2", "MoCo v2 + i-Mix"):
        before, after = (cell("table1", "CIFAR-10", column, switches=s).training for s in (Switches(), switches))
        assert (before.name(0) == after.name(0)) == (column == "MoCo v2")


def test_what_tables_share_is_trained_once():
    shared = cell("table1", "CIFAR-10", "MoCo v2").training.name(0)
    assert cell("table3", "CIFAR-10", "MoCo v2").training.name(0) == shared
    assert cell("table4a", "CIFAR-10 → CIFAR-100", "MoCo v2").training.name(0) == shared
    # In the authors' commands CovType's MoCo + i-Mix has no masking, so that it stands in both rows of table 3.
    row = cell("table3", "CovType, no augmentation", "MoCo v2 + i-Mix").training.name(3)
    assert row == cell("table1", "CovType", "MoCo v2 + i-Mix").training.name(3)
    names = [job.name for job in all_jobs(wanted(["all"], "paper"))]
    assert len(names) == len(set(names))
    alone = sum(len(all_jobs(wanted([name], "paper"))) for name in NAMES)
    assert len(names) < alone


def test_names_of_runs_tell_trainings_apart():
    settings = {
        job.name: (job.training.data, job.training.settings, job.training.reading)
        for job in all_jobs(wanted(["all"], "paper"))
        if job.seed == 0
    }
    assert len({repr(value) for value in settings.values()}) == len(settings)
    one = cell("table1", "CIFAR-10", "BYOL").training
    assert one.name(0) != one.name(1)
    assert one.name(0) == replace(one, settings=replace(one.settings, device="cuda:1")).name(0)
    assert one.name(0) != replace(one, settings=replace(one.settings, temperature=0.3)).name(0)
    assert re.fullmatch(r"[\w.-]+", one.name(0))


@pytest.mark.parametrize("name", NAMES)
def test_the_short_budget_has_the_papers_columns_and_says_how_it_is_short(name):
    experiment = EXPERIMENTS[name]
    assert experiment.told
    assert {cell.column for cell in experiment.short} == {cell.column for cell in experiment.cells}
    assert sum(map(hours, all_jobs(wanted([name], "short")))) <= 1.0


@pytest.mark.parametrize("encoder", ["resnet18", "resnet50", "resnet101", "resnet152", "mlp", "mlp:bn"])
def test_every_encoder_that_is_named_can_be_built(encoder):
    used = {job.training.settings.encoder for job in all_jobs(wanted(["all"], "paper"))}
    assert encoder in used
    assert used <= {"resnet18", "resnet50", "resnet101", "resnet152", "mlp", "mlp:bn"}
    with torch.device("meta"):
        encoders.build(encoder, (28,) if encoder.startswith("mlp") else (3, 32, 32), (28,) if ":" in encoder else ())


@pytest.mark.parametrize("name", SETTINGS)
def test_stand_ins_have_the_kind_of_what_they_stand_for(name):
    data = stand_in(name)
    assert data.name == name and data.test is not None and data.train.labels is not None
    shape = {"speech_commands": (1, 16000), "covtype": (54,)}.get(name, (28,) if "higgs" in name else (3, 32, 32))
    assert data.train.shape == shape
    assert (data.table is not None) == (len(shape) == 1)


def test_rows_and_columns_can_be_chosen():
    table1 = EXPERIMENTS["table1"]
    assert len(cells_of(table1, "paper", rows=["covtype"])) == 6
    assert {cell.label for cell in cells_of(table1, "paper", rows=["cifar10"])} == {"CIFAR-10"}
    rows = {cell.label for cell in cells_of(EXPERIMENTS["table3"], "paper", rows=["CIFAR-10"])}
    assert rows == {"CIFAR-10", "CIFAR-10, no augmentation"}
    one = cells_of(table1, "paper", rows=["covtype"], columns=["BYOL"])
    assert [cell.column for cell in one] == ["BYOL"]
    with pytest.raises(InputError, match=r"table1 has no row \['mnist'\]; its rows: \['CIFAR-10', "):
        wanted(["table1"], "paper", rows="mnist")
    with pytest.raises(InputError, match="unknown budget 'smok'; choose from paper, short, smoke"):
        wanted(["table1"], "smok")
    with pytest.raises(InputError, match=r"nothing in the paper has such a row and column: \['mnist'\]"):
        wanted(["all"], "paper", rows=["mnist"])
    with pytest.raises(InputError, match=r"no 'table9' in the paper; choose from table1"):
        wanted(["table9"], "paper")
    with pytest.raises(InputError, match="name what to reproduce"):
        wanted([], "paper")
    with pytest.raises(InputError, match="at least 1"):
        wanted(["table1"], "paper", seeds=0)


def test_the_list_says_what_there_is_and_what_it_costs(tmp_path):
    text = listing(wanted(["all"], "paper"), tmp_path, "paper")
    for name in NAMES:
        assert re.search(rf"^{name} ", text, re.MULTILINE)
    assert re.search(r"^table1 +24 +120 +[\d,.]+ +0/120", text, re.MULTILINE)
    assert "ResNet-18, 200 epochs" in listing(wanted(["all"], "short"), tmp_path, "short")
    some = listing(wanted(["all"], "short", rows=["covtype"], seeds=2), tmp_path, "short").splitlines()
    assert [line.split()[0] for line in some if "/" in line] == ["table1", "table3", "together"]
    assert re.search(r"^together +14 ", some[-1])


# --- as runs ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """Every cell of every experiment, on stand-in data."""
    out = tmp_path_factory.mktemp("paper")
    reproduce(["all"], budget="smoke", out=out, progress=False)
    return out


def test_every_cell_of_every_experiment_runs(smoke):
    asked = wanted(["all"], "smoke")
    assert remaining(asked, smoke) == []
    for experiment, cells, _ in asked:
        lines = read(smoke / f"{experiment.name}.csv")
        assert {(line.row, line.column) for line in lines} == {(cell.label, cell.column) for cell in cells}
        for line in lines:
            assert (line.value is None) == (experiment.name == "figureC1")
            assert line.value is None or 0 <= line.value <= 1e5
        text = (smoke / f"{experiment.name}.md").read_text()
        assert "not run" not in text and "stand-in" in text
    whole = (smoke / "paper.html").read_text()
    assert "not run" not in whole and whole.count("<section>") == len(NAMES)
    assert len(list((smoke / "maps").iterdir())) == 4


def test_what_is_done_is_not_done_again(smoke, capsys):
    before = {path: path.stat().st_mtime_ns for path in (smoke / "runs").rglob("*.safetensors")}
    reproduce(["all"], budget="smoke", out=smoke)
    assert "0 of 67 trainings" in capsys.readouterr().err
    assert before == {path: path.stat().st_mtime_ns for path in (smoke / "runs").rglob("*.safetensors")}


def test_a_file_of_results_is_enough_to_know_what_is_done(smoke, tmp_path):
    (tmp_path / "table1.csv").write_bytes((smoke / "table1.csv").read_bytes())
    assert remaining(wanted(["table1"], "smoke"), tmp_path) == []
    left = remaining(wanted(["table1"], "smoke", seeds=2), tmp_path)
    assert len(left) == 24 and {job.seed for job in left} == {1}


def test_side_by_side_is_the_same_as_one_by_one(smoke, tmp_path):
    reproduce(["table1"], **CIFAR_ROW, columns=["MoCo v2", "BYOL"], out=tmp_path, devices=["cpu"] * 2, progress=False)
    alone = {line.key: line.value for line in read(smoke / "table1.csv")}
    found = read(tmp_path / "table1.csv")
    assert len(found) == 2
    assert all(alone[line.key] == line.value for line in found)


def test_a_share_does_only_its_own(tmp_path):
    how = CIFAR_ROW | {"out": tmp_path, "progress": False, "columns": ["MoCo v2", "BYOL", "N-pair"]}
    reproduce(["table1"], **how, part=(1, 3))
    assert [line.column for line in read(tmp_path / "table1.csv")] == ["MoCo v2"]
    with pytest.raises(InputError, match="I from 0 to N - 1; got 3/3"):
        reproduce(["table1"], **how, part=(3, 3))


def test_data_that_is_not_there_is_named_and_the_rest_goes_on(tmp_path):
    """ImageNet is nowhere: it is said once, with how many that concerns."""
    said = r"imagenet100 needs .*\(2 of 4 trainings\); imagenet needs .*\(2 of 4 trainings\)$"
    with pytest.raises(InputError, match=said):
        reproduce(["table2"], rows=["ImageNet-100", "ImageNet-1k"], out=tmp_path, data_dir=tmp_path, progress=False)
    assert (tmp_path / "paper.html").exists()


def test_a_measurement_that_fails_does_not_take_the_others_with_it(tmp_path, monkeypatch):
    real = Worker._evaluate

    def failing(self, run, protocol, on, device):
        if on == "cifar100":
            raise InputError("no cifar100 here")
        return real(self, run, protocol, on, device)

    monkeypatch.setattr(Worker, "_evaluate", failing)
    how = {"budget": "smoke", "out": tmp_path, "progress": False, "columns": ["MoCo v2"]}
    rows = ["CIFAR-10 → CIFAR-10", "CIFAR-10 → CIFAR-100"]
    with pytest.raises(InputError, match="no cifar100 here"):
        reproduce(["table4a"], rows=rows, **how)
    assert [line.row for line in read(tmp_path / "table4a.csv")] == [rows[0]]
    monkeypatch.undo()
    reproduce(["table4a"], rows=rows, **how)
    assert [line.row for line in read(tmp_path / "table4a.csv")] == rows


def test_two_processes_do_not_do_the_same(tmp_path):
    job = all_jobs(wanted(["table1"], "smoke", rows=["CIFAR-10"], columns=["BYOL"]))[0]
    folder = tmp_path / "runs" / job.name
    folder.mkdir(parents=True)
    with locked(folder):
        assert "another command is training" in Worker(tmp_path, "smoke", progress=False).do(job).failures[0].args[0]
    assert Worker(tmp_path, "smoke", progress=False).do(job).failures == []


@pytest.fixture
def job():
    return all_jobs(wanted(["table1"], "smoke", rows=["CIFAR-10"], columns=["BYOL"]))[0]


def test_a_run_is_measured_on_the_device_of_this_command_not_of_the_one_that_trained_it(job, tmp_path):
    worker, folder = Worker(tmp_path, "smoke", progress=False), tmp_path / "runs" / job.name
    worker.do(job)
    (folder / "evaluations.jsonl").unlink()
    config = json.loads((folder / "config.json").read_text())
    config["settings"]["device"] = "cuda:3"
    (folder / "config.json").write_text(json.dumps(config))
    assert worker.do(job).failures == []
    maps = replace(job, measurements=(Measurement("map", "cifar10"),))
    assert worker.do(maps).failures == []


def test_a_measurement_with_other_constants_is_not_taken_for_the_papers(job, tmp_path):
    worker, folder = Worker(tmp_path, "smoke", progress=False), tmp_path / "runs" / job.name
    worker.do(job)
    (folder / "evaluations.jsonl").unlink()
    evaluate(folder, stand_in("cifar10"), "knn", device="cpu", constants=KNN(k=1))
    outcome = worker.do(job)
    lines = [line for line in read_lines(folder / "evaluations.jsonl") if line["protocol"] == "knn"]
    assert [line["constants"]["k"] for line in lines] == [1, 20]
    assert outcome.values["linear", "cifar10"].knn == 100 * lines[1]["value"]
    before = (folder / "evaluations.jsonl").read_bytes()
    assert worker.do(job).values == outcome.values
    assert (folder / "evaluations.jsonl").read_bytes() == before


def test_a_measurement_by_the_runs_own_standardisation_is_not_taken_for_the_papers(job, tmp_path):
    worker, folder = Worker(tmp_path, "smoke", progress=False), tmp_path / "runs" / job.name
    other = replace(job, measurements=(Measurement("knn", "cifar100"),))
    worker.do(replace(job, measurements=()))
    evaluate(folder, stand_in("cifar100"), "knn", device="cpu")
    for _ in range(2):
        outcome = worker.do(other)
        lines = read_lines(folder / "evaluations.jsonl")
        assert ["standardised" in line["constants"] for line in lines] == [False, True]
        assert outcome.values["knn", "cifar100"].value == 100 * lines[1]["value"]


@pytest.mark.parametrize("name", [*SETTINGS, "voc"])
def test_data_is_fetched_where_the_folder_has_none_of_its_files(name, tmp_path):
    worker = Worker(tmp_path / "out", data_dir=tmp_path)
    assert worker._place(name) is None
    (tmp_path / FILES[name][0]).touch()
    assert worker._place(name) == str(tmp_path)
    (tmp_path / name).mkdir()
    assert worker._place(name) == str(tmp_path / name)


def test_a_data_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"no folder '.*nowhere'"):
        reproduce(["table1"], out=tmp_path, data_dir=tmp_path / "nowhere", progress=False)


def test_a_training_that_collapsed_is_no_fault_of_the_input(tmp_path, monkeypatch):
    def collapse(worker, job, folder, device):
        raise TrainingError("all features are the same")

    def missing(worker, job, folder, device):
        raise InputError("no data")

    how = CIFAR_ROW | {"out": tmp_path, "progress": False, "columns": ["BYOL"]}
    monkeypatch.setattr(Worker, "_train", missing)
    with pytest.raises(InputError, match="no data"):
        reproduce(["table1"], **how)
    monkeypatch.setattr(Worker, "_train", collapse)
    with pytest.raises(TrainingError, match="all features are the same"):
        reproduce(["table1"], **how)


def test_sigterm_stops_all_and_the_same_command_goes_on(tmp_path):
    script = "import sys\nfrom imix.cli import main\nif __name__ == '__main__':\n    sys.argv[0] = 'imix'\n    main()\n"
    (tmp_path / "go.py").write_text(script)
    command = [sys.executable, str(tmp_path / "go.py"), "reproduce", "table1", "--budget", "smoke"]
    command += ["--row", "CIFAR-10", "CIFAR-100", "--devices", "cpu", "cpu", "--out", str(tmp_path / "out")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while not (tmp_path / "out/table1.csv").exists() and time.monotonic() < until:
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 75, said
    assert "the same command" in said
    done = len(read(tmp_path / "out/table1.csv"))
    assert 1 <= done < 12
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    assert len(read(tmp_path / "out/table1.csv")) == 12


# --- what was found --------------------------------------------------------------------------------------------------


def found(cell, seed, value, paper_way=None):
    way = value if paper_way is None else paper_way
    return Found(
        cell.label,
        cell.column,
        seed,
        "paper",
        value,
        way,
        None,
        cell.training.name(seed),
        60.0,
        "GPU",
        "1",
        "2020-01-01",
    )


def test_lines_are_kept_and_replaced(tmp_path):
    path = tmp_path / "deep/table1.csv"
    a, b = cell("table1", "CIFAR-10", "BYOL"), cell("table1", "CIFAR-10", "N-pair")
    add(path, [found(a, 0, 93.0), found(b, 0, 92.0)])
    add(path, [found(a, 0, 94.0), found(a, 1, 95.0)])
    assert [(line.column, line.seed, line.value) for line in read(path)] == [
        ("BYOL", 0, 94.0),
        ("N-pair", 0, 92.0),
        ("BYOL", 1, 95.0),
    ]
    with open(path, newline="") as file:
        assert next(csv.DictReader(file))["run"] == a.training.name(0)


def test_a_file_of_something_else_is_refused(tmp_path):
    (tmp_path / "table1.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="not a file of results"):
        read(tmp_path / "table1.csv")
    assert read(tmp_path / "table2.csv") == []


def test_processes_that_write_the_same_file_do_not_disturb_each_other(tmp_path):
    script = "from pathlib import Path\nfrom imix.files import write_text\n"
    script += f"for _ in range(100): write_text(Path({str(tmp_path / 'page')!r}), 'whole')"
    processes = [subprocess.Popen([sys.executable, "-c", script]) for _ in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("page", "whole")]


def test_what_a_killed_process_left_of_a_file_goes_with_the_next_writing(tmp_path):
    gone = subprocess.Popen(["true"])
    gone.wait()
    (tmp_path / f".{gone.pid}.page.unfinished").write_text("half")
    os.utime(tmp_path / f".{gone.pid}.page.unfinished", (0, 0))
    (tmp_path / f".{gone.pid + 1_000_000}.page.unfinished").write_text("being written on another machine")
    (tmp_path / ".x.page.unfinished").write_text("of something else")
    (tmp_path / f".{os.getppid()}.page.unfinished").write_text("being written")
    write_text(tmp_path / "page", "whole")
    assert not (tmp_path / f".{gone.pid}.page.unfinished").exists()
    assert len(list(tmp_path.iterdir())) == 4


def test_pages_keep_what_earlier_commands_found(tmp_path):
    add(tmp_path / "table1.csv", [found(cell("table1", "CIFAR-10", "BYOL"), seed, 93.0) for seed in range(7)])
    add(tmp_path / "table3.csv", [found(cell("table3", "CIFAR-100", "MoCo v2"), 0, 71.0)])
    whole = write_pages(tmp_path, wanted(["table1"], "paper", rows=["covtype"]), "paper", Switches()).read_text()
    text = (tmp_path / "table1.md").read_text()
    assert "| CIFAR-10 |" in text and "| CovType |" in text and "| CIFAR-100 |" not in text
    assert "7 runs" in text and "over up to 7 seeds" in text
    assert "<h2>table1" in whole and "<h2>table3" in whole and "<h2>table2" not in whole
    assert not (tmp_path / "table3.md").exists()


def test_what_is_known_at_another_budget_stays_on_the_page_as_that(tmp_path):
    add(tmp_path / "table1.csv", [found(cell("table1", "CIFAR-10", "BYOL"), 0, 93.0)])
    whole = write_pages(tmp_path, wanted(["table2"], "short"), "short", Switches()).read_text()
    assert whole.index("<h2>table2") < whole.index("Budget: short") < whole.index("<h2>table1")
    assert whole.index("<h2>table1") < whole.index("the paper&#x27;s full length")


def test_pages_are_written_under_the_lock_of_their_folder(tmp_path, monkeypatch):
    held = []

    def look(path, text):
        try:
            with locked(tmp_path, wait=False):
                held.append(False)
        except BlockingIOError:
            held.append(True)

    monkeypatch.setattr(page, "write_text", look)
    write_pages(tmp_path, wanted(["table1", "table2"], "short"), "short", Switches())
    assert held == [True, True, True]


def test_numbers_beside_the_papers(tmp_path):
    cells = cells_of(EXPERIMENTS["table1"], "paper", rows=["CIFAR-10"], columns=["BYOL", "BYOL + i-Mix"])
    plain, mixed = cells
    lines = [found(plain, 0, 93.0, 93.2), found(plain, 1, 94.0, 94.2), found(mixed, 0, 96.0, 96.5)]
    seen = ours(plain, lines, 5, Switches())
    assert seen.mean == pytest.approx(93.7) and seen.other == pytest.approx(93.5)
    assert seen.spread == pytest.approx(0.5**0.5)
    assert str(seen) == "93.7 ± 0.7 (93.5)"
    assert ours(plain, lines, 5, Switches(choose_on="held-out")).mean == pytest.approx(93.5)
    columns, rows = table(cells, lines, 5, Switches())
    assert columns == ["BYOL", "BYOL + i-Mix"]
    assert [tuple(shown) for shown in rows["CIFAR-10"]] == [
        ("93.7 ± 0.7 (93.5)", "94.2 ± 0.2", "-0.5", "", ""),
        ("96.5 (96.0)", "96.3 ± 0.2", "+0.2", "+2.8", "+2.1"),
    ]
    add(tmp_path / "table1.csv", lines)
    asked = wanted(["table1"], "paper", rows=["CIFAR-10"])
    whole = write_pages(tmp_path, asked, "paper", Switches()).read_text()
    text = (tmp_path / "table1.md").read_text()
    assert "**93.7 ± 0.7 (93.5)**<br>paper 94.2 ± 0.2, -0.5" in text
    assert "**96.5 (96.0)**<br>paper 96.3 ± 0.2, +0.2<br>by mixing +2.8, paper +2.1" in text
    assert "**not run**<br>paper 93.3 ± 0.1" in text
    assert "3 runs, 180 s in all on GPU, 2020-01-01" in text
    assert '<span class="ours">93.7 ± 0.7 (93.5)</span>' in whole and "<script" not in whole


def test_other_budgets_and_switches_do_not_count(tmp_path):
    short = cell("table1", "CIFAR-10", "BYOL + i-Mix", "short")
    line = found(short, 0, 90.0)
    assert ours(short, [line], 1, Switches()).mean == 90.0
    assert ours(cell("table1", "CIFAR-10", "BYOL + i-Mix"), [line], 5, Switches()) is None
    unfolded = cell("table1", "CIFAR-10", "BYOL + i-Mix", "short", Switches(fold=False))
    assert ours(unfolded, [line], 1, Switches()) is None


def test_figures_are_drawn():
    figure = EXPERIMENTS["figure2"]
    cells = cells_of(figure, "paper", rows=["CIFAR-10, ResNet-18, 200", "CIFAR-10, ResNet-18, 2000"])
    assert {cell.x for cell in cells} == {200, 2000}
    lines = [found(cell, 0, 90.0 + number) for number, cell in enumerate(cells)]
    drawn = picture(figure, cells, lines, 1, Switches())
    assert drawn.count("<polyline") == 2 and drawn.count("<circle") == 6 and drawn.count("stroke-dasharray") == 2
    assert ">epochs<" in drawn and ">2000<" in drawn
    assert "nothing has been run" in picture(figure, cells, [], 1, Switches())


# --- elsewhere -------------------------------------------------------------------------------------------------------


def test_the_script_for_slurm(tmp_path):
    path = write_slurm(tmp_path, "table1", 120, 3.2, "imix reproduce table1 --budget paper --out 'my runs'")
    subprocess.run(["bash", "-n", str(path)], check=True)
    text = path.read_text()
    assert "--array=0-119" in text and "--time=7:00:00" in text and "--gres=gpu:1" in text
    assert "imix reproduce table1 --budget paper --out 'my runs' --part \"$SLURM_ARRAY_TASK_ID/120\"" in text


def test_a_task_of_the_script_does_its_share(tmp_path):
    """With stand-ins for srun and scontrol: a task does one training, and one that leaves with 75 is put back."""
    out = tmp_path / "out"
    environment = os.environ | {"PATH": f"{tmp_path}:{os.path.dirname(sys.executable)}:{os.environ['PATH']}"}
    arguments = ["reproduce", "table1", "--budget", "smoke", "--row", "CIFAR-10", "--column", "BYOL", "N-pair"]
    subprocess.run(["imix", *arguments, "--slurm", "--out", str(out)], check=True, env=environment, capture_output=True)
    for name, body in (("srun", 'exec "$@"'), ("scontrol", f"echo $@ >> {tmp_path}/queue")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    task = environment | {"SLURM_ARRAY_TASK_ID": "1", "SLURM_ARRAY_JOB_ID": "9"}
    subprocess.run(["bash", str(out / "table1.sbatch")], check=True, env=task, capture_output=True)
    assert [line.column for line in read(out / "table1.csv")] == ["BYOL"]
    assert not (tmp_path / "queue").exists()
    (tmp_path / "srun").write_text("#!/bin/sh\nexit 75\n")
    assert subprocess.run(["bash", str(out / "table1.sbatch")], env=task).returncode == 75
    assert (tmp_path / "queue").read_text() == "requeue 9_1\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["table9"], "there is no 'table9' in the paper"),
        ([], "name what to reproduce"),
        (["table1", "--part", "x"], "part must be I/N"),
        (["table1", "--row", "mnist"], "has no row"),
        (["table1", "--devices", "cuda:99"], "cuda:99"),
        (["table1", "--devices"], "at least one device"),
    ],
)
def test_the_command_says_what_is_wrong(arguments, said, tmp_path, capsys, monkeypatch):
    from imix.cli import main

    monkeypatch.setattr(sys, "argv", ["imix", "reproduce", *arguments, "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as leaving:
        main()
    assert leaving.value.code == 2
    assert said in capsys.readouterr().err


def test_the_command_lists(tmp_path, capsys, monkeypatch):
    from imix.cli import main

    monkeypatch.setattr(sys, "argv", ["imix", "reproduce", "--list", "--out", str(tmp_path)])
    main()
    assert "tableC3" in capsys.readouterr().out


def test_interrupted_travels_between_processes():
    import pickle

    assert str(pickle.loads(pickle.dumps(Interrupted("stopped")))) == "stopped"


def test_a_setting_that_comes_later_does_not_make_results_strange(monkeypatch):
    """Names of runs tell what is not as by default, so a new setting at its default changes none."""

    @dataclass(frozen=True)
    class Later(Settings):
        of_the_future: int = 1

    one = cell("table1", "CIFAR-10", "BYOL").training
    monkeypatch.setattr("imix.paper.experiment.USUAL", Later())
    later = Later(**asdict(one.settings))
    assert replace(one, settings=later).name(0) == one.name(0)
    assert replace(one, settings=replace(later, of_the_future=2)).name(0) != one.name(0)


def test_results_in_the_docs_are_of_trainings_that_there_are():
    results = Path(__file__).parent.parent / "docs/results/paper"
    for path in results.glob("*.csv"):
        known = {job.name for budget in ("short", "paper") for job in all_jobs(wanted([path.stem], budget, seeds=5))}
        assert {line.run for line in read(path)} <= known


def test_every_training_can_be_spelled_out_as_commands(monkeypatch, capsys, tmp_path):
    seen = []

    def start(data, settings, reading, **others):
        seen.append((data, settings, reading))
        raise InputError("seen")

    monkeypatch.setattr("imix.pretraining.pretrain", start)
    jobs = all_jobs(wanted(["all"], "paper"))
    for job in jobs[::29]:
        pretrain, *measures = commands_of(job)
        asked = [measurement.protocol for measurement in job.measurements]
        assert len(measures) == len(asked) + asked.count("linear")  # with kNN beside it
        monkeypatch.setattr(sys, "argv", shlex.split(pretrain))
        with pytest.raises(SystemExit):
            main()
        expected = replace(job.training.settings, seed=job.seed)
        assert seen.pop() == (job.training.data, expected, job.training.reading)
    monkeypatch.setattr(sys, "argv", ["imix", "reproduce", "table1", "--row", "covtype", "--seeds", "1", "--commands"])
    main()
    said = capsys.readouterr().out
    assert said.count("imix pretrain covtype ") == 6
    assert said.count("imix evaluate runs/covtype-") == 2 * said.count(" --protocol knn") == 12
    (tmp_path / "cifar10").mkdir()
    given = ["--row", "CIFAR-10", "--commands", "--data-dir", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["imix", "reproduce", "tableC1", *given])
    main()
    for line in filter(None, capsys.readouterr().out.splitlines()):
        told = "imix pretrain cifar10 " in line or "--data cifar10 " in line  # a run remembers where its own is
        assert (f"--data-dir {tmp_path / 'cifar10'}" in line) == told, line
