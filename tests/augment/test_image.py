"""Random image augmentations: the distributions of their draws, independence of samples, and dtypes."""

import math

import pytest
import torch
from torchvision.transforms import v2

from imix.augment.image import ColorJitter, GaussianBlur, Grayscale, PadCrop, RandomResizedCrop, cifar, imagenet
from tests.augment.helpers import images, random_boxes


def test_pad_crop_shifts_the_padded_image():
    x = images(12, 10, n=200)
    padded = torch.nn.functional.pad(x, (4, 4, 4, 4))
    shifts = set()
    for i, view in enumerate(PadCrop(4, flip=0)(x)):
        matches = [
            (top, left)
            for top in range(9)
            for left in range(9)
            if torch.allclose(view, padded[i, :, top : top + 12, left : left + 10], atol=1e-6)
        ]
        assert len(matches) == 1
        shifts.add(matches[0])
    assert {top for top, _ in shifts} == set(range(9)) == {left for _, left in shifts}


def test_boxes_have_the_distribution_of_torchvision():
    x = images(32, 48, n=1).expand(4000, 3, 32, 48)
    torch.manual_seed(0)
    ours = torch.stack(random_boxes(RandomResizedCrop(32), x), 1)
    crop = v2.RandomResizedCrop(32, (0.2, 1.0))
    params = [crop.make_params([x[0]]) for _ in range(4000)]
    theirs = torch.tensor([[p["top"], p["left"], p["height"], p["width"]] for p in params]).float()
    for a, b in zip(ours.unbind(1), theirs.unbind(1), strict=True):
        assert abs(a.mean() - b.mean()) < 4 * math.sqrt((a.var() + b.var()) / 4000)
        assert abs(a.std() - b.std()) < 0.05 * b.std() + 0.05
    top, left, height, width = ours.unbind(1)
    assert (top >= 0).all() and (left >= 0).all() and (top + height <= 32).all() and (left + width <= 48).all()


def test_the_central_box_is_used_if_no_box_fits():
    x = images(10, 100, n=5)
    top, left, height, width = random_boxes(RandomResizedCrop(8, scale=(5.0, 5.0)), x)
    assert [t.unique().tolist() for t in (top, left, height, width)] == [[0], [43], [10], [13]]


@pytest.mark.parametrize(
    ("augment", "share"),
    [
        (RandomResizedCrop(32, scale=(1.0, 1.0), ratio=(1.0, 1.0), flip=0.3), 0.3),
        (ColorJitter(p=0.8), 0.8),
        (Grayscale(0.2), 0.2),
        (GaussianBlur((1.0, 2.0), p=0.5), 0.5),
    ],
)
def test_each_augmentation_changes_a_sample_with_its_probability(augment, share):
    x = images(32, 32, n=1).expand(1500, 3, 32, 32)
    torch.manual_seed(0)
    changed = (augment(x) - x).abs().amax((1, 2, 3)) > 1e-4
    assert changed.float().mean().item() == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / 1500))


@pytest.mark.parametrize("views", [cifar(32), imagenet(32), PadCrop()])
def test_samples_are_augmented_independently(views):
    x = images(n=1).expand(64, 3, 32, 32)
    torch.manual_seed(0)
    first, second = views(x), views(x)
    assert len(first.flatten(1).unique(dim=0)) > 48
    assert (first != second).flatten(1).any(1).float().mean() > 0.9


def test_color_jitter_draws_a_factor_per_sample_from_its_range():
    x = images(n=1).expand(512, 3, 32, 32)
    torch.manual_seed(0)
    ratio = ColorJitter(0.4, 0, 0, 0, p=1)(x * 0.5).mean((1, 2, 3)) / (x * 0.5).mean((1, 2, 3))
    assert ratio.min() > 0.6 - 1e-4 and ratio.max() < 1.4 + 1e-4
    assert ratio.min() < 0.63 and ratio.max() > 1.37 and ratio.mean().sub(1).abs() < 0.04


def test_views_are_float32_in_0_to_1():
    x = images(48, 40).contiguous(memory_format=torch.channels_last)
    for views in (cifar(32), imagenet((24, 32))):
        result = views(x)
        assert result.min() >= -1e-5 and result.max() <= 1 + 1e-5
        assert result.dtype == torch.float32


@pytest.mark.slow
@pytest.mark.parametrize("views", [cifar(16), imagenet(16), PadCrop(2)])
def test_views_compile_into_one_graph(views):
    x = images(16, 16, n=4)
    compiled = torch.compile(views, backend="eager", fullgraph=True)
    results = []
    for function in (views, compiled):
        torch.manual_seed(3)
        results.append(function(x))
    assert torch.equal(*results)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_views_keep_the_dtype_of_the_images(dtype):
    x = images(16, 16, n=4).to(dtype)
    for view in (RandomResizedCrop(8), PadCrop(), GaussianBlur(p=1)):
        assert view(x).dtype == dtype
