"""Options as keyword arguments: `pretrain(data, method="moco", label="y")` collects them into settings objects."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypedDict

from torch import nn

from imix.augment import Augment
from imix.errors import InputError, did_you_mean
from imix.methods import Method
from imix.mix import MixOperator
from imix.settings import DataSettings, Settings

MethodFactory = Callable[..., Method]  # called as method(encoder, mix, width=F)


class Options(TypedDict, total=False):
    """Keyword arguments of `pretrain` and `bench`: the fields of `Settings` and `DataSettings`.

    `method`, `mix`, `augment` and `encoder` take a name or an object.
    """

    method: Literal["npair", "simclr", "moco", "byol", "supclr", "supnpair", "supervised"] | MethodFactory
    mix: Literal["mixup", "cutmix", "none"] | MixOperator
    augment: Literal["cifar", "imagenet", "audio", "none"] | Augment | None
    encoder: str | nn.Module
    init: str | None
    alpha: float
    per_sample: bool
    fold: bool
    input_mix: int
    mix_waveforms: bool
    masking: float | None
    resampling: float | None
    augment_columns: tuple[str, ...]
    head: Literal["mlpbn", "mlpbn1", "mlp", "linear"] | None
    predictor: Literal["mlpbn", "mlpbn1", "mlp", "linear"] | None
    dim: int
    temperature: float
    queue: int
    momentum: float
    symmetric: bool
    epochs: int | Literal["auto"]
    batch_size: int | Literal["auto"]
    optimizer: Literal["sgd", "adamw"]
    lr: float | None
    weight_decay: float
    schedule: Literal["cosine", "step", "constant", "wsd"]
    milestones: tuple[int, ...]
    decay: int | None
    warmup: int | None
    keep_best: Literal["knn", "effective_rank", "alignment"] | None
    patience: int
    knn_every: int
    seed: int
    device: str
    precision: Literal["auto", "fp32", "bf16"]
    compile: bool | None
    cuda_graph: bool | None
    sync_bn: bool
    checkpoint_minutes: float
    tensorboard: bool
    wandb: bool
    label: str | None
    columns: dict[str, str]
    missing_label: str | None
    header: Literal["auto", "yes", "no"]
    test: str | None
    path_column: str | None
    fraction: float
    image_size: int | None
    channels: int | None
    seconds: float | None
    sample_rate: int
    n_mels: int
    standardize: Literal["train", "all", "none"]
    data_dir: str | None


COMPONENTS = ("method", "mix", "augment", "encoder")


@dataclass(frozen=True)
class Components:
    """User-supplied objects that replace what the settings name."""

    method: MethodFactory | None = None
    mix: MixOperator | None = None
    augment: Augment | None = None
    encoder: nn.Module | None = None


def collect_options(
    settings: Settings | None, data_settings: DataSettings | None, options: Mapping[str, Any]
) -> tuple[Settings, DataSettings, Components]:
    """Sort keyword options into settings, data settings and user-supplied components; options override objects."""
    settings = _checked("settings", settings, Settings)
    data_settings = _checked("data_settings", data_settings, DataSettings)
    training = {field.name for field in fields(Settings)}
    data = {field.name for field in fields(DataSettings)}
    for name in options:
        if name not in training | data:
            known = [*training, *data, "settings", "data_settings", "labels", "out", "resume", "overwrite", "progress"]
            known += ["minutes", "on_step", "on_epoch", "on_checkpoint"]
            raise InputError(f"unknown option {name!r}{did_you_mean(name, known)}")
    objects = {name: options[name] for name in COMPONENTS if not isinstance(options.get(name), str | None)}
    named = {name: value for name, value in options.items() if name not in objects}
    # Not `replace`, because the settings of a run do not accept "auto".
    settings = Settings(**(vars(settings) | {name: value for name, value in named.items() if name in training}))
    data_settings = replace(data_settings, **{name: value for name, value in named.items() if name in data})
    return settings, data_settings, Components(**objects)


def _checked(name: str, value: Any, kind: type) -> Any:
    if value is not None and not isinstance(value, kind):
        raise InputError(f"`{name}` must be imix.{kind.__name__}(...); got {value!r}")
    return kind() if value is None else value
