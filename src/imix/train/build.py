"""From settings to objects: the mixing operator, the augmentation and the method that they name."""

from torch import nn

from imix.augment import Augment, Masking, Resampling, followed_by, image, no_augment
from imix.augment.speech import SpeechViews
from imix.data import Data
from imix.data.mel import LogMel, Reals
from imix.errors import InputError
from imix.methods import BYOL, Method, MoCo, NPair, SimCLR, SupCLR, Supervised, SupNPair
from imix.mix import CutMix, MixOperator, MixUp
from imix.settings import Settings

MASKING = 0.2  # of rows, unless set
VIEWS = {"cifar": image.cifar, "imagenet": image.imagenet}
SOFTMAX = {"npair": NPair, "simclr": SimCLR, "supclr": SupCLR, "supnpair": SupNPair}


def make_mix(settings: Settings) -> MixOperator | None:
    """i-Mix's operator, or None."""
    operators = {"mixup": MixUp, "cutmix": CutMix}
    if settings.mix == "none":
        return None
    return operators[settings.mix](settings.alpha, settings.per_sample, settings.fold)


def make_views(settings: Settings, data: Data, front: nn.Module, given: Augment | None = None) -> Augment:
    """From a batch to a view of it, as the method sees it: by the augmentation that is given, or else the settings'.

    Sounds become mel pictures by the way, or spectra where waveforms are mixed; images are standardised after, rows
    were before.
    """
    name = settings.augment or data.augment
    if data.clip is None:
        if settings.mix_waveforms or name == "speech":
            raise InputError(f"augment='speech' and mix_waveforms are for sounds; {data.name} has none")
        augment = given or make_augment(settings, data)
        return followed_by(augment, front) if len(data.train.shape or ()) == 3 else augment
    if settings.masking or settings.resampling or settings.augment_columns:
        raise InputError(f"masking, resampling and augment_columns are for rows; {data.name} has sounds")
    if settings.mix_waveforms and settings.mix == "cutmix":
        raise InputError("mix_waveforms blends sounds; cutmix cuts their pictures: choose one")
    assert isinstance(front, LogMel)
    spectrum, mel = front
    then = Reals() if settings.mix_waveforms else mel
    if given is None and name == "speech":
        return SpeechViews(data.clip, data.noise, then)
    return followed_by(given or make_augment(settings, data), nn.Sequential(spectrum, then))


def make_augment(settings: Settings, data: Data) -> Augment:
    """How a view of images or rows is made."""
    cells, masking = _cells(settings, data), settings.masking
    if masking is None:
        masking = MASKING if len(data.train.shape or ()) == 1 else 0.0
    steps: list[nn.Module] = _image_views(settings, data)
    steps += [Resampling(settings.resampling, cells)] if settings.resampling else []
    steps += [Masking(masking, cells)] if masking else []
    return nn.Sequential(*steps) if steps else no_augment


def _image_views(settings: Settings, data: Data) -> list[nn.Module]:
    """The steps of the views that are asked for, or that a data set is known for."""
    name = settings.augment or data.augment
    if name == "none":
        return []
    shape = data.train.shape or ()
    if len(shape) != 3 or shape[0] != 3:
        raise InputError(f"augment={name!r} is for colour images (3, H, W); {data.name} has samples of {shape}")
    some = data.train.sample(64)
    if some.is_floating_point() and not (some.min() >= 0 and some.max() <= 1):
        raise InputError(
            f"augment={name!r} is for colours in 0..1, or bytes; {data.name} goes from {some.min():g} to {some.max():g}"
        )
    return list(VIEWS[name]((shape[1], shape[2])))


def _cells(settings: Settings, data: Data) -> list[int] | None:
    """For each number of a row, the column it belongs to, -1 where that is not to be touched; None if all are alike."""
    if data.table is None:
        if settings.augment_columns:
            raise InputError(f"augment_columns names columns of a table; {data.name} is none")
        return None
    touched = data.table.chosen(settings.augment_columns)
    return [cell if touched[cell] else -1 for cell in data.table.cells]


def make_method(settings: Settings, encoder: nn.Module, width: int, classes: int) -> Method:
    """The method around an encoder of that width; `classes` is 0 where there are no labels."""
    mix, head, dim = make_mix(settings), settings.head, settings.dim
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
            predictor=settings.predictor or head,
            dim=dim,
            width=width,
            symmetric=settings.symmetric,
        )
    method = SOFTMAX[settings.method]
    return method(encoder, mix, temperature=settings.temperature, head=head, dim=dim, width=width)
