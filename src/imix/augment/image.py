"""Random augmentations of images, batched on the device, with independent draws for every sample.

Images are (N, C, H, W), floats in [0, 1]. On a GPU, the paper's augmentation of small images runs as one kernel.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from imix.augment.image_ops import blur, jitter, per_sample, resized_crop, to_gray
from imix.errors import InputError
from imix.runtime import kernels
from imix.settings import SMALL_IMAGE_SIZE

MAX_KERNEL_SIDE = 64  # largest image side, in pixels, that the kernel can hold


class RandomView(nn.Module, ABC):
    """Base class of random augmentations, each a deterministic function of uniform random numbers.

    A subclass sets `n_draws`, the number of uniforms per sample, and implements `transform`.
    """

    n_draws: int

    def forward(self, x: Tensor) -> Tensor:
        """Return a random view of each image."""
        return self.transform(x, torch.rand(len(x), self.n_draws, device=x.device))

    @abstractmethod
    def transform(self, x: Tensor, uniforms: Tensor) -> Tensor:
        """Return the views that the uniforms (N, n_draws), each in [0, 1), determine."""


class RandomResizedCrop(RandomView):
    """Crop a random box, resize it with antialiasing, and flip it horizontally at random.

    A box is drawn up to ten times per sample until it fits into the image; if none fits, the largest central box with
    an allowed aspect ratio is used.

    Parameters
    ----------
    size : int or (int, int)
        Height and width of the views.
    scale : (float, float)
        Range of the box's area, as a fraction of the image's area.
    ratio : (float, float)
        Range of the box's aspect ratio (width / height), drawn log-uniformly.
    flip : float
        Probability of a horizontal flip.

    Examples
    --------
    >>> imix.augment.image.RandomResizedCrop(32)(torch.rand(8, 3, 40, 48)).shape
    torch.Size([8, 3, 32, 32])
    """

    n_draws = 23  # 0-9: areas, 10-19: ratios, 20-21: position, 22: flip

    def __init__(
        self,
        size: int | tuple[int, int],
        scale: tuple[float, float] = (0.2, 1.0),
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
        flip: float = 0.5,
    ) -> None:
        super().__init__()
        self.size = (size, size) if isinstance(size, int) else size
        self.scale, self.ratio, self.flip = scale, ratio, flip

    def __repr__(self) -> str:
        return f"crop {self.scale[0]:g} to {self.scale[1]:g}, flip {self.flip:g}"

    def transform(self, x: Tensor, uniforms: Tensor) -> Tensor:
        """Return crops of size `size`."""
        return resized_crop(x, *self.boxes(uniforms, *x.shape[-2:]), self.size, uniforms[:, 22] < self.flip)

    def boxes(self, uniforms: Tensor, rows: int, columns: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return top, left, height and width of each sample's box, (N,) each, in whole pixels."""
        area = rows * columns * _to_range(*self.scale, uniforms[:, :10])
        ratio = _to_range(math.log(self.ratio[0]), math.log(self.ratio[1]), uniforms[:, 10:20]).exp()
        width, height = (area * ratio).sqrt().round(), (area / ratio).sqrt().round()  # (N, 10) each
        fits = (width > 0) & (width <= columns) & (height > 0) & (height <= rows)
        first, any_fits = fits.int().argmax(1, keepdim=True), fits.any(1)
        central_height, central_width = self.central_box(rows, columns)
        height = torch.where(any_fits, height.gather(1, first)[:, 0], central_height)
        width = torch.where(any_fits, width.gather(1, first)[:, 0], central_width)
        position = torch.where(any_fits[:, None], uniforms[:, 20:22], 0.5)
        top = (position[:, 0] * (rows - height + any_fits.float())).floor()
        left = (position[:, 1] * (columns - width + any_fits.float())).floor()
        return top, left, height, width

    def central_box(self, rows: int, columns: int) -> tuple[int, int]:
        """Return height and width of the largest box with an allowed aspect ratio."""
        ratio = min(max(columns / rows, self.ratio[0]), self.ratio[1])
        return min(rows, round(columns / ratio)), min(columns, round(rows * ratio))


