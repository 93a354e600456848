"""Random data in the sizes of the paper's data sets."""

import torch

from imix.data import Data, Table, TensorSource
from imix.data.tables.columns import CategoricalColumn, NumericColumn

SAMPLES, CLASSES = 2048, 10


def random_rows(count: int = SAMPLES, classes: int = CLASSES, columns: int = 54) -> Data:
    """Return labeled rows of numbers."""
    x = torch.randn(count, columns, generator=torch.Generator().manual_seed(0))
    return Data("random rows", TensorSource(x, torch.arange(count) % classes))


def random_covtype(count: int = SAMPLES) -> Data:
    """Return labeled rows with the columns of CovType: 10 numeric ones and 2 categorical ones of 4 and 40 values."""
    numeric = [NumericColumn(f"n{i}", "numeric", ("",), (0.0,), (1.0,), (0.0,), has_missing=False) for i in range(10)]
    categorical = [CategoricalColumn(f"c{size}", tuple(map(str, range(size))), numeric=False) for size in (4, 40)]
    return Data("random CovType", random_rows(count).train, table=Table((*numeric, *categorical)))


def random_images(count: int = SAMPLES, augment: str = "cifar") -> Data:
    """Return labeled images of CIFAR's size."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (count, 3, 32, 32), generator=generator, dtype=torch.uint8)
    return Data("random images", TensorSource(pixels, torch.arange(count) % CLASSES), augment=augment)
