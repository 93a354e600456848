"""Small versions of inputs and their distances, each against a plain loop."""

import numpy as np
import pytest
import torch

import imix
from imix.explore.inputs import MAX_SHIFT, SmallInputs, small_inputs
from tests.data.media.helpers import write_image


def test_vectors_have_euclidean_distances():
    inputs = SmallInputs("vector", torch.tensor([[0.0, 0], [3, 4], [0, 1]]))
    assert inputs.distances(torch.tensor([0, 0]), torch.tensor([1, 2])).tolist() == [5, 1]


def test_images_are_compared_by_correlation():
    images = torch.rand(4, 3, 5, 5)
    images[1] = 0.5 * images[0] + 0.2  # contrast and brightness do not count
    distances = SmallInputs("image", images).distances(torch.tensor([0, 2]), torch.tensor([1, 3]))
    correlation = np.corrcoef(images[2].flatten(), images[3].flatten())[0, 1]
    assert distances[0] == pytest.approx(0, abs=2e-3)
    assert distances[1] == pytest.approx(np.sqrt(2 - 2 * correlation), abs=1e-4)


def test_constant_images_are_equal_to_each_other_only():
    images = torch.stack([torch.zeros(1, 4, 4), torch.ones(1, 4, 4), torch.rand(1, 4, 4)])
    distances = SmallInputs("image", images).distances(torch.tensor([0, 0]), torch.tensor([1, 2]))
    assert distances.tolist() == pytest.approx([0, 2**0.5])


def test_recordings_are_aligned_by_a_few_frames():
    sound = torch.rand(1, 8, 40)
    shifted = sound.roll(MAX_SHIFT - 1, 2)
    far = sound.roll(MAX_SHIFT + 5, 2)
    inputs = SmallInputs("audio", torch.stack([sound, shifted, far]))
    near, other = inputs.distances(torch.tensor([0, 0]), torch.tensor([1, 2])).tolist()
    assert near < 1e-3 < 0.5 < other


def test_images_become_thumbnails_and_tables_stay_columns(tmp_path):
    for i in range(3):
        write_image(tmp_path / f"{i}.png", size=(40, 40))
    images = imix.data.load(tmp_path)
    assert small_inputs(images, [images.train]).values.shape == (3, 3, 16, 16)
    table = imix.data.load(torch.randn(6, 4))
    assert small_inputs(table, [table.train, table.train]).values.shape == (12, 4)


def test_centered_features_have_correlations_as_dot_products():
    images = torch.rand(2, 1, 6, 6)
    a, b = torch.nn.functional.normalize(SmallInputs("image", images).as_features(), dim=1)
    assert float(a @ b) == pytest.approx(np.corrcoef(*images.flatten(1))[0, 1], abs=1e-5)