class PadCrop(RandomView):
    """Shift the image by up to `padding` pixels in each direction, fill with zeros, and flip it at random.

    Parameters
    ----------
    padding : int
        Largest shift, in pixels.
    flip : float
        Probability of a horizontal flip.

    Examples
    --------
    >>> imix.augment.image.PadCrop(4)(torch.rand(8, 3, 32, 32)).shape
    torch.Size([8, 3, 32, 32])
    """

    n_draws = 3  # vertical shift, horizontal shift, flip

    def __init__(self, padding: int = 4, flip: float = 0.5) -> None:
        super().__init__()
        self.padding, self.flip = padding, flip

    def __repr__(self) -> str:
        return f"shift {self.padding}, flip {self.flip:g}"

    def transform(self, x: Tensor, uniforms: Tensor) -> Tensor:
        """Return shifted images of the same size."""
        size = tuple(x.shape[-2:])
        shift = (uniforms * (2 * self.padding + 1)).floor() - self.padding
        sides = torch.tensor(size, device=x.device, dtype=torch.float32).expand(len(x), 2)
        return resized_crop(x, shift[:, 0], shift[:, 1], sides[:, 0], sides[:, 1], size, uniforms[:, 2] < self.flip)


class ColorJitter(RandomView):
    """Change brightness, contrast, saturation and hue of color images, in an order drawn per sample.

    Parameters
    ----------
    brightness, contrast, saturation : float
        The factor is drawn from 1 - value to 1 + value.
    hue : float
        The shift is drawn from -hue to hue, as a fraction of the color circle.
    p : float
        Probability that a sample is changed.

    Examples
    --------
    >>> imix.augment.image.ColorJitter()(torch.rand(8, 3, 32, 32)).shape
    torch.Size([8, 3, 32, 32])
    """

    n_draws = 9  # 0-3: factors, 4-7: order, 8: whether to apply

    def __init__(
        self, brightness: float = 0.4, contrast: float = 0.4, saturation: float = 0.4, hue: float = 0.1, p: float = 0.8
    ) -> None:
        super().__init__()
        self.strengths, self.hue, self.p = (brightness, contrast, saturation), hue, p

    def __repr__(self) -> str:
        return f"color jitter {self.p:g}"

    def transform(self, x: Tensor, uniforms: Tensor) -> Tensor:
        """Return color images (N, 3, H, W) with changed colors."""
        offsets = uniforms[:, :4].T * 2 - 1  # (4, N), in -1..1
        factors = [1 + strength * offsets[i] for i, strength in enumerate(self.strengths)]
        jittered = jitter(x, factors[0], factors[1], factors[2], self.hue * offsets[3], uniforms[:, 4:8].argsort(1))
        return torch.where(per_sample(uniforms[:, 8] < self.p), jittered, x)


class Grayscale(RandomView):
    """Remove the color of an image with probability `p`.

    Parameters
    ----------
    p : float
        Probability that a sample is changed.

    Examples
    --------
    >>> imix.augment.image.Grayscale(0.2)(torch.rand(8, 3, 32, 32)).shape
    torch.Size([8, 3, 32, 32])
    """

    n_draws = 1  # whether to apply

    def __init__(self, p: float = 0.2) -> None:
        super().__init__()
        self.p = p

    def __repr__(self) -> str:
        return f"grayscale {self.p:g}"

    def transform(self, x: Tensor, uniforms: Tensor) -> Tensor:
        """Return color images (N, 3, H, W), some of them gray."""
        return torch.where(per_sample(uniforms[:, 0] < self.p), to_gray(x).expand_as(x), x)


