"""`imix reproduce --list`, `--commands` and `--slurm`."""

import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace

import pytest

from imix import InputError
from imix.cli import main
from imix.reproduce.jobs import estimate_hours, list_jobs
from imix.reproduce.plan import job_commands, listing, write_slurm_script
from imix.reproduce.requests import select_requests
from imix.reproduce.results import read_results
from tests.reproduce.helpers import NAMES


def test_listing_shows_cells_runs_cost_and_progress(tmp_path):
    text = listing(select_requests(["all"], "paper"), tmp_path, "paper")
    for name in NAMES:
        assert re.search(rf"^{name} ", text, re.MULTILINE)
    assert re.search(r"^table1 +24 +120 +[\d,.]+ +0/120", text, re.MULTILINE)
    assert "ResNet-18, 200 epochs" in listing(select_requests(["all"], "short"), tmp_path, "short")
    covtype = listing(select_requests(["all"], "short", rows=["covtype"], seeds=2), tmp_path, "short").splitlines()
    assert [line.split()[0] for line in covtype if "/" in line] == ["table1", "table3", "total"]
    assert re.search(r"^total +14 ", covtype[-1])


def test_every_training_can_be_written_as_commands(monkeypatch):
    calls = []

    def fake_pretrain(data, settings, data_settings, **options):
        calls.append((data, settings, data_settings))
        raise InputError("not run")

    monkeypatch.setattr("imix.train.pretrain.pretrain", fake_pretrain)
    for job in list_jobs(select_requests(["all"], "paper"))[::29]:
        pretrain, *measurements = job_commands(job)
        protocols = [protocol for protocol, _ in job.measurements]
        assert len(measurements) == len(protocols) + protocols.count("linear-paper")  # linear evaluation includes kNN
        monkeypatch.setattr(sys, "argv", shlex.split(pretrain))
        with pytest.raises(SystemExit):
            main()
        expected = replace(job.training.settings, seed=job.seed)
        assert calls.pop() == (job.training.data, expected, job.training.data_settings)


def test_commands_are_printed(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["imix", "reproduce", "table1", "--row", "covtype", "--seeds", "1", "--commands"])
    main()
    output = capsys.readouterr().out
    assert output.count("imix pretrain covtype ") == 6
    assert output.count("imix evaluate runs/covtype-") == 2 * output.count(" --protocol knn") == 12


def test_commands_contain_the_data_dir(monkeypatch, capsys, tmp_path):
    (tmp_path / "cifar10").mkdir()
    flags = ["--row", "CIFAR-10", "--commands", "--data-dir", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["imix", "reproduce", "tableC1", *flags])
    main()
    for line in filter(None, capsys.readouterr().out.splitlines()):
        expected = "imix pretrain cifar10 " in line or "--data cifar10 " in line  # a run stores its own data_dir
        assert (f"--data-dir {tmp_path / 'cifar10'}" in line) == expected, line


def test_slurm_script_has_a_task_per_training(tmp_path):
    requests = select_requests(["table1"], "paper")
    arguments = ["table1", "--budget", "paper", "--slurm", "--out", "my runs"]
    path = write_slurm_script("table1", requests, arguments, tmp_path)
    hours = round(2 * max(map(estimate_hours, list_jobs(requests))) + 0.5)
    assert 1 < hours < 48
    subprocess.run(["bash", "-n", str(path)], check=True)
    text = path.read_text()
    assert "--array=0-119" in text and f"--time={hours}:00:00" in text and "--gres=gpu:1" in text
    assert "imix reproduce table1 --budget paper --out 'my runs' --shard \"$SLURM_ARRAY_TASK_ID/120\"" in text


def test_a_slurm_task_runs_its_shard_and_is_requeued_when_stopped(tmp_path):
    """Uses fake srun and scontrol commands; a task that exits with code 75 is requeued."""
    out = tmp_path / "out"
    environment = os.environ | {"PATH": f"{tmp_path}:{os.path.dirname(sys.executable)}:{os.environ['PATH']}"}
    arguments = ["reproduce", "table1", "--budget", "smoke", "--row", "CIFAR-10", "--column", "BYOL", "N-pair"]
    subprocess.run(["imix", *arguments, "--slurm", "--out", str(out)], check=True, env=environment, capture_output=True)
    for name, body in (("srun", 'exec "$@"'), ("scontrol", f"echo $@ >> {tmp_path}/queue")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    task = environment | {"SLURM_ARRAY_TASK_ID": "1", "SLURM_ARRAY_JOB_ID": "9"}
    subprocess.run(["bash", str(out / "table1.sbatch")], check=True, env=task, capture_output=True)
    assert [row.column for row in read_results(out / "table1.csv")] == ["BYOL"]
    assert not (tmp_path / "queue").exists()
    (tmp_path / "srun").write_text("#!/bin/sh\nexit 75\n")
    assert subprocess.run(["bash", str(out / "table1.sbatch")], env=task).returncode == 75
    assert (tmp_path / "queue").read_text() == "requeue 9_1\n"
