"""Random data of the sizes that matter."""

import torch

from imix.data import Data, Table, Tensors
from imix.data.columns import Categorical, Measured

SAMPLES, CLASSES = 2048, 10


def rows(count: int = SAMPLES, classes: int = CLASSES, columns: int = 54) -> Data:
    """Rows of numbers, with labels."""
    x = torch.randn(count, columns, generator=torch.Generator().manual_seed(0))
    return Data("rows", Tensors(x, torch.arange(count) % classes))


def covtype(count: int = SAMPLES) -> Data:
    """Rows with CovType's 10 numeric and 4 + 40 categorical columns, with labels."""
    numeric = [Measured(f"n{at}", "numeric", ("",), (0.0,), (1.0,), (0.0,), gaps=False) for at in range(10)]
    flags = [Categorical(f"c{size}", tuple(map(str, range(size))), numbers=False) for size in (4, 40)]
    return Data("covtype's columns", rows(count).train, table=Table((*numeric, *flags)))


def pictures(count: int = SAMPLES, augment: str = "cifar") -> Data:
    """Pixels of CIFAR's size, with labels."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (count, 3, 32, 32), generator=generator, dtype=torch.uint8)
    return Data("pictures", Tensors(pixels, torch.arange(count) % CLASSES), augment=augment)
