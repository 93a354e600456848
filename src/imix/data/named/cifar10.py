"""CIFAR-10: 50,000 training and 10,000 test images of 32 x 32 pixels, in color, 10 classes."""

from functools import partial

from imix.data.named._cifar import RECIPE, CifarFiles, load_cifar
from imix.data.named.record import DOWNLOADED, NamedDataset

FILES = CifarFiles(
    folder="cifar-10-batches-bin",
    python_folder="cifar-10-batches-py",
    train=tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
    test="test_batch.bin",
    label_bytes=1,
)
CLASS_NAMES = "airplane automobile bird cat deer dog frog horse ship truck"  # in the order of the labels

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
    load=partial(load_cifar, "cifar10", FILES, CLASS_NAMES),
    recipe=RECIPE,
)
