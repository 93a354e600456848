"""`imix reproduce --commands`."""

import shlex
import sys
from dataclasses import replace

import pytest

from imix import InputError
from imix.cli import main
from imix.reproduce.as_commands import job_commands
from imix.reproduce.jobs import all_jobs
from imix.reproduce.requests import select_requests


def test_every_training_can_be_written_as_commands(monkeypatch):
    calls = []

    def fake_pretrain(data, settings, data_settings, **options):
        calls.append((data, settings, data_settings))
        raise InputError("not run")

    monkeypatch.setattr("imix.train.pretrain.pretrain", fake_pretrain)
    for job in all_jobs(select_requests(["all"], "paper"))[::29]:
        pretrain, *measurements = job_commands(job)
        protocols = [measurement.protocol for measurement in job.measurements]
        assert len(measurements) == len(protocols) + protocols.count("linear")  # linear evaluation includes kNN
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
