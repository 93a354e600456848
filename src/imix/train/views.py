"""Views: how one is made of a batch, by the settings and the kind of data, and all that a method takes."""

import torch
from torch import nn

from imix.augment import Augment, Masking, Resampling, followed_by, image, no_augment
from imix.augment.speech import SpeechViews
from imix.batch import Batch, as_floats, concatenate, laid_out, map_fields, same_size, size, split
from imix.data import Data, Tensors
from imix.data.mel import LogMel, Reals
from imix.errors import InputError
from imix.mix import InputMix
from imix.settings import Settings

MASKING = 0.2  # of rows, unless set
OF_IMAGES = {"cifar": image.cifar, "imagenet": image.imagenet}


class Views(nn.Module):
    """As many views of a batch as a method takes, their inputs mixed where asked.

    imix's own augmentations draw for each sample alone, so one call makes all views `at_once`: half the kernels to
    launch, or to compile. One's own is called for each view.
    """

    def __init__(
        self, view: Augment, count: int = 2, input_mix: InputMix | None = None, *, at_once: bool = False
    ) -> None:
        super().__init__()
        self.view, self.count, self.input_mix, self.at_once = view, count, input_mix, at_once

    @torch.no_grad()
    def forward(self, batch: Batch) -> list[Batch]:
        """The views of a batch."""
        batch, n = as_floats(batch), size(batch)
        copies = [batch if self.at_once else map_fields(torch.clone, batch) for _ in range(self.count)]
        seen = [concatenate(copies)] if self.at_once else copies  # what is one's own may work in place
        views = [self.view(one) for one in seen]
        if (found := same_size(*views)) != (given := size(seen[0])):
            raise InputError(f"a view must have the samples of its batch; the augmentation made {found} of {given}")
        if self.input_mix is not None:
            views = [self.input_mix(concatenate(views))]
        return [one for view in views for one in split(map_fields(laid_out, view), n)]


def make_view(settings: Settings, data: Data, front: nn.Module, given: Augment | None = None) -> Augment:
    """From a batch to a view of it, as the method sees it: by the augmentation that is given, or else the settings'.

    Sounds become mel pictures by the way, or spectra where waveforms are mixed; images are standardised after, rows
    that stream before, and rows in memory were.
    """
    name = settings.augment or data.augment
    if data.clip is None:
        if settings.mix_waveforms or name == "speech":
            raise InputError(f"augment='speech' and mix_waveforms are for sounds; {data.name} has none")
        augment = make_augment(settings, data) if given is None else given
        if len(data.train.shape or ()) == 3:
            return followed_by(augment, front)
        return augment if isinstance(data.train, Tensors) else followed_by(front, augment)
    if settings.masking or settings.resampling or settings.augment_columns:
        raise InputError(f"masking, resampling and augment_columns are for rows; {data.name} has sounds")
    if settings.mix_waveforms and settings.mix == "cutmix":
        raise InputError("mix_waveforms blends sounds; cutmix cuts their pictures: choose one")
    assert isinstance(front, LogMel)
    spectrum, mel = front
    then = Reals() if settings.mix_waveforms else mel
    if given is None and name == "speech":
        return SpeechViews(data.clip, data.noise, then)
    augment = make_augment(settings, data) if given is None else given
    return followed_by(augment, nn.Sequential(spectrum, then))


def make_augment(settings: Settings, data: Data) -> Augment:
    """How a view of images or rows is made."""
    cells, masking = _cells(settings, data), settings.masking
    if masking is None:
        masking = MASKING if len(data.train.shape or ()) == 1 and settings.augment != "none" else 0.0
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
    return list(OF_IMAGES[name]((shape[1], shape[2])))


def _cells(settings: Settings, data: Data) -> list[int] | None:
    """For each number of a row, the column it belongs to, -1 where that is not to be touched; None if all are alike."""
    if data.table is None:
        if settings.augment_columns:
            raise InputError(f"augment_columns names columns of a table; {data.name} is none")
        return None
    touched = data.table.chosen(settings.augment_columns)
    return [cell if touched[cell] else -1 for cell in data.table.cells]
