"""From settings to objects: the mixing operator, the augmentation and the method that they name, on the device."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import nn

from imix.augment import Augment, no_augment
from imix.batch import Batch, as_floats, concatenate, map_fields
from imix.data import Data, Source, Tensors
from imix.data.mel import LogMel
from imix.data.pictures import Pictures
from imix.data.standardise import Standardise
from imix.distributed import world_size
from imix.encoders import evaluating, width_of
from imix.encoders.stored import assemble
from imix.errors import InputError
from imix.methods import BYOL, Method, MoCo, NPair, SimCLR, SupCLR, Supervised, SupNPair
from imix.mix import CutMix, MixOperator, MixUp
from imix.settings import Settings
from imix.train.device import compiles, pick_device, records, start_compiler
from imix.train.randomness import BEFORE_TRAINING, own_randomness, seed_all
from imix.train.views import make_view

STREAMED_SAMPLE = 2000  # samples from which a streamed source is standardised
MakeMethod = Callable[..., Method]  # of encoder and mix, and width=
IN_BATCH = {"npair": NPair, "simclr": SimCLR, "supclr": SupCLR, "supnpair": SupNPair}


@dataclass(frozen=True)
class Made:
    """What a run is made of: everything that steps need."""

    settings: Settings
    device: torch.device
    architecture: dict[str, Any]  # from which the encoder is built again
    whole: nn.Sequential  # the encoder with what makes its input
    source: Source
    learner: Method
    view: Augment  # from a batch to a view of it
    recorded: bool  # whether steps are; see `Recorded`
    batch_size: int  # of all ranks together
    own: dict[str, str]  # names of what is one's own: method, mix, augment

    @property
    def steps(self) -> int:
        """Of an epoch; the samples that are left over differ from one to the next."""
        return len(self.source) // self.batch_size

    @property
    def title(self) -> str:
        """Method and mixing."""
        settings = self.settings
        mix = self.own.get("mix", f"{settings.mix}, alpha {settings.alpha:g}")
        mixes = "mix" in self.own or settings.mix != "none"
        inputs = f" + InputMix of {settings.input_mix}" if settings.input_mix else ""
        mixing = "mixing" if settings.method == "supervised" and "method" not in self.own else "i-Mix"
        return self.own.get("method", settings.method) + (f" + {mixing} ({mix})" if mixes else "") + inputs

    @property
    def network(self) -> str:
        """What the encoder is called."""
        own = self.architecture["encoder"] == "custom"
        return type(self.whole[-1]).__name__ if own else self.settings.encoder


def make_all(
    data: Data,
    settings: Settings,
    encoder: nn.Module | None = None,
    augment: Augment | None = None,
    method: MakeMethod | None = None,
    mix: MixOperator | None = None,
) -> Made:
    """Everything from data and settings, with what is one's own where it is given."""
    parts = {"method": method, "mix": mix, "augment": augment}
    own = {name: _name(part) for name, part in parts.items() if part is not None}
    device, batch_size = pick_device(settings.device), global_batch_size(settings, len(data.train))
    if device.type == "cuda" and compiles(settings, device, len(data.train) // batch_size):
        start_compiler()
    if encoder is not None and not isinstance(encoder, nn.Module):
        raise InputError(f"encoder must be a module, from (N, ...) to (N, F); got {encoder!r}")
    if isinstance(data.train, Pictures):
        data = replace(data, train=data.train.for_training())
    shape = data.train.shape
    images = shape is not None and len(shape) == 3
    # Columns were scaled as they were read; sounds have a scale of their own.
    scaled = data.reading.standardise == "none" or data.table is not None or data.clip is not None
    architecture = {
        "encoder": settings.encoder if encoder is None else "custom",
        "shape": shape,
        "groups": [] if data.table is None else data.table.groups,
        "standardise": not scaled and shape is not None,
        "clip": None if data.clip is None else asdict(data.clip),
    }
    with own_randomness(device):
        seed_all(settings.seed, BEFORE_TRAINING)
        whole = assemble(architecture, encoder)
        source = _standardised(data, whole, device, images)
        view = make_view(settings, data, whole[0], augment)
        seeing = whole[-1]
        if isinstance(whole[0], LogMel) and settings.mix_waveforms:  # it begins with what makes pictures of them
            seeing = nn.Sequential(whole[0][1], seeing)
        width = _width(whole, source, device, own=encoder is not None)
        mix = make_mix(settings) if mix is None else mix
        if method is None:
            learner = make_method(settings, seeing, mix, width, data.train.classes)
        else:
            learner = method(seeing, mix, width=width)
        if not isinstance(learner, Method):
            raise InputError(f"method must make an imix.methods.Method of an encoder; it made {learner!r}")
        plain = make_view(settings, data, whole[0], no_augment)
    _try_mixing(learner, plain, source, device)
    if learner.supervised and (source.labels is None or int(source.labels.min()) < 0):
        without = len(source) if source.labels is None else int((source.labels < 0).sum())
        raise InputError(f"method {own.get('method', settings.method)!r} needs labels, and {without} rows have none")
    if learner.supervised and source.classes < 2:
        raise InputError(f"all samples of {data.name} are of one class, so there is nothing to tell apart")
    recorded = records(settings, device, ours=encoder is None and not own)
    return Made(settings, device, architecture, whole, source, learner, view, recorded, batch_size, own)


def _name(part: Any) -> str:
    """What a function, a class or an object of one's own is called."""
    part = getattr(part, "func", part)  # of functools.partial
    return getattr(part, "__name__", type(part).__name__)


def global_batch_size(settings: Settings, n: int) -> int:
    """The batch of all ranks together: as set, or all the data where that is less; a multiple of the ranks."""
    world = world_size()
    if settings.batch_size % world:
        raise InputError(f"a batch of {settings.batch_size} cannot be shared by {world} ranks; choose a multiple")
    batch_size = min(settings.batch_size, n // world * world)
    if batch_size // world < 2:
        raise InputError(
            f"a batch of {batch_size} on {world} rank(s) leaves fewer than 2 samples each: batch normalisation and "
            f"contrast need at least 2 (batch_size={settings.batch_size}, {n} samples)"
        )
    return batch_size


def make_mix(settings: Settings) -> MixOperator | None:
    """i-Mix's operator, or None."""
    operators = {"mixup": MixUp, "cutmix": CutMix}
    if settings.mix == "none":
        return None
    return operators[settings.mix](settings.alpha, settings.per_sample, settings.fold)


def make_method(settings: Settings, encoder: nn.Module, mix: MixOperator | None, width: int, classes: int) -> Method:
    """The method around an encoder of that width; `classes` is 0 where there are no labels."""
    head, dim = settings.head, settings.dim
    if settings.supervised and not classes:
        raise InputError(
            f"method {settings.method!r} needs labels and the data has none; npair, simclr, moco, byol do not"
        )
    if settings.method == "supervised":
        return Supervised(encoder, mix, classes=classes, width=width)
    if settings.method == "moco":
        return MoCo(
            encoder,
            mix,
            queue=settings.queue,
            temperature=settings.temperature,
            momentum=settings.momentum,
            head=head,
            dim=dim,
            width=width,
            symmetric=settings.symmetric,
        )
    if settings.method == "byol":
        return BYOL(
            encoder,
            mix,
            momentum=settings.momentum,
            head=head,
            predictor=settings.predictor,
            dim=dim,
            width=width,
            symmetric=settings.symmetric,
        )
    method = IN_BATCH[settings.method]
    return method(encoder, mix, temperature=settings.temperature, head=head, dim=dim, width=width)


def _standardised(data: Data, whole: nn.Sequential, device: torch.device, images: bool) -> Source:
    """The training data, on the device if it fits there, standardised; images are so after they were augmented."""
    source = data.train
    if isinstance(whole[0], Standardise):
        parts = [source, *([data.test] if data.test is not None and data.reading.standardise == "all" else [])]
        held = [_held(part) for part in parts]
        whole[0].fit(concatenate([as_floats(part) for part in held]) if len(held) > 1 else held[0])
        if not images and isinstance(source, Tensors):
            source = Tensors(whole[0](source.inputs), source.labels)
    whole.to(device)
    if isinstance(source, Pictures):
        return source.to(device)
    fits = device.type != "cuda" or source.nbytes() < torch.cuda.mem_get_info(device)[0] // 2
    return source.to(device) if fits else source


def _held(source: Source) -> Batch:
    """All samples of a source that holds them, or some of one that streams, for statistics."""
    if isinstance(source, Tensors):
        return source.inputs
    some = torch.linspace(0, len(source) - 1, min(len(source), STREAMED_SAMPLE)).long()
    return next(source.batches([some]))[0]


def _width(whole: nn.Sequential, source: Source, device: torch.device, own: bool) -> int:
    """How many features the encoder gives: as it says, or, if it is the user's `own`, as it does."""
    said = width_of(whole[-1])
    if said is not None and not own:
        return said
    sample = map_fields(lambda x: x.to(device), source.sample(2))
    with torch.no_grad(), evaluating(whole):
        features = whole(as_floats(sample))
    if features.dim() != 2:
        raise InputError(f"an encoder must give (N, F); {type(whole[-1]).__name__} gives shape {tuple(features.shape)}")
    return int(features.shape[1])


def _try_mixing(learner: Method, plain: Augment, source: Source, device: torch.device) -> None:
    """Let an operator that cannot mix this data say so before anything is written; `plain` are its plain views."""
    sample = map_fields(lambda x: x.to(device), source.sample(2))
    with own_randomness(device):
        learner.mixed(plain(as_floats(sample)))
