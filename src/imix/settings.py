"""Every choice of a pretraining run: the CLI's flags, the Python arguments and config.json are these two classes.

No torch here, so that `imix --help` is quick.
"""

import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from imix.errors import InputError

METHODS = {  # and what pages call them
    "npair": "N-pair",
    "simclr": "SimCLR",
    "moco": "MoCo v2",
    "byol": "BYOL",
    "supclr": "supervised SimCLR",
    "supnpair": "supervised N-pair",
    "supervised": "classifier",
}
SUPERVISED = ("supclr", "supnpair", "supervised")
OF_METHODS = {  # settings that not every method has a use for
    "queue": ("moco",),
    "momentum": ("moco", "byol"),
    "symmetric": ("moco", "byol"),
    "predictor": ("byol",),
    "temperature": ("npair", "simclr", "moco", "supclr", "supnpair"),
    "head": ("npair", "simclr", "moco", "byol", "supclr", "supnpair"),
    "dim": ("npair", "simclr", "moco", "byol", "supclr", "supnpair"),
}
OF_MIXING = ("alpha", "per_sample", "fold")
OF_VIEWS = ("augment", "masking", "resampling", "augment_columns")
SMALL_SIDE = 64  # pixels up to which images get the stem and the views of small ones
KINDS = ("numeric", "boolean", "categorical", "datetime", "drop")  # of a table's columns
# Settings that change nothing a run learns: where it runs, what it measures along the way, what it tells.
SURROUNDINGS = ("device", "cuda_graph", "knn_every", "checkpoint_minutes", "tensorboard", "wandb")


