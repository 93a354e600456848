"""Image operations: each against torchvision for the same parameters."""

import itertools

import pytest
import torch
from torch.testing import assert_close
from torchvision.transforms.v2 import functional as F

from imix.augment.image import RandomResizedCrop
from imix.augment.image_ops import blur, jitter, resized_crop, rotate_hue, to_gray
from tests.augment.helpers import SHAPES, N, images, random_boxes, uniform


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [(32, 32), (8, 50)])
def test_resized_crop_matches_torchvision(shape, size):
    x = images(*shape)
    boxes = random_boxes(RandomResizedCrop(32), x)
    expected = [
        F.resized_crop(image, *(int(value[i]) for value in boxes), list(size), antialias=True)
        for i, image in enumerate(x)
    ]
    no_flip = torch.zeros(len(x), dtype=torch.bool)
    assert_close(resized_crop(x, *boxes, size, no_flip), torch.stack(expected), atol=1e-5, rtol=0)


def test_selected_crops_are_flipped():
    x = images()
    boxes = random_boxes(RandomResizedCrop(32), x)
    flip = torch.arange(N) % 2 == 0
    plain, flipped = (resized_crop(x, *boxes, (32, 32), mask) for mask in (torch.zeros_like(flip), flip))
    assert_close(flipped[flip], plain[flip].flip(3))
    assert torch.equal(flipped[~flip], plain[~flip])


@pytest.mark.parametrize("shape", SHAPES)
def test_color_jitter_matches_torchvision_in_every_order(shape):
    x = images(*shape)
    b, c, s = (uniform(0.6, 1.4, seed=seed) for seed in (1, 2, 3))
    hue = uniform(-0.1, 0.1, seed=4)
    order = torch.tensor(list(itertools.permutations(range(4))))
    steps = (F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue)
    expected = []
    for i, image in enumerate(x):
        for step in order[i].tolist():
            image = steps[step](image, float((b, c, s, hue)[step][i]))
        expected.append(image)
    assert_close(jitter(x, b, c, s, hue, order), torch.stack(expected), atol=1e-5, rtol=0)


@pytest.mark.parametrize("shift", [-0.5, -0.1, 0.0, 0.3, 0.5])
def test_hue_matches_torchvision_also_for_gray_and_pure_colors(shift):
    colors = torch.tensor(
        [[0.0, 0, 0], [1, 1, 1], [0.5, 0.5, 0.5], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0.2, 0.7, 0.7]]
    )
    x = colors.view(8, 3, 1, 1).expand(8, 3, 4, 4)
    expected = torch.stack([F.adjust_hue(image, shift) for image in x])
    assert_close(rotate_hue(x, torch.full((8,), shift)), expected, atol=1e-5, rtol=0)


def test_grayscale_matches_torchvision():
    assert_close(to_gray(images()), F.rgb_to_grayscale(images()))


@pytest.mark.parametrize(("rows", "columns"), [(3, 3), (5, 7), (23, 1)])
def test_blur_matches_torchvision(rows, columns):
    x, sigma = images(40, 48), uniform(0.1, 2.0)
    expected = [F.gaussian_blur(image, [columns, rows], [float(sigma[i])] * 2) for i, image in enumerate(x)]
    assert_close(blur(x, sigma, rows, columns), torch.stack(expected), atol=1e-5, rtol=0)


def test_a_blur_kernel_may_be_wider_than_the_image():
    assert blur(images(3, 2, n=2), torch.tensor([1.0, 2.0]), 9, 9).shape == (2, 3, 3, 2)
