"""ImageNet-1k: 1,281,167 training and 50,000 validation photographs of different sizes, 1,000 classes."""

from functools import partial

from imix.data.named._imagenet import AVAILABILITY, build_recipe, load_imagenet
from imix.data.named.record import NamedDataset

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
    load=partial(load_imagenet, "imagenet"),
    recipe=build_recipe(short_data_settings={"image_size": 64, "fraction": 0.1}),
)
