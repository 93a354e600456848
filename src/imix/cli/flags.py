"""Flags that several commands share, and the groups in which the help shows them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar, get_type_hints

from cyclopts import Group, Parameter, Token

from imix.settings import DataSettings, FineTuning, Settings

OPTIONS = Group.create_ordered("Options")
RUN = Group.create_ordered("Run")
METHOD = Group.create_ordered("Method and mixing")
AUGMENTATION = Group.create_ordered("Augmentation")
ENCODER = Group.create_ordered("Encoder")
OPTIMIZATION = Group.create_ordered("Optimization")
DATA = Group.create_ordered("Data")
RUNTIME = Group.create_ordered("Runtime and logging")

FIRST_OPTIONS = {  # of each group; the fields of the settings are in the same order
    "method": METHOD,
    "augment": AUGMENTATION,
    "encoder": ENCODER,
    "epochs": OPTIMIZATION,
    "label": DATA,
    "seed": RUNTIME,
}
Class = TypeVar("Class", bound=type)


def in_groups(cls: Class) -> Class:
    """Show the fields of a dataclass as flags without a prefix, in the groups of the help."""
    group = OPTIONS
    for name, hint in get_type_hints(cls, include_extras=True).items():
        group = FIRST_OPTIONS.get(name, group)
        cls.__annotations__[name] = Annotated[hint, Parameter(group=group)]
    return Parameter(name="*")(cls)


def parse_columns(_: type, tokens: Sequence[Token]) -> dict[str, str]:
    """Parse NAME KIND NAME KIND ... into a dict."""
    words = [token.value for token in tokens]
    if len(words) % 2:
        raise ValueError(f"expected pairs: NAME KIND NAME KIND ...; {words[-1]!r} has no kind")
    return dict(zip(words[::2], words[1::2], strict=True))


Columns = Annotated[
    dict[str, str], Parameter(converter=parse_columns, n_tokens=-1, accepts_keys=False, metavar="NAME KIND ...")
]
ConfigFile = Annotated[Path | None, Parameter(group=RUN)]  # read by imix.cli.config_file


@in_groups
class TrainingFlags(Settings):
    """`Settings` as flags."""


@in_groups
class DataFlags(DataSettings):
    """`DataSettings` as flags."""

    columns: Columns


@Parameter(name="*")
class FineTuningFlags(FineTuning):
    """`FineTuning` as flags."""


@Parameter(name="*")
@dataclass(frozen=True)
class ReadFlags:
    """How data for an existing run is read."""

    columns: Columns | None = None
    """Columns of tables to ignore because the run was trained without them (NAME drop)."""
    path_column: str | None = None
    """Column of tables with the paths of the image or audio files; by default the run's."""
    data_dir: str | None = None
    """Folder with the files of named data sets."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""


@dataclass(frozen=True)
class LabelFlags(ReadFlags):
    """How labeled data for an existing run is read."""

    label: str | None = None
    """Column of tables that contains the classes, or numbers to predict; by default the run's label column."""
    missing_label: str | None = None
    """Label that means "no label", such as -1; by default the run's."""


@dataclass(frozen=True)
class ProtocolFlags(LabelFlags):
    """How features are evaluated."""

    random_crops: bool = False
    """Train the classifier of linear-paper on a new random view of each image in every epoch, as in the paper."""
    restandardize: bool = False
    """Standardize with the statistics of the evaluation data's training samples instead of the run's."""
    seed: int = 0
    """Seed of the classifiers, of the draws of labels and of the held-out samples."""
