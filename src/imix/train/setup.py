"""Builds everything a training run needs from data and settings: encoder, views, method and source, on the device."""

import copy
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from imix.augment import Augment, no_augment
from imix.augment.per_sample import draws_once_per_batch
from imix.batch import Batch, checked_size, concatenate, first_field, map_fields, to_float
from imix.data import Data, Source, Table, TensorSource
from imix.data.media.images import ImageFiles
from imix.data.tables.columns import Column
from imix.encoders import eval_mode, infer_width
from imix.encoders.mel import LogMel
from imix.encoders.standardize import Standardize
from imix.errors import InputError
from imix.methods import BYOL, Method, MoCo, NPair, SimCLR, SupCLR, Supervised, SupNPair
from imix.mix import CutMix, MixOperator, MixUp
from imix.run.config import Architecture
from imix.run.initial_weights import InitialWeights
from imix.run.stored_encoder import assemble
from imix.runtime.device import pick_device, should_compile, should_use_cuda_graph, start_compiler
from imix.runtime.distributed import rank, world_size
from imix.runtime.rng import BEFORE_TRAINING, isolated_rng, seed_all
from imix.settings import METHOD_SETTINGS, ResolvedSettings, Settings
from imix.train.options import Components
from imix.train.threads import pick_threads
from imix.train.views import build_view

PROBED_SAMPLES = 8  # number of samples on which a user-supplied augmentation is checked before training
STATISTICS_SAMPLE = 2000  # samples of a streamed source that its mean and standard deviation are computed from
METHODS = {"npair": NPair, "simclr": SimCLR, "moco": MoCo, "byol": BYOL, "supclr": SupCLR, "supnpair": SupNPair}


@dataclass(frozen=True)
class TrainingSetup:
    """Everything that the training loop and the benchmark need."""

    settings: ResolvedSettings
    device: torch.device
    architecture: Architecture
    model: nn.Sequential  # preprocessing and encoder, from raw inputs to features
    source: Source
    learner: Method
    view: Augment  # makes one view of a batch
    use_cuda_graph: bool
    batch_size: int  # of all ranks together
    user_supplied: dict[str, str]  # names of the user-supplied method, mix and augment
    threads: int  # of torch during training

    @property
    def steps_per_epoch(self) -> int:
        """Full batches in an epoch; the samples left over differ from epoch to epoch."""
        return len(self.source) // self.batch_size

    def rows(self, epoch: int) -> Tensor:
        """The samples of each batch of an epoch, (steps, batch_size).

        If samples are stored in blocks, each rank visits a separate part of the epoch, and so reads separate blocks.
        """
        order = self.source.epoch_order(self.settings.seed, epoch)[: self.steps_per_epoch * self.batch_size]
        if self.source.in_blocks:
            order = order.view(world_size(), self.steps_per_epoch, -1).transpose(0, 1).contiguous()
        return order.view(self.steps_per_epoch, self.batch_size)

    def batches(self, epoch: int, first_step: int = 0) -> Iterator[tuple[Batch, Tensor | None]]:
        """This rank's part of each batch of an epoch from `first_step` on, and its labels, on the device."""
        rows, step = self.rows(epoch)[first_step:].chunk(world_size(), 1)[rank()], first_step
        for batch, labels in self.source.batches(rows):
            step += 1
            if (n := checked_size(batch)) != rows.shape[1]:
                raise InputError(f"the source returned {n} samples instead of {rows.shape[1]}")
            batch = map_fields(lambda x: x.to(self.device, non_blocking=True), batch)
            yield batch, None if labels is None else labels.to(self.device)
        if step < self.steps_per_epoch:
            raise InputError(f"the source returned {step} of the {self.steps_per_epoch} batches of an epoch")

    @property
    def title(self) -> str:
        """Method and mixing, for logs."""
        settings = self.settings
        title = self.user_supplied.get("method", settings.method)
        if "mix" in self.user_supplied or settings.mix != "none":
            mix = self.user_supplied.get("mix", f"{settings.mix}, alpha {settings.alpha:g}")
            supervised = settings.method == "supervised" and "method" not in self.user_supplied
            title += f" + {'label mixing' if supervised else 'i-Mix'} ({mix})"
        return title + (f" + InputMix of {settings.input_mix}" if settings.input_mix else "")

    @property
    def encoder_name(self) -> str:
        """The encoder's name in the settings, or the class of a user-supplied module."""
        return type(self.model[-1]).__name__ if self.architecture.is_custom else self.settings.encoder


