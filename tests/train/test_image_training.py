"""Images from bytes to a trained encoder: dtypes, augmentation, standardization, precision."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import imix
from imix import DataSettings, InputError, Settings
from imix.augment.per_sample import CALLS  # of the augmentation, before training
from imix.data import load
from imix.train.views import build_augment
from tests.augment.helpers import byte_images

QUICK = Settings(epochs=2, batch_size=8, device="cpu")


def test_training_on_bytes_equals_training_on_floats():
    x = byte_images()
    data = load(x)
    assert data.train.inputs.dtype == torch.uint8
    from_bytes = imix.pretrain(x, QUICK, progress=False)
    from_floats = imix.pretrain(x.astype(np.float32) / 255, QUICK, progress=False)
    for a, b in zip(from_bytes.encoder.parameters(), from_floats.encoder.parameters(), strict=True):
        assert_close(a, b, rtol=1e-3, atol=1e-4)
    assert_close(from_bytes.encoder(torch.from_numpy(x)), from_bytes.encoder(torch.from_numpy(x) / 255))
    assert imix.embed(from_bytes, x).shape == (16, 128)


def test_images_are_standardized_after_augmentation():
    ranges, means = [], []

    def record_range(batch):
        ranges.append((batch.min().item(), batch.max().item()))
        return batch

    class Encoder(torch.nn.Module):
        width = 3

        def forward(self, x):
            if self.training:
                means.append(x.mean().item())
            return x.mean((2, 3))

    settings = Settings(epochs=1, batch_size=16, device="cpu", mix="none", head="linear", lr=1e-6)
    imix.pretrain(byte_images(), settings, encoder=Encoder(), augment=record_range, progress=False)
    assert ranges[0][0] >= 0 and ranges[0][1] <= 1
    assert abs(means[0]) < 0.01


def test_augmentation_comes_from_the_settings_or_the_data_set(tmp_path, capsys):
    np.savez(tmp_path / "cifar10.npz", x=byte_images(), y=np.arange(16) % 2)
    named, plain = load("cifar10", DataSettings(data_dir=str(tmp_path))), load(byte_images())
    description = "crop 0.2 to 1, flip 0.5, color jitter 0.8, grayscale 0.2"
    assert ", ".join(map(str, build_augment(Settings(), named))) == description
    assert ", ".join(map(str, build_augment(Settings(augment="imagenet"), plain))) == description + ", blur 0.5"
    imix.pretrain("cifar10", QUICK, DataSettings(data_dir=str(tmp_path)))
    assert f"augmentation: {description}, " in capsys.readouterr().err
    imix.pretrain(byte_images(), QUICK)
    assert "no augmentation, " in capsys.readouterr().err
    for settings, data in ((Settings(augment="none"), named), (Settings(), plain)):
        assert build_augment(settings, data)(data.train.inputs) is data.train.inputs
    with pytest.raises(InputError, match=r"`augment='cifar'` is for images \(C, H, W\); in-memory data has samples of"):
        build_augment(Settings(augment="cifar"), load(np.ones((4, 3))))


@pytest.mark.parametrize("channels", [1, 2, 5])
def test_images_without_three_channels_are_cropped_and_blurred_but_keep_their_colors(channels):
    data = load(np.random.default_rng(0).normal(size=(4, channels, 16, 16)))  # not limited to 0..1
    view = build_augment(Settings(augment="imagenet"), data)
    assert ", ".join(map(str, view)) == "crop 0.2 to 1, flip 0.5, blur 0.5"
    flat = torch.arange(channels).view(1, channels, 1, 1).expand(4, channels, 16, 16) + 0.5
    torch.testing.assert_close(view(flat), flat)


@pytest.mark.slow
def test_every_method_trains_on_augmented_images_and_resumes(tmp_path):
    np.savez(
        tmp_path / "cifar10.npz",
        x=byte_images(24),
        y=np.arange(24) % 2,
        x_test=byte_images(8, 1),
        y_test=[0, 1] * 4,
    )
    data_settings = DataSettings(data_dir=str(tmp_path))
    for method in ("npair", "moco", "byol", "supclr"):
        settings = Settings(method=method, mix="cutmix", input_mix=2, epochs=2, batch_size=8, queue=16, device="cpu")
        run = imix.pretrain("cifar10", settings, data_settings, out=tmp_path / method, progress=False)
        assert imix.evaluate(tmp_path / method, protocol="knn").split.test == 8
        again = imix.pretrain("cifar10", settings, data_settings, out=tmp_path / method, resume=True, progress=False)
        for a, b in zip(run.encoder.parameters(), again.encoder.parameters(), strict=True):
            assert torch.equal(a, b)


def test_augmentation_runs_in_full_precision_under_autocast():
    dtypes = []
    settings = Settings(epochs=1, batch_size=4, precision="bf16", device="cpu")

    def augment(x):
        dtypes.append((torch.ones(2, 2) @ torch.ones(2, 2)).dtype)
        return x

    with torch.autocast("cpu", torch.bfloat16):  # set by the caller
        imix.pretrain(torch.rand(4, 3, 8, 8), settings, augment=augment, progress=False)
    assert dtypes == [torch.float32] * (CALLS + 2)


@pytest.mark.parametrize("x", [torch.randn(8, 3, 8, 8), 255 * torch.rand(8, 3, 8, 8)])
def test_image_augmentation_rejects_floats_outside_0_to_1(x):
    with pytest.raises(InputError, match=r"`augment='cifar'` needs uint8 or floats in \[0, 1\]; .* has values from"):
        build_augment(Settings(augment="cifar"), load(x))


def test_images_with_channels_last_are_rejected():
    with pytest.raises(InputError, match=r"images must be channels-first, \(N, C, H, W\)"):
        load(np.zeros((5, 32, 32, 3), np.uint8))


@pytest.mark.slow
def test_low_contrast_images_are_not_reported_as_collapse():
    x = (0.5 + 0.0005 * torch.randn(64, 3, 8, 8, generator=torch.Generator().manual_seed(0))).clamp(0, 1)
    imix.pretrain(x, Settings(epochs=20, batch_size=16, lr=0.01, device="cpu"), progress=False)


def test_knn_probe_of_a_supervised_method_needs_a_test_set():
    settings = Settings(method="supervised", knn_every=1, epochs=1, batch_size=8, device="cpu")
    with pytest.raises(InputError, match="`knn_every` with method 'supervised' needs a test set"):
        imix.pretrain(byte_images(), settings, labels=np.arange(16) % 2, progress=False)


@pytest.mark.parametrize("option", [{"image_size": 32.5}, {"image_size": "32"}, {"fraction": "0.5"}, {"image_size": 0}])
def test_invalid_data_settings_are_rejected_by_name(option):
    with pytest.raises(InputError, match=next(iter(option))):
        DataSettings(**option)
