"""Transforms of one sample as augmentations, and the check that an augmentation draws for each sample."""

import random

import numpy as np
import pytest
import torch
from torchvision.transforms import v2

import imix
from imix.augment.per_sample import draws_once_per_batch

GENERATOR = np.random.default_rng(0)
IMAGES = torch.rand(8, 3, 16, 16, generator=torch.Generator().manual_seed(0))
DRAWS_ONCE = {
    "crop": v2.RandomResizedCrop(16),
    "flip": v2.RandomHorizontalFlip(),
    "rare flip": v2.RandomHorizontalFlip(0.2),
    "color": v2.ColorJitter(0.4, 0.4, 0.4, 0.1),
    "compose": v2.Compose([v2.RandomHorizontalFlip(), v2.RandomCrop(16, padding=2)]),
    "torch": lambda x: x * torch.rand(()),
    "in place": lambda x: x.mul_(torch.rand(())),
    "Python": lambda x: x * random.random(),
    "NumPy": lambda x: x * float(np.random.rand()),  # noqa: NPY002
    "NumPy generator": lambda x: x * float(GENERATOR.random()),
    "dict": lambda fields: {"a": fields["a"] * torch.rand(()), "b": fields["b"]},
}
ACCEPTED = {
    "noise": lambda x: x + torch.randn_like(x),
    "one factor per sample": lambda x: x * torch.rand(len(x), 1, 1, 1),
    "flip some": lambda x: torch.where(torch.rand(len(x), 1, 1, 1) < 0.1, x.flip(-1), x),
    "other samples": lambda x: (x + x[torch.randperm(len(x))]) / 2,
    "crop, size per batch": lambda x: x[..., : torch.randint(4, 16, ()).item()],
    "gray": v2.Grayscale(3),
    "nothing": lambda x: x,
}


def batch_for(name):
    return {"a": IMAGES, "b": torch.ones(8, 2)} if name == "dict" else IMAGES.clone()


@pytest.mark.parametrize("name", DRAWS_ONCE)
def test_draws_once_per_batch_and_per_sample_fixes_it(name):
    assert draws_once_per_batch(DRAWS_ONCE[name], batch_for(name))
    assert not draws_once_per_batch(imix.per_sample(DRAWS_ONCE[name]), batch_for(name))


@pytest.mark.parametrize("name", ACCEPTED)
def test_augmentations_that_draw_per_sample_or_not_at_all_are_accepted(name):
    assert not draws_once_per_batch(ACCEPTED[name], IMAGES)


@pytest.mark.parametrize(
    ("name", "vectorized"), [("torch", True), ("dict", True), ("in place", True), ("crop", False), ("NumPy", False)]
)
def test_views_are_vectorized_if_torch_can(name, vectorized):
    augment = imix.per_sample(DRAWS_ONCE[name])
    augment(batch_for(name))
    assert augment.can_vectorize is vectorized


def test_deterministic_transforms_give_the_same_views_as_without_per_sample():
    blur = v2.GaussianBlur(3, sigma=1.0)
    torch.testing.assert_close(imix.per_sample(blur)(IMAGES), blur(IMAGES))


def test_a_loop_draws_as_calling_the_transform_for_each_sample():
    crop = DRAWS_ONCE["crop"]
    torch.manual_seed(0)
    expected = torch.stack([crop(image) for image in IMAGES])
    torch.manual_seed(0)
    assert torch.equal(imix.per_sample(crop)(IMAGES), expected)


def test_an_error_of_the_transform_is_raised():
    def fail(x):
        raise KeyError("missing")

    with pytest.raises(KeyError, match="missing"):
        imix.per_sample(fail)(IMAGES)


def test_random_states_are_restored():
    def states():
        return torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002

    before = states()
    for name, transform in DRAWS_ONCE.items():
        draws_once_per_batch(transform, batch_for(name))
    assert states() == before


@pytest.mark.slow
def test_per_sample_can_be_compiled():
    augment = torch.compile(imix.per_sample(DRAWS_ONCE["torch"]), backend="eager")
    factors = augment(torch.ones(4, 3))[:, 0]
    assert len(factors.unique()) == 4
