"""Every choice of a pretraining run, in one place: the CLI's flags, the Python argument and config.json are this class.

No torch here, so that `imix --help` is quick.
"""

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Literal, get_args, get_origin, get_type_hints

from imix.errors import InputError


@dataclass(frozen=True)
class Settings:
    """How to pretrain. The defaults are the paper's for small data sets, with i-Mix."""

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
    masking: float = 0.0
    """Each cell of each view is set to 0 with this probability."""

    encoder: str = "small"
    """small; mlp or mlp:256-256-1024 (widths); resnet18, 34, 50, 101 or 152 (:small or :standard chooses the stem)."""
    head: Literal["mlpbn", "mlpbn1", "mlp", "linear"] | None = None
    """Projection head; by default mlpbn, for moco and byol mlpbn1."""
    dim: int = 128
    """Size of the embedding that the objective sees."""
    temperature: float = 0.2
    """tau of the softmax; byol has none."""
    queue: int = 4096
    """K, the keys moco remembers."""
    momentum: float = 0.999
    """Of the key network of moco and byol."""
    standardise: bool = True
    """Bring each channel (each column of a table) to mean 0 and deviation 1 over the training data."""

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

    seed: int = 0
    """All randomness of the run follows from it."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """auto is bf16 autocast on a GPU that has it, fp32 elsewhere."""
    compile: bool | None = None
    """torch.compile the step; by default on a GPU where the run is long enough to gain from it."""
    cuda_graph: bool | None = None
    """Record a step and replay it, on one GPU; by default where encoder and augmentation are imix's own."""
    sync_bn: bool = True
    """With many ranks: batch statistics over all of them (else per rank, with shuffle-BN for moco and byol)."""
    checkpoint_minutes: float = 5.0
    """How often the checkpoint is written; it also is at the end and on SIGTERM or SIGINT."""
    tensorboard: bool = False
    """Log to TensorBoard as well (extra: tensorboard)."""
    wandb: bool = False
    """Log to Weights & Biases as well (extra: wandb)."""

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(type(self)).items():
            value = getattr(self, name)
            if (allowed := _choices(kind)) and value not in allowed:
                raise InputError(f"unknown {name} {value!r}; choose from {', '.join(map(str, allowed))}")
            object.__setattr__(self, name, _number(name, kind, value))
        for name in ("alpha", "temperature", "epochs", "batch_size", "dim", "queue"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} must be above 0; got {getattr(self, name)}")
        if self.lr is not None and not self.lr > 0:
            raise InputError(f"lr must be above 0; got {self.lr}")
        if self.warmup is not None and not 0 <= self.warmup < self.epochs:
            raise InputError(f"warmup must be at least 0 and less than epochs={self.epochs}; got {self.warmup}")
        for name in ("masking", "momentum"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} must lie within 0 and 1; got {getattr(self, name)}")
        for name in ("input_mix", "weight_decay", "seed", "checkpoint_minutes"):
            if getattr(self, name) < 0:
                raise InputError(f"{name} must not be below 0; got {getattr(self, name)}")

    @property
    def supervised(self) -> bool:
        """Whether the method needs labels."""
        return self.method in ("supclr", "supnpair", "supervised")


def _choices(kind: Any) -> tuple[Any, ...]:
    """The values that a Literal, or a Literal or None, allows; none for other types."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    literals = [part for part in get_args(kind) if get_origin(part) is Literal]
    return (*get_args(literals[0]), None) if literals else ()


def _number(name: str, kind: Any, value: Any) -> Any:
    """The value as Python's own int or float, where its field is one; numbers of other libraries are welcome."""
    kinds = () if get_origin(kind) is tuple else get_args(kind) or (kind,)
    if value is None or bool in kinds or not {int, float} & set(kinds):
        return value
    if float in kinds and isinstance(value, Real):
        return float(value)
    if int in kinds and isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    raise InputError(f"{name} must be {'a whole number' if int in kinds else 'a number'}; got {value!r}")