@dataclass(frozen=True)
class Settings:
    """How to pretrain. The defaults are the paper's for small images, with i-Mix, but for length and encoder."""

    method: Literal["npair", "simclr", "moco", "byol", "supclr", "supnpair", "supervised"] = "npair"
    """Which method; the sup* ones need labels."""
    mix: Literal["mixup", "cutmix", "none"] = "mixup"
    """i-Mix's operator: mixup anywhere, cutmix on images and sequences, none for the plain method."""
    alpha: float = 1.0
    """lam ~ Beta(alpha, alpha)."""
    per_sample: bool = True
    """One lam (and box) per sample; otherwise one per batch."""
    fold: bool = True
    """lam <- max(lam, 1 - lam)."""
    input_mix: int = 0
    """How many auxiliary samples InputMix blends into each view; 0 for no InputMix."""
    augment: Literal["cifar", "imagenet", "speech", "none"] | None = None
    """Views of colour images: the paper's for small ones (crop, flip, colour jitter, greyscale), or those and blur;
    views of sounds: speech (amplitude, speed, stretch, shift, noise); or none. By default cifar for CIFAR and folders
    of images up to 64 pixels, imagenet for folders of larger ones, speech for sounds."""
    mix_waveforms: bool = False
    """Mix sounds as waveforms, before they become mel pictures; otherwise the pictures are mixed, as in the paper."""
    masking: float | None = None
    """Each cell of each view is set to 0 with this probability, a category as a whole; by default 0.2 for rows of a
    table or array, as in the paper's tabular experiments, and 0 for anything else."""
    resampling: float = 0.0
    """Each cell of each view gets, with this probability, the value of that column in another row of the batch."""
    augment_columns: tuple[str, ...] = ()
    """Columns that masking and resampling touch, by name or kind (numeric, categorical, ...); by default all."""

    encoder: str = "small"
    """small; mlp or mlp:256-256-1024 (widths), with :bn for an activated embedding of columns; resnet18, 34, 50, 101
    or 152 (:small or :standard chooses the stem); timm:NAME (extra: timm)."""
    head: Literal["mlpbn", "mlpbn1", "mlp", "linear"] | None = None
    """Projection head; by default mlpbn, for moco and byol mlpbn1."""
    predictor: Literal["mlpbn", "mlpbn1", "mlp", "linear"] | None = None
    """Prediction head of byol; by default as the projection head."""
    dim: int = 128
    """Size of the embedding that the objective sees."""
    temperature: float = 0.2
    """tau of the softmax; byol has none."""
    queue: int = 4096
    """K, the keys moco remembers."""
    momentum: float = 0.999
    """Of the key network of moco and byol."""
    symmetric: bool = False
    """Both views of moco and byol anchor and give keys, at twice the cost; otherwise one direction, as in the paper."""

    epochs: int = 200
    """Passes over the data."""
    batch_size: int = 256
    """Of all ranks together; the whole data where that is less."""
    optimizer: Literal["sgd", "adamw"] = "sgd"
    """SGD with momentum 0.9, or AdamW."""
    lr: float | None = None
    """Learning rate for a batch of 256, scaled by batch/256; by default 0.125 for sgd, 0.001 for adamw."""
    weight_decay: float = 1e-4
    """On every parameter, biases and batch normalisation too."""
    schedule: Literal["cosine", "step", "constant"] = "cosine"
    """Cosine to 0 by epoch; or times 0.1 at each milestone."""
    milestones: tuple[int, ...] = ()
    """Epochs at which the step schedule decays; by default at 60% and 80% of the epochs."""
    warmup: int | None = None
    """Epochs of linear warm-up, step by step; by default 10 if there are more than 500 epochs, else 5."""

    knn_every: int = 0
    """Epochs after which the nearest neighbours' accuracy is measured along the way; 0 for never. Needs labels."""
    seed: int = 0
    """All randomness of the run follows from it."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """auto is bf16 autocast on a GPU that has it, fp32 elsewhere."""
    compile: bool | None = None
    """torch.compile the step; by default on a GPU where the run is long enough to gain from it."""
    cuda_graph: bool | None = None
    """Record a step and replay it, on one GPU; by default where all it is made of is imix's own."""
    sync_bn: bool = True
    """With many ranks: batch statistics over all of them (else per rank, with shuffle-BN for moco and byol)."""
    checkpoint_minutes: float = 5.0
    """How often the checkpoint is written; it also is at the end and on SIGTERM or SIGINT."""
    tensorboard: bool = False
    """Log to TensorBoard as well (extra: tensorboard)."""
    wandb: bool = False
    """Log to Weights & Biases as well (extra: wandb)."""

    def __post_init__(self) -> None:
        if isinstance(self.augment_columns, str):
            object.__setattr__(self, "augment_columns", (self.augment_columns,))
        _check(self)
        for name in ("encoder", "device"):
            if not isinstance(getattr(self, name), str):
                module = ", and a module is given to pretrain itself" if name == "encoder" else ""
                raise InputError(f"{name} must be a name{module}; got {getattr(self, name)!r}")
        for name in ("alpha", "temperature", "epochs", "batch_size", "dim", "queue"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} must be above 0; got {getattr(self, name)}")
        if self.lr is not None and not self.lr > 0:
            raise InputError(f"lr must be above 0; got {self.lr}")
        if self.warmup is not None and not 0 <= self.warmup < self.epochs:
            raise InputError(f"warmup must be at least 0 and less than epochs={self.epochs}; got {self.warmup}")
        for name in ("masking", "resampling", "momentum"):
            if getattr(self, name) is not None and not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} must lie within 0 and 1; got {getattr(self, name)}")
        for name in ("input_mix", "weight_decay", "knn_every", "seed", "checkpoint_minutes"):
            if getattr(self, name) < 0:
                raise InputError(f"{name} must not be below 0; got {getattr(self, name)}")

    @property
    def supervised(self) -> bool:
        """Whether the method needs labels."""
        return self.method in SUPERVISED

    def passed_over(self, own: Collection[str] = ()) -> list[str]:
        """Settings that were made and that nothing looks at, given what is one's `own`: method, mix, augment, encoder.

        >>> Settings(method="byol", queue=64, temperature=0.5).passed_over()
        ['queue', 'temperature']
        """
        idle = [name for name, methods in OF_METHODS.items() if "method" in own or self.method not in methods]
        idle += OF_MIXING if "mix" in own or self.mix == "none" else ()
        idle += OF_VIEWS if "augment" in own else ()
        idle += () if self.schedule == "step" else ("milestones",)
        usual = Settings()
        return [name for name in dict.fromkeys((*own, *idle)) if getattr(self, name) != getattr(usual, name)]


