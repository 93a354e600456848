"""CIFAR-10: color images of 32 x 32 pixels, 10 classes."""

from typing import TYPE_CHECKING

from imix.data.named._cifar import RECIPE, CifarFiles, load_cifar
from imix.data.named.record import DOWNLOADED, NamedDataset
from imix.settings import DataSettings

if TYPE_CHECKING:
    from imix.data.arrays import RawData

FILES = CifarFiles(
    folder="cifar-10-batches-bin",
    python_folder="cifar-10-batches-py",
    train=tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
    test="test_batch.bin",
    label_bytes=1,
)
CLASS_NAMES = "airplane automobile bird cat deer dog frog horse ship truck"  # in the order of the labels


def load(data_settings: DataSettings) -> "RawData":
    """50,000 training and 10,000 test images of shape (3, 32, 32), uint8."""
    return load_cifar("cifar10", FILES, CLASS_NAMES, data_settings.data_dir)


DATASET = NamedDataset(
    name="cifar10",
    title="CIFAR-10",
    kind="images",
    summary="60,000 images of 32 x 32 pixels, 10 classes",
    availability=DOWNLOADED,
    options=("data_dir",),
    n_train=50_000,
    n_classes=10,
    marker_files=("cifar10.npz", FILES.test, FILES.folder, FILES.python_folder),
    load=load,
    recipe=RECIPE,
)
