"""Views of images: each augmentation against torchvision's for the same parameters, and draws as asked, per sample."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

import imix
from imix import InputError, Reading, Settings
from imix.augment.image import (
    ColourJitter,
    GaussianBlur,
    Greyscale,
    PadCrop,
    RandomResizedCrop,
    blur,
    cifar,
    grey,
    imagenet,
    jitter,
    resized_crop,
    turned,
)
from imix.data import load
from imix.data.cifar import CLASSES
from imix.data.standardise import Standardise
from imix.train.views import make_augment

N = 24
SHAPES = [(32, 32), (40, 48), (17, 9)]


def images(height=32, width=32, n=N, seed=0):
    return torch.rand(n, 3, height, width, generator=torch.Generator().manual_seed(seed))


def boxes_of(crop, x):
    """Boxes as they are drawn for images."""
    return crop.boxes(torch.rand(len(x), crop.draws), *x.shape[-2:])


def uniform(low, high, n=N, seed=1):
    return low + (high - low) * torch.rand(n, generator=torch.Generator().manual_seed(seed))


# --- against torchvision ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [(32, 32), (8, 50)])
def test_resized_crops_are_torchvisions(shape, size):
    x = images(*shape)
    boxes = boxes_of(RandomResizedCrop(32), x)
    expected = [
        F.resized_crop(image, *(int(value[i]) for value in boxes), list(size), antialias=True)
        for i, image in enumerate(x)
    ]
    assert_close(resized_crop(x, *boxes, size), torch.stack(expected), atol=1e-5, rtol=0)


def test_mirrored_crops_are_flipped():
    x = images()
    boxes = boxes_of(RandomResizedCrop(32), x)
    mirrored = torch.arange(N) % 2 == 0
    straight, some = resized_crop(x, *boxes, (32, 32)), resized_crop(x, *boxes, (32, 32), mirrored)
    assert_close(some[mirrored], straight[mirrored].flip(3))
    assert torch.equal(some[~mirrored], straight[~mirrored])


@pytest.mark.parametrize("shape", SHAPES)
def test_colour_jitter_is_torchvisions_in_every_order(shape):
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


@pytest.mark.parametrize("by", [-0.5, -0.1, 0.0, 0.3, 0.5])
def test_hue_is_torchvisions_also_for_grey_and_pure_colours(by):
    pure = torch.tensor(
        [[0.0, 0, 0], [1, 1, 1], [0.5, 0.5, 0.5], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0.2, 0.7, 0.7]]
    )
    x = pure.view(8, 3, 1, 1).expand(8, 3, 4, 4)
    expected = torch.stack([F.adjust_hue(image, by) for image in x])
    assert_close(turned(x, torch.full((8,), by)), expected, atol=1e-5, rtol=0)


def test_greyscale_is_torchvisions():
    assert_close(grey(images()), F.rgb_to_grayscale(images()))


@pytest.mark.parametrize(("rows", "columns"), [(3, 3), (5, 7), (23, 1)])
def test_blur_is_torchvisions(rows, columns):
    x, sigma = images(40, 48), uniform(0.1, 2.0)
    expected = [F.gaussian_blur(image, [columns, rows], [float(sigma[i])] * 2) for i, image in enumerate(x)]
    assert_close(blur(x, sigma, rows, columns), torch.stack(expected), atol=1e-5, rtol=0)


def test_pad_crops_are_shifts_of_the_padded_image():
    x = images(12, 10, n=200)
    padded = torch.nn.functional.pad(x, (4, 4, 4, 4))
    seen = set()
    for i, view in enumerate(PadCrop(4, flip=0)(x)):
        found = [
            (top, left)
            for top in range(9)
            for left in range(9)
            if torch.allclose(view, padded[i, :, top : top + 12, left : left + 10], atol=1e-6)
        ]
        assert len(found) == 1
        seen.add(found[0])
    assert {top for top, _ in seen} == set(range(9)) == {left for _, left in seen}


# --- draws -----------------------------------------------------------------------------------------------------------


def test_boxes_are_distributed_as_torchvisions():
    x = images(32, 48, n=1).expand(4000, 3, 32, 48)
    torch.manual_seed(0)
    ours = torch.stack(boxes_of(RandomResizedCrop(32), x), 1)
    crop = v2.RandomResizedCrop(32, (0.2, 1.0))
    drawn = [crop.make_params([x[0]]) for _ in range(4000)]
    theirs = torch.tensor([[p["top"], p["left"], p["height"], p["width"]] for p in drawn]).float()
    for a, b in zip(ours.unbind(1), theirs.unbind(1), strict=True):
        assert abs(a.mean() - b.mean()) < 4 * math.sqrt((a.var() + b.var()) / 4000)
        assert abs(a.std() - b.std()) < 0.05 * b.std() + 0.05
    top, left, height, width = ours.unbind(1)
    assert (top >= 0).all() and (left >= 0).all() and (top + height <= 32).all() and (left + width <= 48).all()


def test_a_box_that_never_fits_is_the_central_one():
    x = images(10, 100, n=5)
    top, left, height, width = boxes_of(RandomResizedCrop(8, scale=(5.0, 5.0)), x)
    assert [t.unique().tolist() for t in (top, left, height, width)] == [[0], [43], [10], [13]]


@pytest.mark.parametrize(
    ("augment", "share"),
    [
        (RandomResizedCrop(32, scale=(1.0, 1.0), ratio=(1.0, 1.0), flip=0.3), 0.3),
        (ColourJitter(p=0.8), 0.8),
        (Greyscale(0.2), 0.2),
        (GaussianBlur((1.0, 2.0), p=0.5), 0.5),
    ],
)
def test_each_happens_with_its_probability_to_each_sample_apart(augment, share):
    x = images(32, 32, n=1).expand(1500, 3, 32, 32)
    torch.manual_seed(0)
    changed = (augment(x) - x).abs().amax((1, 2, 3)) > 1e-4
    assert changed.float().mean().item() == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / 1500))


@pytest.mark.parametrize("views", [cifar(32), imagenet(32), PadCrop()])
def test_every_sample_has_a_draw_of_its_own(views):
    x = images(n=1).expand(64, 3, 32, 32)
    torch.manual_seed(0)
    one, other = views(x), views(x)
    assert len(one.flatten(1).unique(dim=0)) > 48
    assert (one != other).flatten(1).any(1).float().mean() > 0.9


def test_jitter_draws_its_factors_and_its_order_per_sample():
    x = images(n=1).expand(512, 3, 32, 32)
    torch.manual_seed(0)
    ratio = ColourJitter(0.4, 0, 0, 0, p=1)(x * 0.5).mean((1, 2, 3)) / (x * 0.5).mean((1, 2, 3))
    assert ratio.min() > 0.6 - 1e-4 and ratio.max() < 1.4 + 1e-4
    assert ratio.min() < 0.63 and ratio.max() > 1.37 and ratio.mean().sub(1).abs() < 0.04


def test_views_stay_within_colours_and_keep_their_layout():
    x = images(48, 40).contiguous(memory_format=torch.channels_last)
    for views in (cifar(32), imagenet((24, 32))):
        seen = views(x)
        assert seen.min() >= -1e-5 and seen.max() <= 1 + 1e-5
        assert seen.dtype == torch.float32


@pytest.mark.parametrize("views", [cifar(16), imagenet(16), PadCrop(2)])
def test_views_compile_into_one_graph(views):
    x = images(16, 16, n=4)
    compiled = torch.compile(views, backend="eager", fullgraph=True)
    made = []
    for make in (views, compiled):
        torch.manual_seed(3)
        made.append(make(x))
    assert torch.equal(*made)


# --- images as data --------------------------------------------------------------------------------------------------

QUICK = Settings(epochs=2, batch_size=8, device="cpu")


def bytes_of_images(n=16, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, 3, 32, 32), dtype=np.uint8)


def test_images_stay_bytes_until_they_are_used():
    x = bytes_of_images()
    data = load(x)
    assert data.train.inputs.dtype == torch.uint8
    from_bytes = imix.pretrain(x, QUICK, progress=False)
    from_floats = imix.pretrain(x.astype(np.float32) / 255, QUICK, progress=False)
    for a, b in zip(from_bytes.encoder.parameters(), from_floats.encoder.parameters(), strict=True):
        assert_close(a, b, rtol=1e-3, atol=1e-4)
    assert_close(from_bytes.encoder(torch.from_numpy(x)), from_bytes.encoder(torch.from_numpy(x) / 255))
    assert imix.embed(from_bytes, x).shape == (16, 128)


def test_bytes_are_standardised_by_their_true_mean_and_deviation():
    x = torch.from_numpy(bytes_of_images(50)) // 3
    found = Standardise(3).fit(x)
    floats = (x / 255).double().transpose(0, 1).flatten(1)
    assert_close(found.mean.double(), floats.mean(1), rtol=1e-5, atol=0)
    assert_close(found.deviation.double(), floats.std(1, unbiased=False), rtol=1e-5, atol=0)


def test_images_are_augmented_as_colours_and_standardised_after():
    seen = []

    def spy(batch):
        seen.append((batch.min().item(), batch.max().item()))
        return batch

    class Encoder(torch.nn.Module):
        width = 3

        def forward(self, x):
            if self.training:
                seen.append(x.mean().item())
            return x.mean((2, 3))

    settings = Settings(epochs=1, batch_size=16, device="cpu", mix="none", head="linear", lr=1e-6)
    imix.pretrain(bytes_of_images(), settings, encoder=Encoder(), augment=spy, progress=False)
    assert seen[0][0] >= 0 and seen[0][1] <= 1
    assert abs(seen[2]) < 0.01  # both views, standardised


def test_views_are_those_asked_for_or_the_data_sets_own(tmp_path, capsys):
    np.savez(tmp_path / "cifar10.npz", x=bytes_of_images(), y=np.arange(16) % 2)
    named, plain = load("cifar10", Reading(data_dir=str(tmp_path))), load(bytes_of_images())
    words = "crop 0.2 to 1, flip 0.5, colour jitter 0.8, greyscale 0.2"
    assert ", ".join(map(str, make_augment(Settings(), named))) == words
    assert ", ".join(map(str, make_augment(Settings(augment="imagenet"), plain))) == words + ", blur 0.5"
    imix.pretrain("cifar10", QUICK, Reading(data_dir=str(tmp_path)))
    assert f"views by {words}, effective" in capsys.readouterr().err
    imix.pretrain(bytes_of_images(), QUICK)
    assert "no views but the samples themselves, effective" in capsys.readouterr().err
    for settings, data in ((Settings(augment="none"), named), (Settings(), plain)):
        assert make_augment(settings, data)(data.train.inputs) is data.train.inputs
    with pytest.raises(InputError, match=r"augment='cifar' is for colour images \(3, H, W\); digits has samples of"):
        make_augment(Settings(augment="cifar"), load("digits"))


@pytest.mark.parametrize(("name", "labels"), [("cifar10", 1), ("cifar100", 2)])
def test_binary_files_of_cifar_are_read(tmp_path, name, labels):
    x, y = bytes_of_images(20), np.arange(20, dtype=np.uint8) % 10
    head = np.stack([y] if labels == 1 else [y + 50, y], 1)
    records = np.concatenate([head, x.reshape(20, -1)], 1)
    folder = tmp_path / {"cifar10": "cifar-10-batches-bin", "cifar100": "cifar-100-binary"}[name]
    folder.mkdir()
    if name == "cifar10":
        for number in range(5):
            records[4 * number : 4 * number + 4].tofile(folder / f"data_batch_{number + 1}.bin")
        records[:10].tofile(folder / "test_batch.bin")
    else:
        records.tofile(folder / "train.bin")
        records[:10].tofile(folder / "test.bin")
    data = load(name, Reading(data_dir=str(tmp_path)))
    assert torch.equal(data.train.inputs, torch.from_numpy(x))
    assert (data.train.labels.tolist(), len(data.test)) == (y.tolist(), 10)
    assert data.class_names[6] == ("frog" if name == "cifar10" else "6")  # of its hundred classes ten are there


def test_classes_of_cifar_have_their_names_in_the_order_of_the_alphabet():
    assert {name: len(words.split()) for name, words in CLASSES.items()} == {"cifar10": 10, "cifar100": 100}
    assert all(words.split() == sorted(words.split()) for words in CLASSES.values())


def test_files_of_cifar_that_are_missing_or_cut_short_are_named(tmp_path):
    with pytest.raises(InputError, match=r"there is no cifar10\.npz and none of its files in .*--data-dir"):
        load("cifar10", Reading(data_dir=str(tmp_path)))
    (tmp_path / "test.bin").write_bytes(b"short")
    with pytest.raises(InputError, match=r"train\.bin' is not there or not whole"):
        load("cifar100", Reading(data_dir=str(tmp_path)))


def test_every_method_trains_on_augmented_images_and_resumes(tmp_path):
    np.savez(
        tmp_path / "cifar10.npz",
        x=bytes_of_images(24),
        y=np.arange(24) % 2,
        x_test=bytes_of_images(8, 1),
        y_test=[0, 1] * 4,
    )
    reading = Reading(data_dir=str(tmp_path))
    for method in ("npair", "moco", "byol", "supclr"):
        settings = Settings(method=method, mix="cutmix", input_mix=2, epochs=2, batch_size=8, queue=16, device="cpu")
        run = imix.pretrain("cifar10", settings, reading, out=tmp_path / method, progress=False)
        assert imix.evaluate(tmp_path / method, protocol="knn").constants["test"] == 8
        again = imix.pretrain("cifar10", settings, reading, out=tmp_path / method, resume=True, progress=False)
        for a, b in zip(run.encoder.parameters(), again.encoder.parameters(), strict=True):
            assert torch.equal(a, b)


def test_views_are_made_in_full_precision_under_autocast():
    seen = []
    settings = Settings(epochs=1, batch_size=4, precision="bf16", device="cpu")

    def augment(x):
        seen.append((torch.ones(2, 2) @ torch.ones(2, 2)).dtype)
        return x

    with torch.autocast("cpu", torch.bfloat16):  # of a caller's own
        imix.pretrain(torch.rand(4, 3, 8, 8), settings, augment=augment, progress=False)
    assert seen == [torch.float32] * 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_views_keep_the_precision_of_the_images(dtype):
    x = images(16, 16, n=4).to(dtype)
    for view in (RandomResizedCrop(8), PadCrop(), GaussianBlur(p=1)):
        assert view(x).dtype == dtype


def test_a_kernel_wider_than_the_image_reaches_to_its_ends():
    assert blur(images(3, 2, n=2), torch.tensor([1.0, 2.0]), 9, 9).shape == (2, 3, 3, 2)


@pytest.mark.parametrize("x", [torch.randn(8, 3, 8, 8), 255 * torch.rand(8, 3, 8, 8)])
def test_views_of_what_is_no_colour_are_refused(x):
    with pytest.raises(InputError, match=r"is for colours in 0\.\.1, or bytes; given goes from"):
        make_augment(Settings(augment="cifar"), load(x))


def test_channels_last_in_shape_is_refused():
    with pytest.raises(InputError, match=r"images are \(N, C, H, W\), with channels first"):
        load(np.zeros((5, 32, 32, 3), np.uint8))


def test_low_contrast_is_not_taken_for_collapse():
    x = (0.5 + 0.0005 * torch.randn(64, 3, 8, 8, generator=torch.Generator().manual_seed(0))).clamp(0, 1)
    imix.pretrain(x, Settings(epochs=20, batch_size=16, lr=0.01, device="cpu"), progress=False)


def test_neighbours_of_a_supervised_method_need_test_samples():
    settings = Settings(method="supervised", knn_every=1, epochs=1, batch_size=8, device="cpu")
    with pytest.raises(InputError, match="knn_every with method 'supervised' needs test samples"):
        imix.pretrain(bytes_of_images(), settings, labels=np.arange(16) % 2, progress=False)


@pytest.mark.parametrize("given", [{"image_size": 32.5}, {"image_size": "32"}, {"fraction": "0.5"}, {"image_size": 0}])
def test_readings_that_cannot_be_are_refused_by_name(given):
    with pytest.raises(InputError, match=next(iter(given))):
        Reading(**given)