@dataclass(frozen=True)
class Reading:
    """How data is read: a run remembers it, and reads what comes later the same way."""

    label: str | None = None
    """Column of a table that holds the classes; no self-supervised method sees it."""
    columns: dict[str, str] = field(default_factory=dict)
    """Kinds of a table's columns (numeric, boolean, categorical, datetime, drop), where what is found out is not what
    you want: NAME KIND NAME KIND ..."""
    header: Literal["auto", "yes", "no"] = "auto"
    """Whether the first line of a CSV file names the columns; auto takes a line of numbers other than 0, 1, 2, ... for
    a row."""
    test: str | None = None
    """A second file or folder, with the test samples."""
    fraction: float = 1.0
    """Share of the training samples to take, of each class alike where there are labels."""
    image_size: int | None = None
    """Side to which images of a folder are brought; by default their own if all are squares of one size up to 224, or
    the largest of 32, 64, 128 and 224 that half of them have."""
    seconds: float | None = None
    """Length to which sounds are brought, by taking the middle or adding silence; by default what nine of ten do not
    exceed, at most 10."""
    rate: int = 16_000
    """Samples per second to which sounds are brought."""
    mels: int = 32
    """Mel bands in which sounds are seen."""
    standardise: Literal["train", "all", "none"] = "train"
    """Bring each channel (each numeric column of a table) to mean 0 and deviation 1 over the training samples; over
    training and test samples, as the paper's tabular experiments did; or not at all. Sounds never are."""
    data_dir: str | None = None
    """Folder with the files of a named data set."""

    def __post_init__(self) -> None:
        _check(self)
        label = None if self.label is None else str(self.label)  # columns of a frame may be called 0, 1, ...
        object.__setattr__(self, "label", label)
        if not isinstance(self.columns or {}, Mapping):
            raise InputError(f"columns must be a dict of names and kinds; got {self.columns!r}")
        object.__setattr__(self, "columns", {str(name): kind for name, kind in (self.columns or {}).items()})
        if not 0 < self.fraction <= 1:
            raise InputError(f"fraction must be above 0 and at most 1; got {self.fraction}")
        for name in ("image_size", "seconds", "rate", "mels"):
            if getattr(self, name) is not None and not getattr(self, name) > 0:
                raise InputError(f"{name} must be above 0; got {getattr(self, name)}")
        for name, kind in self.columns.items():
            if kind not in KINDS:
                raise InputError(f"unknown kind {kind!r} of column {name!r}; choose from {', '.join(KINDS)}")


def _check(given: Any) -> None:
    """Refuse what no field allows, and make numbers Python's own."""
    for name, kind in _hints(type(given)).items():  # type: ignore[arg-type]
        value = getattr(given, name)
        if (allowed := _choices(kind)) and value not in allowed:
            raise InputError(f"unknown {name} {value!r}; choose from {', '.join(map(str, allowed))}")
        if get_origin(kind) is tuple:
            if not isinstance(value, tuple | list):  # the latter is how JSON has it
                raise InputError(f"{name} must be a list; got {value!r}")
            value = tuple(_one_of(name, get_args(kind)[0], one) for one in value)
        if kind in (bool, bool | None) and not isinstance(value, bool | None if kind == bool | None else bool):
            raise InputError(f"{name} must be True or False; got {value!r}")
        object.__setattr__(given, name, _number(name, kind, value))


def _one_of(name: str, kind: Any, value: Any) -> Any:
    """One of several values, if it is of that kind."""
    if kind is str and not isinstance(value, str):
        raise InputError(f"each of {name} must be a name; got {value!r}")
    return _number(f"each of {name}", kind, value)


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


@functools.cache
def _choices(kind: Any) -> tuple[Any, ...]:
    """The values that a Literal, or a Literal or None, allows; none for other types."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    literals = [
        part for part in get_args(kind) if get_origin(kind) in (Union, UnionType) and get_origin(part) is Literal
    ]
    return (*get_args(literals[0]), None) if literals else ()


def _number(name: str, kind: Any, value: Any) -> Any:
    """The value as Python's own int or float, where its field is one; numbers of other libraries are welcome."""
    kinds = () if get_origin(kind) is tuple else get_args(kind) or (kind,)
    optional = value is None and type(None) in kinds
    if optional or bool in kinds or not {int, float} & set(kinds):
        return value
    if float in kinds and isinstance(value, Real) and value == value:  # not NaN
        return float(value)
    if int in kinds and isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    raise InputError(f"{name} must be {'a whole number' if int in kinds else 'a number'}; got {value!r}")
