"""Trainings behind the requested cells."""

import pytest

from imix.data.named import DATASETS
from imix.reproduce.jobs import dataset_folder, list_jobs
from imix.reproduce.requests import select_requests
from tests.reproduce.helpers import NAMES, find_cell


def test_runs_shared_by_several_tables_run_once():
    shared = find_cell("table1", "CIFAR-10", "MoCo v2").training.name(0)
    assert find_cell("table3", "CIFAR-10", "MoCo v2").training.name(0) == shared
    assert find_cell("table4a", "CIFAR-10 → CIFAR-100", "MoCo v2").training.name(0) == shared
    # The authors' command for MoCo + i-Mix on CovType has no masking, so the same training is in both rows of table 3.
    name = find_cell("table3", "CovType, no augmentation", "MoCo v2 + i-Mix").training.name(3)
    assert name == find_cell("table1", "CovType", "MoCo v2 + i-Mix").training.name(3)
    names = [job.name for job in list_jobs(select_requests(["all"], "paper"))]
    assert len(names) == len(set(names))
    n_separate = sum(len(list_jobs(select_requests([name], "paper"))) for name in NAMES)
    assert len(names) < n_separate


@pytest.mark.parametrize("name", [name for name, dataset in DATASETS.items() if dataset.recipe or name == "voc"])
def test_data_dir_is_used_only_if_it_contains_the_data_set(name, tmp_path):
    assert dataset_folder(name, tmp_path) is None
    (tmp_path / DATASETS[name].marker_files[0]).touch()
    assert dataset_folder(name, tmp_path) == str(tmp_path)
    (tmp_path / name).mkdir()
    assert dataset_folder(name, tmp_path) == str(tmp_path / name)