class GaussianBlur(RandomView):
    """Blur an image with probability `p`; the kernel size is a tenth of the image size.

    Parameters
    ----------
    sigma : (float, float)
        Range of the Gaussian's standard deviation, in pixels.
    p : float
        Probability that a sample is changed.

    Examples
    --------
    >>> imix.augment.image.GaussianBlur()(torch.rand(8, 3, 32, 32)).shape
    torch.Size([8, 3, 32, 32])
    """

    n_draws = 2  # sigma, whether to apply

    def __init__(self, sigma: tuple[float, float] = (0.1, 2.0), p: float = 0.5) -> None:
        super().__init__()
        self.sigma, self.p = sigma, p

    def __repr__(self) -> str:
        return f"blur {self.p:g}"

    def transform(self, x: Tensor, uniforms: Tensor) -> Tensor:
        """Return images, some of them blurred."""
        blurred = blur(x, _to_range(*self.sigma, uniforms[:, 0]), *(2 * (side // 20) + 1 for side in x.shape[-2:]))
        return torch.where(per_sample(uniforms[:, 1] < self.p), blurred, x)


class CropAndColorJitter(RandomView):
    """Crop, color jitter and grayscale in sequence; for small images on a GPU, in one kernel.

    Parameters
    ----------
    crop : RandomResizedCrop
    colors : ColorJitter
    grayscale : Grayscale
        The steps, in this order.
    """

    def __init__(self, crop: RandomResizedCrop, colors: ColorJitter, grayscale: Grayscale) -> None:
        super().__init__()
        self.crop, self.colors, self.grayscale = crop, colors, grayscale
        self.n_draws = crop.n_draws + colors.n_draws + grayscale.n_draws

    def __repr__(self) -> str:
        return f"{self.crop}, {self.colors}, {self.grayscale}"

    def transform(self, x: Tensor, uniforms: Tensor) -> Tensor:
        """Return views of color images (N, 3, H, W)."""
        small = x.shape[1] == 3 and max(x.shape[-2:]) <= MAX_KERNEL_SIDE
        supported = x.dtype == torch.float32 and not x.requires_grad and not torch.compiler.is_compiling()
        if small and supported and self.has_kernel(x.device):
            from imix.augment import image_kernel

            return image_kernel.crop_and_color_jitter(x, uniforms, self.crop, self.colors, self.grayscale)
        steps = self.crop, self.colors, self.grayscale
        for step, step_uniforms in zip(steps, uniforms.split([step.n_draws for step in steps], 1), strict=True):
            x = step.transform(x, step_uniforms)
        return x

    def has_kernel(self, device: torch.device) -> bool:
        """Return whether small images on this device are augmented by one kernel."""
        return max(self.crop.size) <= MAX_KERNEL_SIDE and kernels.usable(device)


def cifar(size: int | tuple[int, int], channels: int = 3) -> nn.Sequential:
    """Build the paper's augmentation of small images: crop and flip, color jitter, grayscale.

    Parameters
    ----------
    size : int or (int, int)
        Height and width of the views.
    channels : int
        Number of channels C. Images that do not have three channels are only cropped and flipped.

    Returns
    -------
    nn.Sequential
        Maps images (N, C, H, W) to views (N, C, *size).

    Examples
    --------
    >>> imix.augment.image.cifar(32)(torch.rand(8, 3, 32, 32)).shape
    torch.Size([8, 3, 32, 32])
    """
    crop = RandomResizedCrop(size)
    return nn.Sequential(CropAndColorJitter(crop, ColorJitter(), Grayscale()) if channels == 3 else crop)


def imagenet(size: int | tuple[int, int], channels: int = 3) -> nn.Sequential:
    """Build the paper's augmentation of large images: the augmentation of small images, plus blur.

    Parameters
    ----------
    size : int or (int, int)
        Height and width of the views.
    channels : int
        Number of channels C. Images that do not have three channels are only cropped, flipped and blurred.

    Returns
    -------
    nn.Sequential
        Maps images (N, C, H, W) to views (N, C, *size).

    Examples
    --------
    >>> imix.augment.image.imagenet(48)(torch.rand(8, 3, 64, 64)).shape
    torch.Size([8, 3, 48, 48])
    """
    return nn.Sequential(*cifar(size, channels), GaussianBlur())


def _to_range(low: float, high: float, uniforms: Tensor) -> Tensor:
    return low + (high - low) * uniforms


def weak_crops(shape: Sequence[int] | None) -> nn.Module:
    """Build the augmentation with which classifiers are trained on images.

    Parameters
    ----------
    shape : sequence of int
        Shape (C, H, W) of the images.

    Returns
    -------
    nn.Module
        Shifts by up to 4 pixels and flips; for images above 64 pixels, random resized crops and flips.

    Examples
    --------
    >>> imix.augment.image.weak_crops((3, 32, 32))(torch.rand(4, 3, 32, 32)).shape
    torch.Size([4, 3, 32, 32])
    """
    if shape is None or len(shape) != 3:
        raise InputError(f"random crops are for images; got samples of shape {shape}")
    if max(shape[1:]) <= SMALL_IMAGE_SIZE:
        return PadCrop()
    return RandomResizedCrop((shape[1], shape[2]), scale=(0.08, 1.0))
