"""Images and random numbers for the tests of image augmentations."""

import numpy as np
import torch

N = 24
SHAPES = [(32, 32), (40, 48), (17, 9)]


def images(height=32, width=32, n=N, seed=0):
    return torch.rand(n, 3, height, width, generator=torch.Generator().manual_seed(seed))


def random_boxes(crop, x):
    """Random boxes, one for each image."""
    return crop.boxes(torch.rand(len(x), crop.n_draws), *x.shape[-2:])


def uniform(low, high, n=N, seed=1):
    return low + (high - low) * torch.rand(n, generator=torch.Generator().manual_seed(seed))


def byte_images(n=16, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, 3, 32, 32), dtype=np.uint8)
