"""The record of a named data set: everything the library knows about it. Must not import torch."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from imix.settings import DataSettings

if TYPE_CHECKING:
    from imix.data.arrays import RawData
    from imix.data.source import Data


@dataclass(frozen=True)
class PaperRecipe:
    """How the paper trains on a data set and measures the result.

    The values follow the authors' code where it differs from the paper, because the paper's numbers were produced with
    it; docs/paper.md lists the differences.
    """

    settings: dict[str, Any]
    """Fields of `imix.Settings` for the paper's full training."""
    short_settings: dict[str, Any] = field(default_factory=dict)
    """Changes to `settings` for a run that takes minutes."""
    short_data_settings: dict[str, Any] = field(default_factory=dict)
    """Fields of `imix.DataSettings` for a run that takes minutes."""
    protocol: Literal["linear", "pinv"] = "linear"
    """How accuracy is measured."""
    standardize: Literal["train", "all"] = "train"
    """Samples that mean and std are computed from: the training samples, or training and test samples."""


@dataclass(frozen=True)
class NamedDataset:
    """A data set that `imix.data.load` knows by name."""

    name: str
    title: str
    """Name in tables and reports."""
    kind: Literal["images", "audio", "table", "detection"]
    summary: str
    """Number and size of the samples and number of classes, in a few words."""
    n_train: int
    """Number of training samples."""
    n_classes: int
    load: "Callable[[DataSettings], RawData | Data]" = field(repr=False)
    """Reads the data set. Heavy imports belong inside this function."""
    availability: str = "downloaded on first use, or read from `data_dir`"
    """How to get the data."""
    options: tuple[str, ...] = ("data_dir",)
    """Fields of `imix.DataSettings` that apply, in addition to `fraction` and `standardize`."""
    marker_files: tuple[str, ...] = ()
    """File names; a folder that contains one of them contains this data set."""
    recipe: PaperRecipe | None = None
    """None if the paper does not train on this data set."""
