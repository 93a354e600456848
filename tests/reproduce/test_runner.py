"""reproduce(): every cell runs, and a command that was stopped or failed continues."""

import sys

import pytest

from imix import InputError, TrainingError
from imix.reproduce.jobs import list_jobs
from imix.reproduce.requests import select_requests
from imix.reproduce.results import read_results
from imix.reproduce.runner import reproduce
from imix.reproduce.worker import Worker

CIFAR_ROW = {"rows": ["CIFAR-10"], "budget": "smoke"}


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """Every cell of every experiment, on fake data."""
    out = tmp_path_factory.mktemp("paper")
    reproduce(["all"], budget="smoke", out=out, progress=False)
    return out


@pytest.mark.slow
def test_every_cell_of_every_experiment_runs(smoke):
    requests = select_requests(["all"], "smoke")
    assert list_jobs(requests, smoke) == []
    for experiment, cells, _ in requests:
        results = read_results(smoke / f"{experiment.name}.csv")
        assert {(row.row, row.column) for row in results} == {(cell.label, cell.column) for cell in cells}
        for row in results:
            assert (row.value is None) == (experiment.name == "figureC1")
            assert row.value is None or 0 <= row.value <= 1e5
        text = (smoke / f"{experiment.name}.md").read_text()
        assert "not run" not in text and "fake data" in text
    assert len(list((smoke / "maps").iterdir())) == 4


@pytest.mark.slow
def test_finished_runs_are_not_repeated(smoke, capsys):
    before = {path: path.stat().st_mtime_ns for path in (smoke / "runs").rglob("*.safetensors")}
    reproduce(["all"], budget="smoke", out=smoke)
    assert "0 of 67 runs remaining" in capsys.readouterr().err
    assert before == {path: path.stat().st_mtime_ns for path in (smoke / "runs").rglob("*.safetensors")}


@pytest.mark.slow
def test_result_file_alone_determines_what_remains(smoke, tmp_path):
    (tmp_path / "table1.csv").write_bytes((smoke / "table1.csv").read_bytes())
    assert list_jobs(select_requests(["table1"], "smoke"), tmp_path) == []
    remaining = list_jobs(select_requests(["table1"], "smoke", seeds=2), tmp_path)
    assert len(remaining) == 24 and {job.seed for job in remaining} == {1}


@pytest.mark.subprocess
@pytest.mark.slow
def test_parallel_results_equal_sequential_results(smoke, tmp_path):
    reproduce(["table1"], **CIFAR_ROW, columns=["MoCo v2", "BYOL"], out=tmp_path, devices=["cpu"] * 2, progress=False)
    sequential = {row.key: row.value for row in read_results(smoke / "table1.csv")}
    parallel = read_results(tmp_path / "table1.csv")
    assert len(parallel) == 2
    assert all(sequential[row.key] == row.value for row in parallel)


def test_a_shard_runs_only_its_own_jobs(tmp_path):
    options = CIFAR_ROW | {"out": tmp_path, "progress": False, "columns": ["MoCo v2", "BYOL", "N-pair"]}
    reproduce(["table1"], **options, shard=(1, 3))
    assert [row.column for row in read_results(tmp_path / "table1.csv")] == ["MoCo v2"]
    with pytest.raises(InputError, match="I from 0 to N - 1; got 3/3"):
        reproduce(["table1"], **options, shard=(3, 3))


def test_missing_data_is_reported_once_and_the_rest_runs(tmp_path):
    message = r"imagenet100 needs .*\(2 of 4 runs\); imagenet needs .*\(2 of 4 runs\)$"
    with pytest.raises(InputError, match=message):
        reproduce(["table2"], rows=["ImageNet-100", "ImageNet-1k"], out=tmp_path, data_dir=tmp_path, progress=False)
    assert (tmp_path / "table2.md").exists()


def test_a_failed_measurement_does_not_affect_the_others(tmp_path, monkeypatch):
    original = Worker._evaluate

    def failing(self, run, protocol, data_name, device):
        if data_name == "cifar100":
            raise InputError("no cifar100 here")
        return original(self, run, protocol, data_name, device)

    monkeypatch.setattr(Worker, "_evaluate", failing)
    options = {"budget": "smoke", "out": tmp_path, "progress": False, "columns": ["MoCo v2"]}
    rows = ["CIFAR-10 → CIFAR-10", "CIFAR-10 → CIFAR-100"]
    with pytest.raises(InputError, match="no cifar100 here"):
        reproduce(["table4a"], rows=rows, **options)
    assert [row.row for row in read_results(tmp_path / "table4a.csv")] == [rows[0]]
    monkeypatch.undo()
    reproduce(["table4a"], rows=rows, **options)
    assert [row.row for row in read_results(tmp_path / "table4a.csv")] == rows


def test_a_missing_data_folder_is_an_error(tmp_path):
    with pytest.raises(InputError, match=r"`data_dir` must be an existing folder; got '.*missing'"):
        reproduce(["table1"], out=tmp_path, data_dir=tmp_path / "missing", progress=False)


def test_a_collapsed_training_raises_training_error(tmp_path, monkeypatch):
    def collapse(worker, job, device):
        raise TrainingError("all features are the same")

    def missing(worker, job, device):
        raise InputError("no data")

    options = CIFAR_ROW | {"out": tmp_path, "progress": False, "columns": ["BYOL"]}
    monkeypatch.setattr(Worker, "_train", missing)
    with pytest.raises(InputError, match="no data"):
        reproduce(["table1"], **options)
    monkeypatch.setattr(Worker, "_train", collapse)
    with pytest.raises(TrainingError, match="all features are the same"):
        reproduce(["table1"], **options)


def test_missing_matplotlib_is_reported_before_training(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"pip install 'imix-ssl\[figures\]'"):
        reproduce(["figure2"], budget="smoke", out=tmp_path)
    assert not (tmp_path / "runs").exists()
