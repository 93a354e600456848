"""Code and recipe shared by CIFAR-10 and CIFAR-100: 50,000 training and 10,000 test images of 32 x 32 pixels."""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from imix.data.cache import CACHE
from imix.data.named.record import PaperRecipe
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
        splits = [dataset(data_dir or CACHE, train=train, download=data_dir is None) for train in (True, False)]
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
