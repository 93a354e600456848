"""A run folder, and the encoder in it.

    config.json           what was run, on what, with which versions; how columns of a table become numbers
    metrics.jsonl         one record every few steps
    checkpoint.pt         everything needed to go on, atomically replaced
    encoder.safetensors   the result: standardisation and encoder, with their architecture in the header
    evaluations.jsonl     what `imix evaluate` found
    detection.pt          a detector that is being fine-tuned; gone when it is done
    tensorboard/          where that was asked for

Nothing is ever unpickled from it.
"""

import json
import shutil
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from imix import encoders
from imix.data import GIVEN, Table
from imix.data.mel import Clip, LogMel
from imix.data.standardise import Standardise
from imix.errors import InputError, first_line
from imix.files import read_lines, read_metrics, write_bytes
from imix.settings import Reading, Settings


@dataclass(repr=False)
class Run:
    """A finished run: its encoder, its configuration, its metrics, and its folder if it has one."""

    encoder: nn.Sequential
    config: dict[str, Any]
    metrics: list[dict[str, Any]] = field(default_factory=list)
    path: Path | None = None

    @property
    def settings(self) -> Settings:
        """How it was trained."""
        return Settings(**_known(Settings, self.config["settings"]))

    @property
    def reading(self) -> Reading:
        """How the run's data was read."""
        return Reading(**_known(Reading, self.config["data"].get("reading", {})))

    @property
    def evaluations(self) -> list[dict[str, Any]]:
        """What `imix.evaluate` found of it, in order: protocol, data, value, and the constants and details behind."""
        return [] if self.path is None else read_lines(self.path / "evaluations.jsonl")

    @property
    def own(self) -> dict[str, str]:
        """What was one's own, by name: method, mix, augment."""
        return self.config.get("own", {})

    @property
    def table(self) -> Table | None:
        """How the columns of the run's table became numbers, if it was one."""
        table = self.config["data"].get("table")
        return None if table is None else Table.from_json(table)

    def __repr__(self) -> str:
        settings, place = self.settings, "" if self.path is None else f" in {str(self.path)!r}"
        method, mix = self.own.get("method", settings.method), self.own.get("mix", settings.mix)
        what = f"{method}{'' if mix == 'none' else f' + {mix}'} on {self.config['data']['name']}"
        loss = f", loss {self.metrics[-1]['loss']:.4g}" if self.metrics else ""
        return f"<Run{place}: {what}, {settings.epochs} epochs{loss}>"

    @classmethod
    def load(cls, path: str | Path, encoder: nn.Module | None = None) -> "Run":
        """Read a run folder; `encoder` is the module to fill where a run was made with one of your own."""
        path = Path(path)
        config = read_config(path)
        return cls(load_encoder(path, encoder), config, read_metrics(path / "metrics.jsonl"), path)


def as_run(given: "Run | nn.Module | str | Path") -> Run:
    """A run, as it is or from its folder; or one around a network of one's own, or a method's, trained elsewhere."""
    from imix.methods import Method

    if isinstance(given, Run):
        return given
    if not isinstance(given, nn.Module):
        return Run.load(given)
    if isinstance(given, Method):
        given = given.encoder
    whole = nn.Sequential(OrderedDict(standardise=nn.Identity(), encoder=given))
    architecture: dict[str, Any] = {
        "encoder": "custom",
        "shape": None,
        "groups": [],
        "standardise": False,
        "clip": None,
    }
    return Run(whole, {"settings": asdict(Settings()), "data": {"name": GIVEN}, "architecture": architecture})


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
    type(defaults)(**_known(type(defaults), given))
    return json.loads(json.dumps(asdict(defaults))) | dict(given)


