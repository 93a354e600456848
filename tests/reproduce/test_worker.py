"""One training and its measurements."""

import json
from dataclasses import replace

import pytest

from imix.data.named import DATASETS
from imix.evaluation import KNN, evaluate
from imix.files import locked, read_jsonl
from imix.reproduce.experiment import Measurement
from imix.reproduce.fake_data import fake_data
from imix.reproduce.jobs import all_jobs
from imix.reproduce.requests import select_requests
from imix.reproduce.worker import Worker


@pytest.fixture
def job():
    return all_jobs(select_requests(["table1"], "smoke", rows=["CIFAR-10"], columns=["BYOL"]))[0]


def test_two_processes_do_not_run_the_same_training(job, tmp_path):
    folder = tmp_path / "runs" / job.name
    folder.mkdir(parents=True)
    with locked(folder):
        assert "another command is training" in Worker(tmp_path, "smoke", progress=False).run(job).failures[0].args[0]
    assert Worker(tmp_path, "smoke", progress=False).run(job).failures == []


@pytest.mark.slow
def test_a_run_is_measured_on_the_current_device_not_the_one_it_was_trained_on(job, tmp_path):
    worker, folder = Worker(tmp_path, "smoke", progress=False), tmp_path / "runs" / job.name
    worker.run(job)
    (folder / "evaluations.jsonl").unlink()
    config = json.loads((folder / "config.json").read_text())
    config["settings"]["device"] = "cuda:3"
    (folder / "config.json").write_text(json.dumps(config))
    assert worker.run(job).failures == []
    map_job = replace(job, measurements=(Measurement("map", "cifar10"),))
    assert worker.run(map_job).failures == []


def test_a_stored_result_with_other_hyperparameters_is_not_reused(job, tmp_path):
    worker, folder = Worker(tmp_path, "smoke", progress=False), tmp_path / "runs" / job.name
    worker.run(job)
    (folder / "evaluations.jsonl").unlink()
    evaluate(folder, fake_data("cifar10"), "knn", device="cpu", hyperparameters=KNN(k=1))
    outcome = worker.run(job)
    lines = [line for line in read_jsonl(folder / "evaluations.jsonl") if line["protocol"] == "knn"]
    assert [line["hyperparameters"]["k"] for line in lines] == [1, 20]
    assert outcome.values["linear", "cifar10"].knn == 100 * lines[1]["metrics"]["accuracy"]
    before = (folder / "evaluations.jsonl").read_bytes()
    assert worker.run(job).values == outcome.values
    assert (folder / "evaluations.jsonl").read_bytes() == before


def test_a_stored_result_with_other_standardization_is_not_reused(job, tmp_path):
    worker, folder = Worker(tmp_path, "smoke", progress=False), tmp_path / "runs" / job.name
    transfer_job = replace(job, measurements=(Measurement("knn", "cifar100"),))
    worker.run(replace(job, measurements=()))
    evaluate(folder, fake_data("cifar100"), "knn", device="cpu")
    for _ in range(2):
        outcome = worker.run(transfer_job)
        lines = read_jsonl(folder / "evaluations.jsonl")
        assert [line["restandardized"] for line in lines] == [False, True]
        assert outcome.values["knn", "cifar100"].value == 100 * lines[1]["metrics"]["accuracy"]


@pytest.mark.parametrize("name", [name for name, dataset in DATASETS.items() if dataset.recipe or name == "voc"])
def test_data_dir_is_used_only_if_it_contains_the_data_set(name, tmp_path):
    worker = Worker(tmp_path / "out", data_dir=tmp_path)
    assert worker._data_dir(name) is None
    (tmp_path / DATASETS[name].marker_files[0]).touch()
    assert worker._data_dir(name) == str(tmp_path)
    (tmp_path / name).mkdir()
    assert worker._data_dir(name) == str(tmp_path / name)
