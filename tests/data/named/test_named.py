"""The records of the named data sets."""

import subprocess
import sys
from dataclasses import fields

import pytest

from imix import DataSettings, InputError, Settings
from imix.data import load
from imix.data.named import DATASETS, list_datasets


def test_records_do_not_import_torch():
    code = "import sys; import imix.data.named; assert not {'torch', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_data_set_is_listed_on_one_line():
    lines = list_datasets().splitlines()
    assert [line.split()[0] for line in lines] == list(DATASETS)


@pytest.mark.parametrize("record", DATASETS.values(), ids=DATASETS)
def test_records_are_consistent(record):
    assert DATASETS[record.name] is record
    assert record.n_train > 0 and record.n_classes > 1 and record.title and record.summary and record.availability
    assert set(record.options) <= {field.name for field in fields(DataSettings)}


@pytest.mark.parametrize("name", [name for name, record in DATASETS.items() if record.recipe])
def test_recipes_are_valid_settings(name):
    recipe = DATASETS[name].recipe
    Settings(**recipe.settings)
    Settings(**(recipe.settings | recipe.short_settings))
    DataSettings(standardize=recipe.standardize, **recipe.short_data_settings)


@pytest.mark.parametrize("name", [name for name, record in DATASETS.items() if record.name != "digits"])
def test_an_empty_data_dir_is_an_error(name, tmp_path):
    with pytest.raises(InputError, match="`data_dir"):
        load(name, DataSettings(data_dir=str(tmp_path)))
