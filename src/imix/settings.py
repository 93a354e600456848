"""Training and data settings, the single source for command-line flags, Python arguments and config.json.

Imports no torch, so that `imix --help` is fast.
"""

import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from imix.errors import InputError

METHODS = {  # name -> display name in reports
    "npair": "N-pair",
    "simclr": "SimCLR",
    "moco": "MoCo v2",
    "byol": "BYOL",
    "supclr": "supervised SimCLR",
    "supnpair": "supervised N-pair",
    "supervised": "classifier",
}
SUPERVISED = ("supclr", "supnpair", "supervised")
METHOD_SETTINGS = {  # setting -> the methods that use it
    "queue": ("moco",),
    "momentum": ("moco", "byol"),
    "symmetric": ("moco", "byol"),
    "predictor": ("byol",),
    "temperature": ("npair", "simclr", "moco", "supclr", "supnpair"),
    "head": ("npair", "simclr", "moco", "byol", "supclr", "supnpair"),
    "dim": ("npair", "simclr", "moco", "byol", "supclr", "supnpair"),
}
MIX_SETTINGS = ("alpha", "per_sample", "fold")
AUGMENT_SETTINGS = ("augment", "masking", "resampling", "augment_columns")
SMALL_IMAGE_SIZE = 64  # up to this many pixels, images get the small ResNet stem and the CIFAR augmentations
COLUMN_KINDS = ("numeric", "boolean", "categorical", "datetime", "drop")
TYPE_NAMES = {bool: "True or False", int: "an integer", float: "a number", str: "a name", tuple: "a list"}
# Settings that do not change what a run learns, so a resumed run may change them.
RESUME_SAFE_SETTINGS = ("device", "cuda_graph", "knn_every", "checkpoint_minutes", "tensorboard", "wandb")


