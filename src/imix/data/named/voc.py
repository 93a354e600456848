"""PASCAL VOC: photographs with bounding boxes. Only used to evaluate a run as the backbone of a detector."""

from typing import Never

from imix.data.named.record import NamedDataset
from imix.errors import InputError
from imix.settings import DataSettings


def load(data_settings: DataSettings) -> Never:
    """Not supported: the images have several objects each, so they are not samples with one class."""
    raise InputError(
        "voc is a detection data set and cannot be loaded as samples; evaluate a run on it with "
        "`protocol='detection'` and `data_dir=FOLDER`"
    )


DATASETS = [
    NamedDataset(
        name="voc",
        title="PASCAL VOC",
        kind="detection",
        summary="photographs with bounding boxes, to evaluate a run with `protocol='detection'`",
        availability="read from `data_dir`",
        n_train=16_551,  # trainval of 2007 and 2012
        n_classes=20,
        marker_files=("Annotations", "VOC2007", "VOCdevkit"),
        load=load,
    )
]
