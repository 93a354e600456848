"""scikit-learn's digits: 1,797 greyscale images of 8 x 8, which come with that library."""

import numpy as np

from imix.data.arrays import Parts
from imix.settings import Reading

TEST = 500  # images held out for testing, drawn once


def read_digits(reading: Reading) -> Parts:
    """1,297 training and 500 test images, (1, 8, 8) in 0..1, ten classes."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    order = np.random.default_rng(0).permutation(len(images))
    train, test = order[:-TEST], order[-TEST:]
    return Parts(images[train], labels[train], images[test], labels[test])
