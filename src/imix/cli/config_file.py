"""`--config FILE`: training and data settings from a JSON file, such as the config.json of a run."""

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from cyclopts import App, ArgumentCollection
from cyclopts.config import Dict

from imix.errors import InputError, did_you_mean, first_line
from imix.settings import DataSettings, Settings

OPTIONS = [field.name for cls in (Settings, DataSettings) for field in fields(cls)]


def apply_config_file(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Set the options in the file given with --config, unless they are also given as flags. Called by cyclopts."""
    config = arguments.get("--config", None)
    if config is None or not config.tokens:
        return
    path = config.tokens[0].value
    options = read_config_file(path)
    if isinstance(columns := options.pop("columns", {}), dict):
        columns = [word for column in columns.items() for word in column]  # as on the command line
    if columns:
        options["columns"] = columns
    Dict(options, source=path, use_commands_as_keys=False)(app, commands, arguments)


def read_config_file(path: str) -> dict[str, Any]:
    """Read settings by their name from a JSON file.

    The file is the config.json of a run or an export, has the keys `settings` and `data_settings`, or has the settings
    as keys.
    """
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except OSError as error:
        raise InputError(f"cannot read the config file {path!r}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"the config file {path!r} is not valid JSON: {first_line(error)}") from error
    content = _mapping(path, "the file", content)
    if "imix" in content:  # config.json of an export
        content = _mapping(path, "imix", content["imix"])
    if "settings" in content and "data" in content:  # config.json of a run
        data = _mapping(path, "data", content["data"])
        content = {"settings": content["settings"], "data_settings": data.get("settings", {})}
    if "settings" in content or "data_settings" in content:
        _known(path, content, ["settings", "data_settings"])
        parts = [_mapping(path, name, value) for name, value in content.items()]
        content = {name: value for part in parts for name, value in part.items()}
    return _known(path, content, OPTIONS)


def _mapping(path: str, name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"config file {path!r}: {name} must be a JSON object; got {value!r}")
    return value


def _known(path: str, values: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    """Return the values by the name of their setting; raise InputError if there is no such setting."""
    known = {key.replace("-", "_"): value for key, value in values.items()}
    for name in known:
        if name not in names:
            raise InputError(f"unknown key {name!r} in the config file {path!r}{did_you_mean(name, names)}")
    return known
