"""config.json: the settings, data, architecture and versions of a run, parsed and validated in one place."""

import json
import reprlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from imix.data.tables.table import Table
from imix.encoders.mel import Clip
from imix.errors import InputError, first_line
from imix.settings import DataSettings, FineTuning, ResolvedSettings
from imix.typed_json import build

FORMAT_VERSION = 1
EXPORT_KEY = "imix"  # of the run's config in the config.json of an export, whose other keys are for other libraries


@dataclass(frozen=True)
class Architecture:
    """Everything needed to build a run's model again, except its weights.

    Parameters
    ----------
    encoder : str
        Name of the encoder, or "custom" for a user-supplied module.
    shape : tuple of int or None
        Shape of a sample; None for samples with several fields.
    groups : tuple of int
        Widths of the feature groups of a table; empty for other data.
    standardize : bool
        Whether the model standardizes its inputs.
    clip : Clip or None
        Format of audio clips; None for other data.

    Examples
    --------
    >>> run = imix.pretrain(torch.randn(64, 5), epochs=1, device="cpu", progress=False)
    >>> run.config.architecture
    Architecture(encoder='small', shape=(5,), groups=(), standardize=True, clip=None)
    """

    encoder: str
    shape: tuple[int, ...] | None
    groups: tuple[int, ...]
    standardize: bool
    clip: Clip | None

    @property
    def is_custom(self) -> bool:
        """Whether the encoder is a user-supplied module."""
        return self.encoder == "custom"


@dataclass(frozen=True)
class DataConfig:
    """What a run knows about its training data.

    Parameters
    ----------
    name : str
        Name or path of the data.
    samples : int
        Number of training samples.
    shape : tuple of int or None
        Shape of a sample; None for samples with several fields.
    settings : DataSettings
        The data options.
    table : Table or None
        How table columns are encoded as numbers; None for other data.
    fingerprint : str or None
        Hash of the samples; None if they are streamed.

    Examples
    --------
    >>> run = imix.pretrain(torch.randn(64, 5), epochs=1, device="cpu", progress=False)
    >>> run.config.data.name, run.config.data.samples, run.config.data.shape
    ('in-memory data', 64, (5,))
    """

    name: str
    samples: int
    shape: tuple[int, ...] | None
    settings: DataSettings
    table: Table | None
    fingerprint: str | None


@dataclass(frozen=True)
class RunConfig:
    """The content of config.json.

    Parameters
    ----------
    settings : ResolvedSettings
        The training settings.
    data : DataConfig
        The training data.
    architecture : Architecture
        The model.
    ranks : int
        Number of ranks in training.
    user_supplied : dict of str to str
        Names of the user-supplied components, by role: method, mix, augment.
    versions : dict of str to str
        Versions of imix, torch and Python.
    fine_tuning : FineTuning or None
        How the run was fine-tuned; None for a pretrained run.
    classes : tuple of str
        Names of the classes that a fine-tuned run predicts.

    Examples
    --------
    >>> run = imix.pretrain(torch.randn(64, 5), method="moco", epochs=1, device="cpu", progress=False)
    >>> run.config.settings.method, run.config.ranks, run.config.user_supplied
    ('moco', 1, {})
    """

    settings: ResolvedSettings
    data: DataConfig
    architecture: Architecture
    ranks: int
    user_supplied: dict[str, str]
    versions: dict[str, str]
    fine_tuning: FineTuning | None = None
    classes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The config as plain values, as they are written to config.json."""

        def plain(value: Any) -> dict[str, Any]:
            return value.to_json() if isinstance(value, Table) else vars(value)

        return json.loads(json.dumps({"format": FORMAT_VERSION} | vars(self), default=plain))

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "RunConfig":
        """Parse the content of config.json; raises InputError if it is damaged."""
        config = build(cls, {name: item for name, item in value.items() if name != "format"})
        table, architecture = config.data.table, config.architecture
        if table is not None and (table.groups, (table.width,)) != (architecture.groups, architecture.shape):
            raise InputError("data.table does not match the shape and groups of architecture")
        return config


def read_config(path: Path) -> RunConfig:
    """Read config.json from a run folder or an export. Settings that it lacks get their defaults."""
    if not path.is_dir():
        raise InputError(f"no run folder {str(path)!r}")
    try:
        value = json.loads((path / "config.json").read_text(encoding="utf-8"))
        value = value.get(EXPORT_KEY, value)
        version = value["format"]
    except PermissionError as error:
        raise InputError(f"cannot read config.json in {str(path)!r}: {error.strerror}") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{str(path)!r} is not a run folder: it has no valid config.json") from error
    if version != FORMAT_VERSION:
        raise InputError(
            f"{str(path)!r} was written in format {reprlib.repr(version)}, and this version of imix reads format "
            f"{FORMAT_VERSION}"
        )
    try:
        return RunConfig.from_json(value)
    except InputError as error:
        raise InputError(f"config.json in {str(path)!r} is damaged: {first_line(error)}") from error
