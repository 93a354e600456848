"""Flags that several commands share, and the groups in which the help shows them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, TypeVar, get_type_hints

from cyclopts import Group, Parameter, Token

from imix.settings import DataSettings, Settings

OPTIONS = Group.create_ordered("Options")
RUN = Group.create_ordered("Run")
METHOD = Group.create_ordered("Method and mixing")
AUGMENTATION = Group.create_ordered("Augmentation")
ENCODER = Group.create_ordered("Encoder")
OPTIMIZATION = Group.create_ordered("Optimization")
DATA = Group.create_ordered("Data")
RUNTIME = Group.create_ordered("Runtime and logging")

TRAINING_GROUPS: Mapping[Group, Sequence[str]] = {
    METHOD: (
        *("method", "mix", "alpha", "per_sample", "fold", "input_mix", "mix_waveforms"),
        *("temperature", "queue", "momentum", "symmetric"),
    ),
    AUGMENTATION: ("augment", "masking", "resampling", "augment_columns"),
    ENCODER: ("encoder", "head", "predictor", "dim"),
    OPTIMIZATION: ("epochs", "batch_size", "optimizer", "lr", "weight_decay", "schedule", "milestones", "warmup"),
    RUNTIME: (
        *("seed", "device", "precision", "compile", "cuda_graph", "sync_bn"),
        *("checkpoint_minutes", "knn_every", "tensorboard", "wandb"),
    ),
}
DATA_GROUPS: Mapping[Group, Sequence[str]] = {DATA: [field.name for field in fields(DataSettings)]}

Class = TypeVar("Class", bound=type)


def in_groups(groups: Mapping[Group, Sequence[str]]) -> Callable[[Class], Class]:
    """Show the fields of a dataclass as flags without a prefix, in these groups of the help."""

    def annotate(cls: Class) -> Class:
        hints = get_type_hints(cls, include_extras=True)
        cls.__annotations__ = {
            name: Annotated[hints[name], Parameter(group=group)] for group, names in groups.items() for name in names
        }
        return Parameter(name="*")(cls)

    return annotate


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


@in_groups(TRAINING_GROUPS)
class TrainingFlags(Settings):
    """`Settings` as flags."""

    def to_settings(self) -> Settings:
        """Return the settings as the class that the library uses."""
        return Settings(**vars(self))


@in_groups(DATA_GROUPS)
class DataFlags(DataSettings):
    """`DataSettings` as flags."""

    columns: Columns

    def to_settings(self) -> DataSettings:
        """Return the settings as the class that the library uses."""
        return DataSettings(**vars(self))


@Parameter(name="*")
@dataclass(frozen=True)
class ReadFlags:
    """How data for an existing run is read."""

    columns: Columns | None = None
    """Columns of tables to ignore because the run was trained without them (NAME drop)."""
    data_dir: str | None = None
    """Folder with the files of named data sets."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""


@dataclass(frozen=True)
class LabelFlags(ReadFlags):
    """How labeled data for an existing run is read."""

    label: str | None = None
    """Column of tables that contains the classes; by default the run's label column."""


@dataclass(frozen=True)
class ProtocolFlags(LabelFlags):
    """How features are evaluated."""

    random_crops: bool = False
    """Train the linear classifier on a new random view of each image in every epoch, as in the paper."""
    restandardize: bool = False
    """Standardize with the statistics of the evaluation data's training samples instead of the run's."""
    seed: int = 0
    """Seed for the classifier and for the choice of held-out samples."""
