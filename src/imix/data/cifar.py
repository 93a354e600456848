"""CIFAR-10 and CIFAR-100: 50,000 training and 10,000 test images of 32 x 32, as bytes."""

from pathlib import Path

import numpy as np

from imix.data.arrays import Parts, read_npz
from imix.data.cache import CACHE
from imix.errors import InputError, first_line
from imix.settings import Reading

PIXELS = 3 * 32 * 32
TRAIN = {
    "cifar10": ("cifar-10-batches-bin", [f"data_batch_{number}.bin" for number in range(1, 6)], "test_batch.bin", 1),
    "cifar100": ("cifar-100-binary", ["train.bin"], "test.bin", 2),
}
CLASSES = {  # in the order of their numbers
    "cifar10": "airplane automobile bird cat deer dog frog horse ship truck",
    "cifar100": """
        apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
        castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
        elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard
        lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear
        pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark
        shrew skunk skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone
        television tiger tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
    """,
}


def read_cifar10(reading: Reading) -> Parts:
    """Ten classes."""
    return _cifar("cifar10", reading.data_dir)


def read_cifar100(reading: Reading) -> Parts:
    """A hundred classes."""
    return _cifar("cifar100", reading.data_dir)


def _cifar(name: str, folder: str | None) -> Parts:
    """From NAME.npz or the binary files in the folder, or else through torchvision, which checks what it reads."""
    if folder is not None:
        if (path := Path(folder) / f"{name}.npz").is_file():
            return read_npz(path)
        inner, train, test, labels = TRAIN[name]
        for place in (Path(folder), Path(folder) / inner):
            if (place / test).is_file():
                return Parts(*_binary([place / file for file in train], labels), *_binary([place / test], labels))
    import torchvision  # with it comes torch's compiler, which takes as long as torch itself

    kind = torchvision.datasets.CIFAR10 if name == "cifar10" else torchvision.datasets.CIFAR100
    try:
        parts = [kind(folder or CACHE, train=train, download=folder is None) for train in (True, False)]
    except (RuntimeError, OSError) as error:
        inner = TRAIN[name][0]
        have = f"{name}.npz, {inner} or {inner.replace('bin', 'py')}"
        where = f"there is no {name}.npz and none of its files in {folder!r}" if folder else ""
        where = where or f"cannot fetch {name} ({first_line(error)})"
        raise InputError(f"{where}; give a folder that has {have} with --data-dir") from error
    (x, y), (x_test, y_test) = ((part.data.transpose(0, 3, 1, 2), np.array(part.targets)) for part in parts)
    return Parts(x, y, x_test, y_test)


def _binary(paths: list[Path], labels: int) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels of files in which each record is `labels` bytes, the last of them the class, and the pixels."""
    for path in paths:
        if not path.is_file() or not path.stat().st_size or path.stat().st_size % (labels + PIXELS):
            raise InputError(f"{str(path)!r} is not there or not whole")
    records = np.concatenate([np.fromfile(path, np.uint8).reshape(-1, labels + PIXELS) for path in paths])
    classes = records[:, labels - 1].astype(int)
    if len(classes) and classes.max() >= (10 if labels == 1 else 100):
        raise InputError(f"{str(paths[0])!r} and those beside it have a class {classes.max()}, which CIFAR has not")
    return records[:, labels:].reshape(-1, 3, 32, 32), classes