def _known(kind: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """Those values that this version has a name for."""
    return {each.name: given[each.name] for each in fields(kind) if each.name in given}


def clear(path: Path) -> None:
    """Remove the run from a folder; other files in it stay, and so does config.json, by which it is known as a run.

    The checkpoint goes first: a run without it begins anew, whatever else is still there.
    """
    files = (
        "checkpoint.pt",
        "metrics.jsonl",
        "encoder.safetensors",
        "evaluations.jsonl",
        "detection.pt",
        "report.html",
    )
    for name in files:
        (path / name).unlink(missing_ok=True)
    for unfinished in path.glob(".*.unfinished"):
        unfinished.unlink(missing_ok=True)
    shutil.rmtree(path / "tensorboard", ignore_errors=True)


def assemble(architecture: dict[str, Any], encoder: nn.Module | None = None) -> nn.Sequential:
    """What a run makes: standardisation, mel pictures of sounds, or nothing; and the encoder, by name or as given."""
    shape = architecture["shape"]
    clip = Clip(**architecture["clip"]) if architecture.get("clip") else None
    if encoder is None:
        if shape is None:
            raise InputError("samples with several fields need an encoder of your own; give encoder=...")
        encoder = encoders.build(architecture["encoder"], clip.shape if clip else shape, architecture["groups"])
    if clip is not None:
        front: nn.Module = LogMel(clip)
    else:
        front = Standardise(shape[0]) if architecture["standardise"] and shape else nn.Identity()
    return nn.Sequential(OrderedDict(standardise=front, encoder=encoder))


def save_encoder(path: Path, encoder: nn.Sequential, architecture: dict[str, Any]) -> None:
    """Write the encoder with its architecture, so that the file alone is enough to load it."""
    from safetensors.torch import save

    # Copies, since weights that are shared within an encoder are refused.
    state = {name: value.detach().cpu().clone().contiguous() for name, value in encoder.state_dict().items()}
    write_bytes(path, save(state, {"imix": json.dumps(architecture)}))


def load_encoder(path: str | Path, encoder: nn.Module | None = None) -> nn.Sequential:
    """The encoder of a run, (N, ...) raw inputs to (N, F) features, in evaluation mode.

    Raw inputs are images (N, C, H, W) of the run's size, as bytes or floats in 0..1; waveforms (N, 1, L) in -1..1 of
    its rate and length; arrays as they were given. Of a table they are what its columns become: see `embed`.

    `path` is a run folder or an encoder.safetensors. The result is `Sequential(standardise, encoder)`; its last part,
    `load_encoder(path)[-1]`, is the plain backbone. `encoder` is the module to fill where a run was made with one of
    your own.
    """
    architecture, state = read_encoder(path)
    if architecture["encoder"] == "custom" and encoder is None:
        raise InputError(
            f"{str(path)!r} holds weights of an encoder of your own, which only Python can fill: "
            f"imix.Run.load(folder, module) gives a run for evaluate, embed and report"
        )
    if encoder is None:
        _check_fit(path, architecture, state)
    whole = assemble(architecture, encoder)
    try:
        whole.load_state_dict(state)
    except RuntimeError as error:
        raise InputError(
            f"the weights in {str(path)!r} do not fit the encoder: {str(error).splitlines()[-1].strip()}"
        ) from error
    return whole.eval()


def read_encoder(path: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The architecture and the weights in a run folder or an encoder.safetensors."""
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    if path.is_dir():
        read_config(path)
        path = path / "encoder.safetensors"
    if not path.is_file():
        raise InputError(f"no encoder at {str(path)!r}: the run is not finished, or this is not a run")
    try:
        with open(path, "rb") as held, safe_open(_called(path, held.fileno()), "pt") as file:
            architecture = json.loads((file.metadata() or {})["imix"])
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, KeyError, ValueError, OSError) as error:
        raise InputError(f"{str(path)!r} is not an encoder written by imix: {error}") from error
    if not isinstance(architecture, dict) or not {"encoder", "shape", "groups", "standardise"} <= architecture.keys():
        raise InputError(f"{str(path)!r} is not an encoder written by imix: its architecture is not known")
    return architecture, state


def _called(path: Path, number: int) -> str:
    """A path that safetensors takes: by its name, or where that is no UTF-8, by the number under which it is open."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return f"/dev/fd/{number}"
    return str(path)


def _check_fit(path: str | Path, architecture: dict[str, Any], state: Mapping[str, Tensor]) -> None:
    """Refuse a file whose weights are not those of the encoder it names, before that takes any memory."""
    if str(architecture["encoder"]).startswith("timm:"):  # its models are as large as they are
        return
    try:
        with torch.device("meta"):
            expected = assemble(architecture).state_dict()
    except InputError:
        raise
    except Exception as error:  # what a file says may be anything
        raise InputError(f"{str(path)!r} names no encoder that can be made: {first_line(error)}") from error
    for name in (*expected, *state):
        wanted, found = (tuple(at[name].shape) if name in at else None for at in (expected, state))
        if wanted != found:
            raise InputError(
                f"the weights in {str(path)!r} do not fit the encoder: {name} has shape {found}, not {wanted}"
            )
