"""One training and its measurements."""

import json
from dataclasses import replace

import pytest

from imix.evaluation import KNN, evaluate
from imix.files import locked, read_jsonl
from imix.reproduce.fake_data import fake_data
from imix.reproduce.jobs import list_jobs
from imix.reproduce.requests import select_requests
from imix.reproduce.results import read_results
from imix.reproduce.worker import Worker


@pytest.fixture
def job():
    return list_jobs(select_requests(["table1"], "smoke", rows=["CIFAR-10"], columns=["BYOL"]))[0]


def with_metric(job, metric, **changes):
    """The job with one cell, which is measured in another way."""
    [(experiment, cell)] = job.cells
    return replace(job, cells=[(experiment, replace(cell, metric=metric, **changes))])


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
    assert worker.run(with_metric(job, "map")).failures == []


def test_a_stored_result_with_other_hyperparameters_is_not_reused(job, tmp_path):
    worker, folder = Worker(tmp_path, "smoke", progress=False), tmp_path / "runs" / job.name
    worker.run(job)
    (folder / "evaluations.jsonl").unlink()
    evaluate(folder, fake_data("cifar10"), "knn", device="cpu", hyperparameters=KNN(k=1))
    worker.run(job)
    lines = [line for line in read_jsonl(folder / "evaluations.jsonl") if line["protocol"] == "knn"]
    assert [line["hyperparameters"]["k"] for line in lines] == [1, 20]
    [result] = read_results(tmp_path / "table1.csv")
    assert result.knn == round(100 * lines[1]["metrics"]["accuracy"], 3)
    before = (folder / "evaluations.jsonl").read_bytes()
    worker.run(job)
    [repeated] = read_results(tmp_path / "table1.csv")
    assert (repeated.value, repeated.knn) == (result.value, result.knn)
    assert (folder / "evaluations.jsonl").read_bytes() == before


def test_a_stored_result_with_other_standardization_is_not_reused(job, tmp_path):
    worker, folder = Worker(tmp_path, "smoke", progress=False), tmp_path / "runs" / job.name
    transfer_job = with_metric(job, "knn", eval_data="cifar100")
    worker.run(replace(job, cells=[]))
    evaluate(folder, fake_data("cifar100"), "knn", device="cpu")
    for _ in range(2):
        worker.run(transfer_job)
        lines = read_jsonl(folder / "evaluations.jsonl")
        assert [line["restandardized"] for line in lines] == [False, True]
        [result] = read_results(tmp_path / "table1.csv")
        assert result.value == round(100 * lines[1]["metrics"]["accuracy"], 3)
