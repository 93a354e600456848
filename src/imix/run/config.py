"""config.json: the settings, data, architecture and versions of a run. Does not import torch."""

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from imix.errors import InputError, first_line
from imix.settings import DataSettings, Settings


def read_config(path: Path) -> dict[str, Any]:
    """Read config.json from a run folder. Settings that an older version did not write get their defaults."""
    if not path.is_dir():
        raise InputError(f"no run folder {str(path)!r}")
    try:
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
        for section in ("settings", "data", "architecture", "machine"):
            dict.items(config[section])  # raises TypeError unless it is a dict
        str.strip(config["data"]["name"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{str(path)!r} is not a run folder: it has no valid config.json") from error
    try:
        config["settings"] = _with_defaults(Settings(), config["settings"])
        config["data"] = {"table": None, **config["data"]}
        config["user_supplied"] = dict(config.get("user_supplied", {}))
        config["data"]["settings"] = _with_defaults(DataSettings(), config["data"].get("settings", {}))
        config["architecture"] = {"groups": [], "clip": None, **config["architecture"]}
    except (ValueError, TypeError) as error:
        raise InputError(f"config.json in {str(path)!r} is damaged: {first_line(error)}") from error
    return config


def known_fields(cls: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values whose names are fields of the dataclass `cls`; newer versions may have written others."""
    return {field.name: values[field.name] for field in fields(cls) if field.name in values}


def _with_defaults(defaults: "Settings | DataSettings", values: Mapping[str, Any]) -> dict[str, Any]:
    """Validate `values` and add the missing defaults, in the form that JSON gives them."""
    cls = type(defaults)
    cls(**known_fields(cls, values))
    return json.loads(json.dumps(asdict(defaults))) | dict(values)
