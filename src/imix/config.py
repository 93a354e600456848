"""config.json: what was run, on what, with which versions. No torch here."""

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from imix.errors import InputError, first_line
from imix.settings import Reading, Settings


def read_config(path: Path) -> dict[str, Any]:
    """The configuration of the run in a folder; what it does not say, since it is older, is as by default."""
    if not path.is_dir():
        raise InputError(f"no run folder {str(path)!r}")
    try:
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
        for part in ("settings", "data", "architecture", "machine"):
            dict.items(config[part])
        str.strip(config["data"]["name"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{str(path)!r} is not a run folder: it has no config.json of imix; name another") from error
    try:
        config["settings"] = _with_defaults(Settings(), config["settings"])
        config["data"] = {"table": None, **config["data"]}
        config["own"] = dict(config.get("own", {}))
        config["data"]["reading"] = _with_defaults(Reading(), config["data"].get("reading", {}))
        config["architecture"] = {"groups": [], "clip": None, **config["architecture"]}
    except (ValueError, TypeError) as error:
        raise InputError(f"the config.json of {str(path)!r} is damaged: {first_line(error)}") from error
    return config


def _with_defaults(defaults: "Settings | Reading", given: Mapping[str, Any]) -> dict[str, Any]:
    """What is given, checked, and the defaults for what is not, as JSON has them."""
    type(defaults)(**known(type(defaults), given))
    return json.loads(json.dumps(asdict(defaults))) | dict(given)


def known(kind: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """Those values that this version has a name for."""
    return {each.name: given[each.name] for each in fields(kind) if each.name in given}
