"""Builds the function that makes one view of a batch, and the module that makes all views that a method takes."""

import torch
from torch import nn

from imix.augment import Augment, Masking, Resampling, compose, image, no_augment
from imix.augment.audio import AudioViews
from imix.batch import Batch, checked_size, concatenate, map_fields, size, split, to_channels_last, to_float
from imix.data import Data, TensorSource
from imix.encoders.mel import AsReals, LogMel
from imix.errors import InputError
from imix.mix import InputMix
from imix.settings import Settings

DEFAULT_MASKING, DEFAULT_RESAMPLING = 0.2, 0.3  # for rows of tables and arrays
IMAGE_VIEWS = {"cifar": image.cifar, "imagenet": image.imagenet}


class Views(nn.Module):
    """Make all views of a batch that a method takes, and apply InputMix if enabled.

    Built-in augmentations draw independently for each sample, so one call on the repeated batch makes all views
    (`in_one_call`): half the kernels to launch or compile. A user-supplied augmentation is called once per view,
    because it may draw once per batch.
    """

    def __init__(
        self, view: Augment, n_views: int = 2, input_mix: InputMix | None = None, *, in_one_call: bool = False
    ) -> None:
        super().__init__()
        self.view, self.n_views, self.input_mix, self.in_one_call = view, n_views, input_mix, in_one_call

    @torch.no_grad()
    def forward(self, batch: Batch) -> list[Batch]:
        """The views of a batch, each with as many samples as the batch."""
        batch, n = to_float(batch), size(batch)
        if self.in_one_call:
            views = [self.view(concatenate([batch] * self.n_views))]
        else:  # copies, because a user's augmentation may work in place
            views = [self.view(map_fields(torch.clone, batch)) for _ in range(self.n_views)]
            if (returned := checked_size(*views)) != n:
                raise InputError(f"an augmentation must return as many samples as it gets; got {returned} for {n}")
        if self.input_mix is not None:
            views = [self.input_mix(concatenate(views))]
        return [chunk for view in views for chunk in split(map_fields(to_channels_last, view), n)]


def build_view(settings: Settings, data: Data, preprocess: nn.Module, augment: Augment | None = None) -> Augment:
    """A function from a batch to one view of it, as the method sees it.

    `augment` overrides the augmentation that the settings name. Audio becomes mel spectrograms, or complex spectra if
    waveforms are mixed. Images are standardized after augmentation, streamed rows before, and rows in memory earlier.
    """
    name = settings.augment or data.augment
    if data.clip is None:
        if settings.mix_waveforms or name == "audio":
            raise InputError(f"`augment='audio'` and `mix_waveforms` are for audio; {data.name} is not audio")
        augment = build_augment(settings, data) if augment is None else augment
        if len(data.train.shape or ()) == 3:
            return compose(augment, preprocess)
        return augment if isinstance(data.train, TensorSource) else compose(preprocess, augment)
    if settings.masking or settings.resampling or settings.augment_columns:
        raise InputError(f"`masking`, `resampling` and `augment_columns` are for tables; {data.name} is audio")
    if settings.mix_waveforms and settings.mix == "cutmix":
        raise InputError("`mix_waveforms` blends waveforms and cutmix cuts spectrograms; choose one")
    assert isinstance(preprocess, LogMel)
    spectrum, mel = preprocess
    after_spectrum = AsReals() if settings.mix_waveforms else mel
    if augment is None and name == "audio":
        return AudioViews(data.clip, data.noise, after_spectrum)
    augment = build_augment(settings, data) if augment is None else augment
    return compose(augment, nn.Sequential(spectrum, after_spectrum))


def build_augment(settings: Settings, data: Data) -> Augment:
    """The augmentation of images or rows that the settings name."""
    cells, masking, resampling = _cells(settings, data), settings.masking, settings.resampling
    is_row = len(data.train.shape or ()) == 1 and settings.augment != "none"
    if masking is None:
        masking = DEFAULT_MASKING if is_row else 0.0
    if resampling is None:
        resampling = DEFAULT_RESAMPLING if is_row else 0.0
    steps: list[nn.Module] = _image_steps(settings, data)
    steps += [Resampling(resampling, cells)] if resampling else []
    steps += [Masking(masking, cells)] if masking else []
    return nn.Sequential(*steps) if steps else no_augment


def _image_steps(settings: Settings, data: Data) -> list[nn.Module]:
    """The image augmentation that the settings name, or the default of the data set."""
    name = settings.augment or data.augment
    if name == "none":
        return []
    shape = data.train.shape or ()
    if len(shape) != 3:
        raise InputError(f"`augment={name!r}` is for images (C, H, W); {data.name} has samples of shape {shape}")
    sample = data.train.sample(64)
    has_colors = shape[0] == 3 and sample.is_floating_point()
    if has_colors and not (sample.min() >= 0 and sample.max() <= 1):
        raise InputError(
            f"`augment={name!r}` needs uint8 or floats in [0, 1]; {data.name} has values from {sample.min():g} to "
            f"{sample.max():g}"
        )
    return list(IMAGE_VIEWS[name]((shape[1], shape[2]), shape[0]))


def _cells(settings: Settings, data: Data) -> list[int] | None:
    """The table column of each number of a row, -1 for columns that are not augmented; None without a table."""
    if data.table is None:
        if settings.augment_columns:
            raise InputError(f"`augment_columns` names columns of a table; {data.name} is not a table")
        return None
    augmented = data.table.select_columns(settings.augment_columns)
    return [column if augmented[column] else -1 for column in data.table.cells]
