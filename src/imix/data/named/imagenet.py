"""ImageNet-1k: photographs of different sizes, 1,000 classes."""

from typing import TYPE_CHECKING

from imix.data.named._imagenet import AVAILABILITY, build_recipe, load_imagenet
from imix.data.named.record import NamedDataset
from imix.settings import DataSettings

if TYPE_CHECKING:
    from imix.data.source import Data


def load(data_settings: DataSettings) -> "Data":
    """1,281,167 training and 50,000 validation images, resized to 224 x 224 pixels by default."""
    return load_imagenet("imagenet", data_settings)


DATASET = NamedDataset(
    name="imagenet",
    title="ImageNet-1k",
    kind="images",
    summary="1.3 million images, 1,000 classes",
    availability=AVAILABILITY,
    options=("data_dir", "image_size"),
    n_train=1_281_167,
    n_classes=1_000,
    marker_files=("train",),
    load=load,
    recipe=build_recipe(short_data_settings={"image_size": 64, "fraction": 0.1}),
)
