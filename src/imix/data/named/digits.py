"""scikit-learn's digits: 1,797 grayscale images of 8 x 8 pixels, which are installed with scikit-learn."""

from typing import TYPE_CHECKING

from imix.data.named.record import NamedDataset
from imix.settings import DataSettings

if TYPE_CHECKING:
    from imix.data.arrays import RawData

N_TEST = 500  # drawn with a fixed seed


def load(data_settings: DataSettings) -> "RawData":
    """1,297 training and 500 test images of shape (1, 8, 8) with values in 0..1."""
    import numpy as np
    from sklearn.datasets import load_digits

    from imix.data.arrays import RawData

    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    order = np.random.default_rng(0).permutation(len(images))
    train, test = order[:-N_TEST], order[-N_TEST:]
    return RawData(images[train], labels[train], images[test], labels[test])


DATASETS = [
    NamedDataset(
        name="digits",
        title="Digits",
        kind="images",
        summary="1,797 images of 8 x 8 pixels, 10 classes",
        availability="installed with scikit-learn",
        n_train=1_297,
        n_classes=10,
        load=load,
    )
]