def build_setup(
    data: Data,
    settings: ResolvedSettings,
    components: Components = Components(),
    initial: InitialWeights | None = None,
) -> TrainingSetup:
    """Build a training setup; user-supplied components replace what the settings name."""
    encoder = components.encoder
    user_supplied = {
        name: _component_name(component)
        for name, component in vars(components).items()
        if component is not None and name != "encoder"
    }
    device, batch_size = pick_device(settings.device), global_batch_size(settings, len(data.train))
    if device.type == "cuda" and should_compile(settings, device, len(data.train) // batch_size):
        start_compiler()
    if encoder is not None and not isinstance(encoder, nn.Module):
        raise InputError(f"`encoder` must be an nn.Module from (N, ...) to (N, F); got {encoder!r}")
    if isinstance(data.train, ImageFiles):
        data = replace(data, train=data.train.for_training())
    if initial is not None and initial.architecture and _columns(data.table) != _columns(initial.table):
        if data.table is None or initial.table is None:
            negation = " not" if data.table is None else ""
            raise InputError(f"{data.name} is{negation} a table, unlike the data of the run in {initial.source!r}")
        raise InputError(f"the columns of {data.name} are not encoded as in the run in {initial.source!r}")
    shape = data.train.shape
    # Table columns are standardized while they are encoded; mel spectrograms have a fixed scale in dB.
    standardize = data.settings.standardize != "none" and data.table is None and data.clip is None
    architecture = Architecture(
        settings.encoder if encoder is None else "custom",
        shape,
        () if data.table is None else data.table.groups,
        standardize and shape is not None,
        data.clip,
    )
    with isolated_rng(device):
        seed_all(settings.seed, BEFORE_TRAINING)
        model = assemble(architecture, encoder, pretrained=initial is None)
        if initial is not None and initial.state:
            initial.load_into(model[-1], architecture.encoder)
        source = _prepare_source(data, model, device)
        sample = to_float(map_fields(lambda x: x.to(device), source.sample(2)))
        view = build_view(settings, data, model[0], components.augment)
        if components.augment is not None:
            probed = map_fields(lambda x: x.to(device), source.sample(PROBED_SAMPLES))
            _check_draws(components.augment, lambda augment: build_view(settings, data, model[0], augment), probed)
        trained = model[-1]
        if isinstance(model[0], LogMel) and settings.mix_waveforms:  # mixed spectra still need their mel filters
            trained = nn.Sequential(model[0][1], trained)
        width = (infer_width(model[-1]) if encoder is None else None) or _measure_width(model, sample)
        mix = build_mix(settings) if components.mix is None else components.mix
        if components.method is None:
            learner = build_method(settings, trained, mix, width, data.train.n_classes)
        else:
            learner = components.method(trained, mix, width=width)
        if not isinstance(learner, Method):
            raise InputError(f"`method` must return an imix.methods.Method; got {learner!r}")
        learner.apply_mix(build_view(settings, data, model[0], no_augment)(sample))  # fails early if it cannot be mixed
        views = learner.n_views * batch_size // world_size()
        threads = pick_threads(model, sample, views) if device.type == "cpu" else torch.get_num_threads()
    _check_labels(learner, source, data.name, user_supplied.get("method", settings.method))
    return TrainingSetup(
        settings,
        device,
        architecture,
        model,
        source,
        learner,
        view,
        should_use_cuda_graph(settings, device, encoder is None and not user_supplied),
        batch_size,
        user_supplied,
        threads,
    )


def _columns(table: Table | None) -> tuple[Column, ...]:
    return () if table is None else table.columns


def global_batch_size(settings: ResolvedSettings, n: int) -> int:
    """The batch of all ranks together: as set, or all n samples if fewer; a multiple of the number of ranks."""
    world = world_size()
    if settings.batch_size % world:
        raise InputError(f"`batch_size` must be a multiple of the {world} ranks; got {settings.batch_size}")
    batch_size = min(settings.batch_size, n // world * world)
    if batch_size // world < 2:
        raise InputError(
            f"batch normalization and the loss need at least 2 samples per rank; a batch of {batch_size} on {world} "
            f"rank(s) has fewer (`batch_size={settings.batch_size}`, {n} samples)"
        )
    return batch_size


def build_mix(settings: Settings) -> MixOperator | None:
    """Build the mixing operator named in the settings, or return None."""
    operators = {"mixup": MixUp, "cutmix": CutMix}
    if settings.mix == "none":
        return None
    return operators[settings.mix](settings.alpha, settings.per_sample, settings.fold)


def build_method(settings: Settings, encoder: nn.Module, mix: MixOperator | None, width: int, n_classes: int) -> Method:
    """Build the method named in the settings for an encoder of `width` features; `n_classes` is 0 without labels."""
    if settings.supervised and not n_classes:
        raise InputError(
            f"method {settings.method!r} needs labels that are classes, and the data has none; npair, simclr, moco and "
            "byol need none"
        )
    if settings.method == "supervised":
        return Supervised(encoder, mix, n_classes=n_classes, width=width)
    options = {name: getattr(settings, name) for name, methods in METHOD_SETTINGS.items() if settings.method in methods}
    return METHODS[settings.method](encoder, mix, width=width, **options)


def _check_draws(augment: Augment, as_view: Callable[[Augment], Augment], samples: Batch) -> None:
    """Raise InputError if an augmentation changes all samples of a batch in the same random way."""
    with suppress(Exception):  # if it cannot be copied, its own generator (if any) advances
        augment = copy.deepcopy(augment)
    device, view = first_field(samples).device, as_view(augment)
    view = view.to(device) if isinstance(view, nn.Module) else view
    with torch.autocast(device.type, enabled=False):  # as in a training step
        draws_once = draws_once_per_batch(view, to_float(samples))
    if draws_once:
        name = _component_name(augment)
        raise InputError(
            f"`augment` must draw for each sample, but {name} draws once for the whole batch; if it is a transform of "
            f"one sample, pass augment=imix.per_sample({name})"
        )


def _component_name(component: Any) -> str:
    """The name of a user-supplied function, class or object."""
    component = getattr(component, "func", component)  # of functools.partial
    return getattr(component, "__name__", type(component).__name__)


def _prepare_source(data: Data, model: nn.Sequential, device: torch.device) -> Source:
    """Fit the standardization, then move model and training data to the device, if the data fits there.

    Images are standardized after augmentation; everything else in memory is standardized here, once.
    """
    source, preprocess = data.train, model[0]
    if isinstance(preprocess, Standardize):
        use_test = data.test is not None and data.settings.standardize == "all"
        sources = [source, data.test if use_test else None]
        inputs = [_inputs_for_statistics(source) for source in sources if source is not None]
        preprocess.fit(concatenate([to_float(part) for part in inputs]) if len(inputs) > 1 else inputs[0])
        if len(source.shape or ()) != 3 and isinstance(source, TensorSource):
            source = TensorSource(preprocess(source.inputs), source.labels)
    model.to(device)
    if isinstance(source, ImageFiles):
        return source.to(device)
    fits = device.type != "cuda" or source.nbytes() < torch.cuda.mem_get_info(device)[0] // 2
    return source.to(device) if fits else source


def _inputs_for_statistics(source: Source) -> Batch:
    """All samples of a source in memory, or an evenly spaced part of a streamed one."""
    if isinstance(source, TensorSource):
        return source.inputs
    rows = torch.linspace(0, len(source) - 1, min(len(source), STATISTICS_SAMPLE)).long()
    return next(source.batches([rows]))[0]


def _measure_width(model: nn.Sequential, sample: Batch) -> int:
    """Return the number of features of a user-supplied encoder."""
    with torch.no_grad(), eval_mode(model):
        features = model(sample)
    if features.dim() != 2:
        raise InputError(
            f"an encoder must return features (N, F); {type(model[-1]).__name__} returned shape {tuple(features.shape)}"
        )
    return int(features.shape[1])


def _check_labels(learner: Method, source: Source, data_name: str, method: str) -> None:
    """Raise InputError if a supervised method has missing labels or a single class."""
    if not learner.supervised:
        return
    if source.labels is None or int(source.labels.min()) < 0:
        missing = len(source) if source.labels is None else int((source.labels < 0).sum())
        raise InputError(f"method {method!r} needs labels; {missing} samples have none")
    if source.n_classes < 2:
        raise InputError(f"all samples of {data_name} belong to one class; a supervised method needs at least two")
