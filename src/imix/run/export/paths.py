"""Removes paths from what is exported: they may contain the names of users, machines and projects."""

from dataclasses import replace
from pathlib import PurePath

from imix.run.config import RunConfig
from imix.run.result import Result


def base_name(path: str) -> str:
    """Return the last part of a path; other names are kept.

    >>> base_name("/home/ada/customers.csv"), base_name("digits")
    ('customers.csv', 'digits')
    """
    return PurePath(path).name or path


def config_without_paths(config: RunConfig) -> RunConfig:
    """Return the config of a run with base names instead of paths."""
    data, init = config.data, config.settings.init
    test = data.settings.test and base_name(data.settings.test)
    return replace(
        config,
        settings=replace(config.settings, init=init and base_name(init)),
        data=replace(data, name=base_name(data.name), settings=replace(data.settings, test=test, data_dir=None)),
    )


def result_without_paths(result: Result) -> Result:
    """Return a result with base names instead of paths."""
    test_file = result.split.test_file
    split = replace(result.split, test_file=test_file and base_name(test_file))
    return replace(result, data=base_name(result.data), split=split)