@dataclass(frozen=True, eq=False)
class Settings:
    """Training options.

    The defaults follow the paper's experiments on small images with i-Mix, except for the number of epochs and the
    encoder.

    Examples
    --------
    >>> settings = imix.Settings(method="moco", epochs=100)
    >>> settings.method, settings.temperature
    ('moco', 0.2)
    """

    method: Literal["npair", "simclr", "moco", "byol", "supclr", "supnpair", "supervised"] = "npair"
    """Pretraining method. supclr, supnpair and supervised need labels."""
    mix: Literal["mixup", "cutmix", "none"] = "mixup"
    """i-Mix operator: mixup for any data, cutmix for images and sequences, none to disable i-Mix."""
    alpha: float = 1.0
    """Parameter of the Beta distribution of the mixing weight: lam ~ Beta(alpha, alpha)."""
    per_sample: bool = True
    """Draw lam (and the CutMix box) for each sample instead of once per batch."""
    fold: bool = True
    """Replace lam with max(lam, 1 - lam)."""
    input_mix: int = 0
    """Number of auxiliary samples that InputMix blends into each view. 0 disables InputMix."""
    mix_waveforms: bool = False
    """Mix audio as waveforms instead of mel spectrograms. The paper mixes spectrograms."""
    temperature: float = 0.2
    """Temperature of the softmax. Not used by byol."""
    queue: int = 4096
    """Number of keys in the queue of moco."""
    momentum: float = 0.999
    """EMA momentum of the momentum encoder of moco and byol."""
    symmetric: bool = False
    """Use both views of moco and byol as anchors and as keys, at twice the cost. The paper uses one direction."""

    augment: Literal["cifar", "imagenet", "audio", "none"] | None = None
    """Augmentations. For images: cifar (crop, flip, color jitter, grayscale) or imagenet (the same plus blur); color
    jitter and grayscale need three channels. For audio: audio (amplitude, speed, stretch, shift, noise). none disables
    them. Default: cifar for CIFAR and for image files up to 64 pixels, imagenet for larger ones, audio for audio."""
    masking: float | None = None
    """Probability of setting a cell of a view to 0; the columns of a category are masked together. Default: 0.2 for the
    rows of a table or array, as in the paper's tabular experiments, and 0 for other data."""
    resampling: float | None = None
    """Probability of replacing a cell of a view with the value of the same column in another row of the batch. Default:
    0.3 for the rows of a table or array, and 0 for other data."""
    augment_columns: tuple[str, ...] = ()
    """Columns to which masking and resampling apply, by name or kind (numeric, categorical, ...). Default: all."""

    encoder: str = "small"
    """Encoder: small; mlp or mlp:256-256-1024 (layer widths), with :bn for batch normalization and ReLU after the
    column embeddings; resnet18, 34, 50, 101 or 152, with :small or :standard for the stem; timm:NAME, or
    timm:NAME.TAG with pretrained weights (extra: timm)."""
    init: str | None = None
    """Weights to start from instead of random ones: a run folder or an encoder file in it (which also set the default
    encoder); a .safetensors, .pt or .pth file with a state dict; or the name of torchvision weights, such as
    ResNet18_Weights.IMAGENET1K_V1. A resumed run ignores it."""
    head: Literal["mlpbn", "mlpbn1", "mlp", "linear"] | None = None
    """Projection head. Default: mlpbn1 for moco and byol, mlpbn for the other methods."""
    predictor: Literal["mlpbn", "mlpbn1", "mlp", "linear"] | None = None
    """Prediction head of byol. Default: same as the projection head."""
    dim: int = 128
    """Dimension of the projected embedding on which the loss is computed."""

    epochs: int | Literal["auto"] = 200
    """Number of training epochs. auto: chosen by the number of samples, the device and `minutes`."""
    batch_size: int | Literal["auto"] = 256
    """Total batch size over all ranks. Reduced to the number of samples if the data set is smaller. auto: chosen by the
    number of samples and the device."""
    optimizer: Literal["sgd", "adamw"] = "sgd"
    """sgd (with momentum 0.9) or adamw."""
    lr: float | None = None
    """Learning rate for a batch size of 256, scaled by batch_size / 256. Default: 0.125 for sgd, 0.001 for adamw."""
    weight_decay: float = 1e-4
    """Weight decay, applied to all parameters including biases and batch normalization."""
    schedule: Literal["cosine", "step", "constant", "wsd"] = "cosine"
    """Learning rate schedule, updated every epoch: cosine (decay to 0), step (times 0.1 at milestones), constant, or
    wsd (warmup, stable, linear decay at the end). A wsd run can be made longer later: resume it with more epochs."""
    milestones: tuple[int, ...] = ()
    """Epochs at which the step schedule decays. Default: 60% and 80% of the epochs."""
    decay: int | None = None
    """Epochs of the decay at the end of the wsd schedule. Default: a fifth of the epochs."""
    warmup: int | None = None
    """Epochs of linear learning rate warmup. Default: 10 for more than 500 epochs (5 for wsd), otherwise 5, at most
    half of the epochs."""
    keep_best: Literal["knn", "effective_rank", "alignment"] | None = None
    """Measure the encoder after every epoch and keep the best one beside the last, as best_encoder.safetensors in the
    run folder. knn: accuracy on a held-out fifth of the training labels, never on the test set; effective_rank (higher
    is better) or alignment (lower is better) of a fixed batch need no labels. Without `patience`, `out` is needed."""
    patience: int = 0
    """Stop after this many epochs without a better encoder by `keep_best`, with schedule constant or wsd. 0 disables
    it."""

    seed: int = 0
    """Random seed. A run is determined by its seed."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """fp32, bf16 (autocast), or auto: bf16 on GPUs that support it, otherwise fp32."""
    compile: bool | None = None
    """Use torch.compile for the training step. Default: only on a GPU and if the run is long enough to benefit."""
    cuda_graph: bool | None = None
    """Capture the training step as a CUDA graph, on a single GPU. Default: if the method, encoder and augmentations are
    all built in."""
    sync_bn: bool = True
    """Synchronize batch normalization across ranks. Otherwise, statistics are computed per rank, with shuffled batch
    normalization for moco and byol."""
    checkpoint_minutes: float = 5.0
    """Minutes between checkpoints; the first is written after a tenth of this time. A checkpoint is also written at the
    end and on SIGTERM or SIGINT."""
    knn_every: int = 0
    """Number of epochs between measurements of the kNN accuracy during training. 0 disables them. Needs labels."""
    tensorboard: bool = False
    """Also log to TensorBoard (extra: tensorboard)."""
    wandb: bool = False
    """Also log to Weights & Biases (extra: wandb)."""

    def __post_init__(self) -> None:
        if isinstance(self.augment_columns, str):
            object.__setattr__(self, "augment_columns", (self.augment_columns,))
        if isinstance(self.init, Path):
            object.__setattr__(self, "init", str(self.init))
        if not isinstance(self.encoder, str):
            raise InputError(
                f"`encoder` must be a name (pass a module as pretrain(..., encoder=module)); got {self.encoder!r}"
            )
        _check_types(self)
        for name in ("alpha", "temperature", "epochs", "batch_size", "dim", "queue", "lr"):
            if getattr(self, name) not in (None, "auto") and not getattr(self, name) > 0:
                raise InputError(f"`{name}` must be above 0; got {getattr(self, name)}")
        if isinstance(self.epochs, int):
            self._check_schedule(self.epochs)
        if self.patience and (self.keep_best is None or self.schedule not in ("constant", "wsd")):
            raise InputError("`patience` needs `keep_best`, and `schedule='constant'` or `schedule='wsd'`")
        for name in ("masking", "resampling", "momentum"):
            if getattr(self, name) is not None and not 0 <= getattr(self, name) <= 1:
                raise InputError(f"`{name}` must be between 0 and 1; got {getattr(self, name)}")
        for name in ("input_mix", "weight_decay", "patience", "knn_every", "seed", "checkpoint_minutes"):
            if getattr(self, name) < 0:
                raise InputError(f"`{name}` must be at least 0; got {getattr(self, name)}")

    def __eq__(self, other: object) -> bool:
        """Whether all settings are equal, also those of a `ResolvedSettings`."""
        return vars(self) == vars(other) if isinstance(other, Settings) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))

    def _check_schedule(self, epochs: int) -> None:
        """Raise InputError if warmup and decay do not fit into the epochs."""
        decay_start = _decay_start(epochs, self.decay)
        if self.warmup is not None and not 0 <= self.warmup < epochs:
            raise InputError(f"`warmup` must be at least 0 and less than `epochs={epochs}`; got {self.warmup}")
        if self.decay is not None and not 0 < self.decay < epochs:
            raise InputError(f"`decay` must be above 0 and less than `epochs={epochs}`; got {self.decay}")
        if self.schedule == "wsd" and self.warmup and self.warmup >= decay_start:
            raise InputError(f"`warmup` must be less than {decay_start}, where the decay starts; got {self.warmup}")

    @property
    def supervised(self) -> bool:
        """Whether the method needs labels."""
        return self.method in SUPERVISED

    def unused_settings(self, user_supplied: Collection[str] = ()) -> list[str]:
        """List the settings that differ from their default but have no effect.

        Parameters
        ----------
        user_supplied : collection of str
            The components that were passed as objects and replace their setting: method, mix, augment, encoder.

        Examples
        --------
        >>> imix.Settings(method="byol", queue=64, temperature=0.5).unused_settings()
        ['queue', 'temperature']
        """
        unused = [
            name for name, methods in METHOD_SETTINGS.items() if "method" in user_supplied or self.method not in methods
        ]
        unused += MIX_SETTINGS if "mix" in user_supplied or self.mix == "none" else ()
        unused += AUGMENT_SETTINGS if "augment" in user_supplied else ()
        unused += () if self.schedule == "step" else ("milestones",)
        unused += () if self.schedule == "wsd" else ("decay",)
        defaults = Settings()
        names = dict.fromkeys((*user_supplied, *unused))  # without duplicates
        return [name for name in names if getattr(self, name) != getattr(defaults, name)]


@dataclass(frozen=True, eq=False)
class ResolvedSettings(Settings):
    """The settings of a run: `Settings` with numbers in place of "auto".

    Examples
    --------
    >>> run = imix.pretrain(torch.randn(64, 5), epochs="auto", minutes=0.001, device="cpu", progress=False)
    >>> run.settings.epochs >= 1
    True
    """

    epochs: int = 200
    """Number of training epochs."""
    batch_size: int = 256
    """Total batch size over all ranks."""

    @property
    def decay_start(self) -> int:
        """Number of epochs before the decay of the wsd schedule."""
        return _decay_start(self.epochs, self.decay)


def _decay_start(epochs: int, decay: int | None) -> int:
    return epochs - (decay or max(1, epochs // 5))


@dataclass(frozen=True)
class DataSettings:
    """Data options. A run stores them and applies them to all data it reads later.

    Examples
    --------
    >>> imix.DataSettings(label="churned", columns={"zip": "categorical"}).columns
    {'zip': 'categorical'}
    """

    label: str | None = None
    """Column of a table that contains the classes, or numbers to predict. Self-supervised methods do not use it."""
    columns: dict[str, str] = field(default_factory=dict)
    """Kinds of columns of a table, if the inferred kinds are wrong: NAME KIND NAME KIND ..., where KIND is numeric,
    boolean, categorical, datetime or drop."""
    missing_label: str | None = None
    """Label that means "no label", such as -1. Missing values always mean that."""
    header: Literal["auto", "yes", "no"] = "auto"
    """Whether the first line of a CSV file contains the column names. auto: yes, unless all values are numbers other
    than 0, 1, 2, ..."""
    test: str | None = None
    """File or folder with the test samples."""
    path_column: str | None = None
    """Column of a table with the image or audio files that are the samples: their paths, relative to the folder of the
    table, or their bytes."""
    fraction: float = 1.0
    """Fraction of the training samples to use, stratified by class if there are labels."""
    image_size: int | None = None
    """Size in pixels to which images from a folder are resized. Default: their size if all are squares of one size up
    to 224; otherwise the largest of 32, 64, 128 and 224 that at least half of the images reach."""
    channels: int | None = None
    """Number of channels of images from files: 1 (gray), 3 (RGB) or 4 (RGB and opacity). Default: 1 if all images are
    gray with more than 8 bits (their range is then kept), otherwise 3."""
    seconds: float | None = None
    """Length of audio clips in seconds. Longer clips are cropped to their middle, shorter ones are padded with silence.
    Default: the 90th percentile of the clip lengths, at most 10."""
    sample_rate: int = 16_000
    """Sample rate in Hz to which audio is resampled."""
    n_mels: int = 32
    """Number of mel bands of the spectrogram of audio."""
    standardize: Literal["train", "all", "none"] = "train"
    """Standardize each channel (each numeric column of a table) to mean 0 and standard deviation 1, computed on the
    training samples (train) or on training and test samples (all, as in the paper's tabular experiments); none
    disables it. Audio is never standardized."""
    data_dir: str | None = None
    """Folder that contains the files of a named data set."""

    def __post_init__(self) -> None:
        names = ("label", "missing_label", "path_column", "test", "data_dir")
        for name in names:  # an integer or a Path is also a name
            if isinstance(value := getattr(self, name), Real | Path):
                object.__setattr__(self, name, str(value))
        _check_types(self)
        if not isinstance(self.columns or {}, Mapping):
            raise InputError(f"`columns` must be a dict from column name to kind; got {self.columns!r}")
        object.__setattr__(self, "columns", {str(name): kind for name, kind in (self.columns or {}).items()})
        if not 0 < self.fraction <= 1:
            raise InputError(f"`fraction` must be above 0 and at most 1; got {self.fraction}")
        for name in ("image_size", "seconds", "sample_rate", "n_mels"):
            if getattr(self, name) is not None and not getattr(self, name) > 0:
                raise InputError(f"`{name}` must be above 0; got {getattr(self, name)}")
        if self.channels not in (None, 1, 3, 4):
            raise InputError(f"`channels` must be 1, 3 or 4; got {self.channels}")
        for name, kind in self.columns.items():
            if kind not in COLUMN_KINDS:
                raise InputError(f"unknown kind {kind!r} for column {name!r}; choose from {', '.join(COLUMN_KINDS)}")


@dataclass(frozen=True)
class FineTuning:
    """Fine-tuning options.

    Examples
    --------
    >>> imix.settings.FineTuning(epochs=100).encoder_lr
    0.0001
    """

    include_inputs: bool | None = None
    """Pass the inputs to the last layer, along with the features. Default: for rows of tables and arrays."""
    epochs: int = 60
    """Maximum number of epochs."""
    batch_size: int = 64
    """Batch size."""
    lr: float = 1e-3
    """Learning rate of the last layer, which starts as a linear model fitted to the frozen features."""
    encoder_lr: float = 1e-4
    """Learning rate of the encoder."""
    weight_decay: float = 1e-2
    """Weight decay of AdamW."""
    mix: Literal["none", "mixup"] = "none"
    """mixup: mix inputs and labels."""
    alpha: float = 0.2
    """Parameter of the Beta distribution of mixup."""
    class_weights: bool = False
    """Weight samples so that all classes have the same total weight, however rare they are."""
    unlabeled_weight: float = 0.0
    """Weight of the run's pretraining loss on all samples, labeled or not. 0 leaves it out."""
    held_out: float = 0.2
    """Fraction of the labels that is held out to choose the number of epochs. 0 trains for all epochs."""
    patience: int = 10
    """Stop after this many epochs without a lower loss on the held-out labels."""
    seed: int = 0
    """Random seed."""

    def __post_init__(self) -> None:
        _check_types(self)
        for name in ("epochs", "batch_size", "lr", "encoder_lr", "alpha", "patience"):
            if not getattr(self, name) > 0:
                raise InputError(f"`{name}` must be above 0; got {getattr(self, name)}")
        for name in ("weight_decay", "unlabeled_weight", "seed"):
            if getattr(self, name) < 0:
                raise InputError(f"`{name}` must be at least 0; got {getattr(self, name)}")
        if not 0 <= self.held_out < 1:
            raise InputError(f"`held_out` must be at least 0 and less than 1; got {self.held_out}")


def _check_types(settings: Any) -> None:
    """Check each field against its type, and convert numbers to int or float and lists to tuples."""
    for name, hint in _type_hints(type(settings)).items():  # type: ignore[arg-type]
        object.__setattr__(settings, name, _checked(f"`{name}`", hint, getattr(settings, name)))


@functools.cache
def _type_hints(cls: Any) -> dict[str, Any]:
    return get_type_hints(cls)


def _checked(name: str, hint: Any, value: Any) -> Any:
    """Return a value of the type `hint`: X, X | None or X | Literal; accepts numbers of libraries such as NumPy."""
    kind, *others = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if value is None and NoneType in others:
        return None
    words = [word for other in others for word in get_args(other)]  # of the Literal
    if isinstance(value, str) and value in words:
        return value
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise InputError(f"unknown {name} {value!r}; choose from {', '.join(get_args(kind))}")
        return value
    if get_origin(kind) is tuple and isinstance(value, tuple | list):  # JSON has lists only
        return tuple(_checked(f"each value of {name}", get_args(kind)[0], item) for item in value)
    if kind is float and isinstance(value, Real) and value == value:  # not NaN
        return float(value)
    if kind is int and isinstance(value, Integral) and not isinstance(value, bool):
        if abs(int(value)) >= 2**63:
            raise InputError(f"{name} must be below 2^63; got {float(value):.3g}")
        return int(value)
    if get_origin(kind) is dict or (kind in (str, bool) and isinstance(value, kind)):
        return value
    allowed = " or ".join([TYPE_NAMES[get_origin(kind) or kind], *map(repr, words)])
    raise InputError(f"{name} must be {allowed}; got {value!r}")
