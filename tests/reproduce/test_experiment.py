"""Names of runs."""

import re
from dataclasses import asdict, dataclass, replace

from imix import Settings
from imix.reproduce.jobs import list_jobs
from imix.reproduce.requests import select_requests
from tests.reproduce.helpers import find_cell


def test_different_runs_have_different_run_names():
    settings = {
        job.name: (job.training.data, job.training.settings, job.training.data_settings)
        for job in list_jobs(select_requests(["all"], "paper"))
        if job.seed == 0
    }
    assert len({repr(value) for value in settings.values()}) == len(settings)
    training = find_cell("table1", "CIFAR-10", "BYOL").training
    assert training.name(0) != training.name(1)
    assert training.name(0) == replace(training, settings=replace(training.settings, device="cuda:1")).name(0)
    assert training.name(0) != replace(training, settings=replace(training.settings, temperature=0.3)).name(0)
    assert re.fullmatch(r"[\w.-]+", training.name(0))


def test_adding_a_setting_does_not_change_run_names():
    @dataclass(frozen=True)
    class NewSettings(Settings):
        new_setting: int = 1

    training = find_cell("table1", "CIFAR-10", "BYOL").training
    settings = NewSettings(**asdict(training.settings))
    assert replace(training, settings=settings).name(0) == training.name(0)
    assert replace(training, settings=replace(settings, new_setting=2)).name(0) != training.name(0)
