"""CIFAR-10 and CIFAR-100: 50,000 training and 10,000 test images of 32 x 32 pixels, in color."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from imix.data.cache import cache_folder
from imix.data.named.record import NamedDataset, PaperRecipe
from imix.errors import InputError, first_line
from imix.settings import DataSettings

if TYPE_CHECKING:
    import numpy as np

    from imix.data.arrays import RawData

N_PIXELS = 3 * 32 * 32
RECIPE = PaperRecipe(
    settings={"encoder": "resnet50"},
    # With fewer steps, a weight decay of 1e-4 would have little effect, and with a momentum of 0.999 the key network
    # would lag too far behind.
    short_settings={"encoder": "resnet18", "epochs": 200, "weight_decay": 5e-4, "momentum": 0.99},
)


class CifarFiles(NamedTuple):
    """Files of the binary version of a CIFAR data set, which is read without torchvision."""

    folder: str
    python_folder: str
    """Folder of the Python version, which torchvision downloads."""
    train: tuple[str, ...]
    test: str
    label_bytes: int
    """Bytes in front of the pixels of each record; the last of them is the class."""


def load_cifar(name: str, files: CifarFiles, class_names: str, data_settings: DataSettings) -> "RawData":
    """Read NAME.npz or the binary files in data_dir, or else use torchvision, which verifies checksums."""
    from imix.runtime.distributed import rank_0_first

    with rank_0_first():  # it downloads the data for all ranks
        raw = _read(name, files, class_names.split(), data_settings.data_dir)
    return raw._replace(class_names=class_names.split(), augment="cifar")


def _read(name: str, files: CifarFiles, class_names: list[str], data_dir: str | None) -> "RawData":
    from imix.data.arrays import RawData, read_npz

    if data_dir is not None:
        if (path := Path(data_dir) / f"{name}.npz").is_file():
            return read_npz(path)
        for folder in (Path(data_dir), Path(data_dir) / files.folder):
            if (folder / files.test).is_file():
                train = _read_binary([folder / file for file in files.train], files.label_bytes, len(class_names))
                test = _read_binary([folder / files.test], files.label_bytes, len(class_names))
                return RawData(*train, *test)
    import numpy as np
    import torchvision  # imports torch's compiler, which takes as long as torch itself

    dataset = torchvision.datasets.CIFAR10 if name == "cifar10" else torchvision.datasets.CIFAR100
    try:
        root = data_dir or cache_folder()
        splits = [dataset(root, train=train, download=data_dir is None) for train in (True, False)]
    except (RuntimeError, OSError) as error:
        expected = f"{name}.npz, {files.folder} or {files.python_folder}"
        if data_dir is not None:
            raise InputError(f"`data_dir` {data_dir!r} contains no files of {name}; expected {expected}") from error
        raise InputError(
            f"cannot download {name} ({first_line(error)}); pass a folder that contains {expected} as `data_dir`"
        ) from error
    (x, y), (x_test, y_test) = ((split.data.transpose(0, 3, 1, 2), np.array(split.targets)) for split in splits)
    return RawData(x, y, x_test, y_test)


def _read_binary(paths: list[Path], label_bytes: int, n_classes: int) -> "tuple[np.ndarray, np.ndarray]":
    """Read images (N, 3, 32, 32) and labels (N,) from records of `label_bytes` bytes followed by the pixels."""
    import numpy as np

    record_size = label_bytes + N_PIXELS
    for path in paths:
        if not path.is_file():
            raise InputError(f"{str(path)!r} does not exist")
        if not path.stat().st_size or path.stat().st_size % record_size:
            raise InputError(f"{str(path)!r} is incomplete: its size must be a multiple of {record_size} bytes")
    records = np.concatenate([np.fromfile(path, np.uint8).reshape(-1, record_size) for path in paths])
    classes = records[:, label_bytes - 1].astype(int)
    if classes.max() >= n_classes:
        raise InputError(f"{str(paths[0])!r} has class {classes.max()}; classes must be 0 to {n_classes - 1}")
    return records[:, label_bytes:].reshape(-1, 3, 32, 32), classes


FILES_10 = CifarFiles(
    folder="cifar-10-batches-bin",
    python_folder="cifar-10-batches-py",
    train=tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
    test="test_batch.bin",
    label_bytes=1,
)
FILES_100 = CifarFiles(
    folder="cifar-100-binary",
    python_folder="cifar-100-python",
    train=("train.bin",),
    test="test.bin",
    label_bytes=2,
)
# In the order of the labels.
CLASS_NAMES_10 = "airplane automobile bird cat deer dog frog horse ship truck"
CLASS_NAMES_100 = """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
    castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
    elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard
    lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear
    pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark
    shrew skunk skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone
    television tiger tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""


def _record(n_classes: int, files: CifarFiles, class_names: str) -> NamedDataset:
    name = f"cifar{n_classes}"
    return NamedDataset(
        name=name,
        title=f"CIFAR-{n_classes}",
        kind="images",
        summary=f"60,000 images of 32 x 32 pixels, {n_classes} classes",
        n_train=50_000,
        n_classes=n_classes,
        marker_files=(f"{name}.npz", files.test, files.folder, files.python_folder),
        load=partial(load_cifar, name, files, class_names),
        recipe=RECIPE,
    )


DATASETS = [_record(10, FILES_10, CLASS_NAMES_10), _record(100, FILES_100, CLASS_NAMES_100)]
