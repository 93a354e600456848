"""Image and audio samples in tar shards, with labels in .cls or .json files."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch

from imix.data.media.audio import read_audio
from imix.data.media.images import ImageFiles, read_images
from imix.data.media.references import AUDIO_SUFFIXES, IMAGE_SUFFIXES, MediaFiles
from imix.data.media.tar_index import read_index
from imix.data.source import Data
from imix.data.tables.values import INTEGER
from imix.errors import InputError
from imix.settings import DataSettings

SAMPLES_PER_BLOCK = 256  # consecutive samples of a shard that are read at about the same time


def read_shards(name: str, shards: Sequence[Path], data_settings: DataSettings, test_shards: Sequence[Path]) -> Data:
    """Read shards of images or of audio, and shards of test samples, if any.

    Images that do not fit in memory are decoded when they are needed, and an epoch visits them in blocks of consecutive
    samples.
    """
    parts = [_read_index(name, each) for each in (shards, test_shards) if each]
    first, *_ = members = [member for part in parts for member in part.references]
    is_audio = str(first).lower().endswith(AUDIO_SUFFIXES)
    for member in members:
        if str(member).lower().endswith(AUDIO_SUFFIXES) != is_audio:
            raise InputError(f"{name} contains images and audio files: {first} and {member}")
    if parts[0].labels is None:
        parts = [replace(part, labels=None) for part in parts]
    data = read_audio(parts, data_settings) if is_audio else read_images(parts, data_settings)
    for part, source in zip(parts, (data.train, data.test), strict=False):
        if isinstance(source, ImageFiles):
            source.blocks = _blocks(part.references)
    return replace(data, n_skipped=len(members) - len(data.sample_names))


def _read_index(name: str, shards: Sequence[Path]) -> MediaFiles:
    samples = [sample for shard in shards for sample in read_index(shard, (*IMAGE_SUFFIXES, *AUDIO_SUFFIXES))]
    labels = [label for _, label in samples]
    has_labels = any(label != "" for label in labels)
    return MediaFiles(name, [member for member, _ in samples], _as_labels(labels) if has_labels else None)


def _blocks(members: Sequence[Any]) -> torch.Tensor:
    """Return the block of each sample, (N,)."""
    sizes = [len([*group]) for _, group in groupby(members, key=lambda member: member.shard)]
    is_first = np.concatenate([np.arange(size) % SAMPLES_PER_BLOCK == 0 for size in sizes])
    return torch.from_numpy(is_first.cumsum(dtype=np.int32) - np.int32(1))


def _as_labels(values: list[Any]) -> Any:
    """Convert labels to an array (N,); text that is integers, as in .cls files, is sorted by value."""
    present = [value for value in values if value != ""]
    if all(isinstance(value, str) and INTEGER.fullmatch(value) for value in present):
        return np.array([None if value == "" else int(value) for value in values])
    if all(isinstance(value, int | float) for value in present):
        # Not floats, as which large integers would coincide. Booleans become integers.
        return np.array([None if value == "" else +value for value in values], object)
    return np.array(values, dtype=object)
