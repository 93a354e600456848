"""config.json: the settings, data, architecture and versions of a run, parsed and validated in one place."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from imix.data.tables.table import Table
from imix.encoders.mel import Clip
from imix.errors import InputError, first_line
from imix.settings import DataSettings, Settings

FORMAT_VERSION = 1


@dataclass(frozen=True)
class Architecture:
    """Everything needed to build a run's model again, except its weights."""

    encoder: str  # name, or "custom" for a user-supplied module
    shape: tuple[int, ...] | None  # of a sample; None for samples with several fields
    groups: tuple[int, ...] = ()  # sizes of the column groups of a table
    standardize: bool = False
    clip: Clip | None = None  # format of audio clips

    @property
    def is_custom(self) -> bool:
        """Whether the encoder is a user-supplied module."""
        return self.encoder == "custom"

    @classmethod
    def from_json(cls, value: Any) -> "Architecture":
        """Parse what `asdict` and JSON made of an architecture; raises ValueError or TypeError."""
        clip = value["clip"]
        shape = value["shape"]
        return cls(
            _typed(value, "encoder", str),
            None if shape is None else tuple(int(size) for size in shape),
            tuple(int(size) for size in value["groups"]),
            _typed(value, "standardize", bool),
            None if clip is None else Clip(**{name: int(number) for name, number in clip.items()}),
        )


@dataclass(frozen=True)
class DataConfig:
    """What a run knows about its training data."""

    name: str
    samples: int = 0
    shape: tuple[int, ...] | None = None
    settings: DataSettings = field(default_factory=DataSettings)
    table: Table | None = None  # how columns become numbers
    fingerprint: str | None = None  # hash of the samples; None if they are streamed

    @classmethod
    def from_json(cls, value: Any) -> "DataConfig":
        """Parse the JSON of `RunConfig.to_json`; raises ValueError or TypeError."""
        shape, table, fingerprint = value["shape"], value["table"], value["fingerprint"]
        return cls(
            _typed(value, "name", str),
            _typed(value, "samples", int),
            None if shape is None else tuple(int(size) for size in shape),
            _settings_from_json(DataSettings, value["settings"]),
            None if table is None else Table.from_json(table),
            None if fingerprint is None else str(fingerprint),
        )


@dataclass(frozen=True)
class RunConfig:
    """The content of config.json."""

    settings: Settings
    data: DataConfig
    architecture: Architecture
    ranks: int = 1
    user_supplied: dict[str, str] = field(default_factory=dict)  # names of the user's method, mix and augment
    versions: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The config as plain values, as they are written to config.json."""
        value = {"format": FORMAT_VERSION} | {each.name: getattr(self, each.name) for each in fields(self)}
        value["settings"], value["architecture"] = asdict(self.settings), asdict(self.architecture)
        value["data"] = {each.name: getattr(self.data, each.name) for each in fields(self.data)}
        value["data"]["settings"] = asdict(self.data.settings)
        value["data"]["table"] = None if self.data.table is None else self.data.table.to_json()
        return json.loads(json.dumps(value))

    @classmethod
    def from_json(cls, value: Any) -> "RunConfig":
        """Parse config.json; raises ValueError, TypeError or KeyError if it is damaged."""
        return cls(
            _settings_from_json(Settings, value["settings"]),
            DataConfig.from_json(value["data"]),
            Architecture.from_json(value["architecture"]),
            _typed(value, "ranks", int),
            {str(role): str(name) for role, name in _typed(value, "user_supplied", dict).items()},
            {str(name): str(version) for name, version in _typed(value, "versions", dict).items()},
        )


def read_config(path: Path) -> RunConfig:
    """Read config.json from a run folder. Settings that it lacks get their defaults."""
    if not path.is_dir():
        raise InputError(f"no run folder {str(path)!r}")
    try:
        value = json.loads((path / "config.json").read_text(encoding="utf-8"))
        version = value["format"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{str(path)!r} is not a run folder: it has no valid config.json") from error
    if version != FORMAT_VERSION:
        raise InputError(
            f"{str(path)!r} was written in format {version!r}, and this version of imix reads format {FORMAT_VERSION}"
        )
    try:
        return RunConfig.from_json(value)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise InputError(f"config.json in {str(path)!r} is damaged: {first_line(error)}") from error


def _settings_from_json(cls: Any, values: Mapping[str, Any]) -> Any:
    """Validated settings; unknown names are an error, missing ones get their defaults."""
    unknown = values.keys() - {each.name for each in fields(cls)}
    if unknown:
        raise ValueError(f"unknown setting {min(unknown)!r}")
    return cls(**values)


def _typed(value: Mapping[str, Any], name: str, kind: Any) -> Any:
    if not isinstance(value[name], kind):
        raise TypeError(f"{name} must be of type {kind.__name__}; got {value[name]!r}")
    return value[name]
