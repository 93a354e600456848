"""Views of images, made on their device, a batch at a time, with one independent draw per sample.

Images are (N, C, H, W), floats in 0..1. Whatever moves pixels (crops, flips, blurs) is separable, so it is two matrix
products, rows and columns, with a matrix for each sample: exact, and the same on every device. Each augmentation agrees
with torchvision's for the same parameters. The paper's views of small images are one kernel on a GPU.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from imix import kernels

GREY = (0.2989, 0.587, 0.114)  # weights of red, green and blue
SMALL = 64  # pixels of a side that the kernel can hold
CONTRAST, SATURATION, HUE = 1, 2, 3  # in the order of a sample's changes of colour; 0 is brightness


class RandomView(nn.Module, ABC):
    """A view of each image, by as many uniform random numbers of its own as it `draws`."""

    draws: int

    def forward(self, x: Tensor) -> Tensor:
        """Views of a batch."""
        return self.view(x, torch.rand(len(x), self.draws, device=x.device))

    @abstractmethod
    def view(self, x: Tensor, drawn: Tensor) -> Tensor:
        """Views of a batch, by what was drawn for it, (N, draws)."""


class RandomResizedCrop(RandomView):
    """A box of random area and aspect ratio, resized to `size` with antialiasing, and mirrored with probability `flip`.

    Area in `scale` of the image's, ratio log-uniform in `ratio`; ten tries per sample to fit into the image, then the
    largest central box whose ratio is allowed.
    """

    draws = 23  # ten areas, ten ratios, the box's place, and whether it is mirrored

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

    def view(self, x: Tensor, drawn: Tensor) -> Tensor:
        """Views of a batch."""
        return resized_crop(x, *self.boxes(drawn, *x.shape[-2:]), self.size, drawn[:, 22] < self.flip)

    def boxes(self, drawn: Tensor, rows: int, columns: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Top, left, height and width of a box for each sample, (N,) each, whole numbers."""
        area = rows * columns * _between(*self.scale, drawn[:, :10])
        ratio = _between(math.log(self.ratio[0]), math.log(self.ratio[1]), drawn[:, 10:20]).exp()
        width, height = (area * ratio).sqrt().round(), (area / ratio).sqrt().round()
        fits = (width > 0) & (width <= columns) & (height > 0) & (height <= rows)
        first = fits.int().argmax(1, keepdim=True)
        some, middle = fits.any(1), self.middle(rows, columns)
        height = torch.where(some, height.gather(1, first)[:, 0], middle[0])
        width = torch.where(some, width.gather(1, first)[:, 0], middle[1])
        place = torch.where(some[:, None], drawn[:, 20:22], 0.5)
        top = (place[:, 0] * (rows - height + some.float())).floor()
        left = (place[:, 1] * (columns - width + some.float())).floor()
        return top, left, height, width

    def middle(self, rows: int, columns: int) -> tuple[int, int]:
        """Height and width of the largest box whose ratio is allowed."""
        whole = min(max(columns / rows, self.ratio[0]), self.ratio[1])
        return min(rows, round(columns / whole)), min(columns, round(rows * whole))


class PadCrop(RandomView):
    """The image moved by up to `padding` pixels each way, zeros around it, and mirrored with probability `flip`."""

    draws = 3

    def __init__(self, padding: int = 4, flip: float = 0.5) -> None:
        super().__init__()
        self.padding, self.flip = padding, flip

    def __repr__(self) -> str:
        return f"shift {self.padding}, flip {self.flip:g}"

    def view(self, x: Tensor, drawn: Tensor) -> Tensor:
        """Views of a batch."""
        size = tuple(x.shape[-2:])
        moved = (drawn * (2 * self.padding + 1)).floor() - self.padding
        sides = torch.tensor(size, device=x.device, dtype=torch.float32).expand(len(x), 2)
        return resized_crop(x, moved[:, 0], moved[:, 1], sides[:, 0], sides[:, 1], size, drawn[:, 2] < self.flip)


class ColourJitter(RandomView):
    """Brightness, contrast, saturation and hue by factors drawn per sample, in an order drawn per sample.

    The first three factors are in 1 ± their strength, hue in ± its own (in turns of the colour circle); all of it
    happens with probability `p`.
    """

    draws = 9  # four factors, their order, and whether it happens

    def __init__(
        self, brightness: float = 0.4, contrast: float = 0.4, saturation: float = 0.4, hue: float = 0.1, p: float = 0.8
    ) -> None:
        super().__init__()
        self.strengths, self.hue, self.p = (brightness, contrast, saturation), hue, p

    def __repr__(self) -> str:
        return f"colour jitter {self.p:g}"

    def view(self, x: Tensor, drawn: Tensor) -> Tensor:
        """Views of a batch of colour images."""
        around = drawn[:, :4].T * 2 - 1
        factors = [1 + strength * around[at] for at, strength in enumerate(self.strengths)]
        jittered = jitter(x, factors[0], factors[1], factors[2], self.hue * around[3], drawn[:, 4:8].argsort(1))
        return torch.where(_per_sample(drawn[:, 8] < self.p), jittered, x)


class Greyscale(RandomView):
    """All colour taken out with probability `p`."""

    draws = 1

    def __init__(self, p: float = 0.2) -> None:
        super().__init__()
        self.p = p

    def __repr__(self) -> str:
        return f"greyscale {self.p:g}"

    def view(self, x: Tensor, drawn: Tensor) -> Tensor:
        """Views of a batch of colour images."""
        return torch.where(_per_sample(drawn[:, 0] < self.p), grey(x).expand_as(x), x)


class GaussianBlur(RandomView):
    """Blurred with probability `p`, by a Gaussian of width drawn from `sigma`; the kernel is a tenth of the image."""

    draws = 2

    def __init__(self, sigma: tuple[float, float] = (0.1, 2.0), p: float = 0.5) -> None:
        super().__init__()
        self.sigma, self.p = sigma, p

    def __repr__(self) -> str:
        return f"blur {self.p:g}"

    def view(self, x: Tensor, drawn: Tensor) -> Tensor:
        """Views of a batch."""
        blurred = blur(x, _between(*self.sigma, drawn[:, 0]), *(2 * (side // 20) + 1 for side in x.shape[-2:]))
        return torch.where(_per_sample(drawn[:, 1] < self.p), blurred, x)


class CropAndColours(RandomView):
    """A crop, then colour jitter, then greyscale; of small images on a GPU by one kernel."""

    def __init__(self, crop: RandomResizedCrop, colours: ColourJitter, greyscale: Greyscale) -> None:
        super().__init__()
        self.crop, self.colours, self.greyscale = crop, colours, greyscale
        self.draws = crop.draws + colours.draws + greyscale.draws

    def __repr__(self) -> str:
        return f"{self.crop}, {self.colours}, {self.greyscale}"

    def view(self, x: Tensor, drawn: Tensor) -> Tensor:
        """Views of a batch of colour images."""
        fits = x.shape[1] == 3 and max(x.shape[-2:]) <= SMALL and x.dtype == torch.float32 and not x.requires_grad
        if fits and not torch.compiler.is_compiling() and self.in_one_kernel(x.device):
            from imix.kernels import small_views

            return small_views.view(x, drawn, self.crop, self.colours, self.greyscale)
        steps = self.crop, self.colours, self.greyscale
        for step, own in zip(steps, drawn.split([step.draws for step in steps], 1), strict=True):
            x = step.view(x, own)
        return x

    def in_one_kernel(self, device: torch.device) -> bool:
        """Whether one makes the views of small images there."""
        return max(self.crop.size) <= SMALL and kernels.usable(device)


def cifar(size: int | tuple[int, int]) -> nn.Sequential:
    """The paper's views of small images: crop and flip, colour jitter, greyscale."""
    return nn.Sequential(CropAndColours(RandomResizedCrop(size), ColourJitter(), Greyscale()))


def imagenet(size: int | tuple[int, int]) -> nn.Sequential:
    """The paper's views of large images: as for small ones, and blur."""
    return nn.Sequential(*cifar(size), GaussianBlur())


def resized_crop(
    x: Tensor,
    top: Tensor,
    left: Tensor,
    height: Tensor,
    width: Tensor,
    size: Sequence[int],
    mirrored: Tensor | None = None,
) -> Tensor:
    """A box of each image, resized to `size` with antialiasing; what lies outside the image is 0."""
    rows = _resampling(top, height, size[0], x.shape[-2])
    columns = _resampling(left, width, size[1], x.shape[-1])
    if mirrored is not None:
        columns = torch.where(mirrored[:, None, None], columns.flip(1), columns)
    return _separable(rows, x, columns)


def jitter(x: Tensor, brightness: Tensor, contrast: Tensor, saturation: Tensor, hue: Tensor, order: Tensor) -> Tensor:
    """Four changes of colour, with a factor each per sample, (N,), in the order (N, 4) that each sample has.

    Hue is the dear one, so it is turned once, for all samples at a time: between three turns for what comes before it
    in a sample's order and three for what comes after.
    """
    factors, order = torch.stack([brightness, contrast, saturation, torch.ones_like(hue)]), order.T
    turn, turn_of_hue = torch.arange(4, device=x.device)[:, None], (order == HUE).int().argmax(0)
    before = torch.where(turn < turn_of_hue, order, HUE)[:3]
    after = torch.where(turn > turn_of_hue, order, HUE)[1:]
    for which, factor in zip(before, factors.gather(0, before), strict=True):
        x = _blended(x, which, factor)
    x = turned(x, hue)
    for which, factor in zip(after, factors.gather(0, after), strict=True):
        x = _blended(x, which, factor)
    return x


def _blended(x: Tensor, which: Tensor, factor: Tensor) -> Tensor:
    """Blended with black (brightness), the mean grey (contrast) or the greys (saturation) of each image."""
    dull, which = grey(x), _per_sample(which)
    end = torch.where(which == CONTRAST, dull.mean((2, 3), keepdim=True), torch.where(which == SATURATION, dull, 0.0))
    return torch.lerp(end, x, _per_sample(factor)).clamp(0, 1)


def grey(x: Tensor) -> Tensor:
    """The brightness of colour images, (N, 1, H, W)."""
    red, green, blue = x.unbind(1)
    return (GREY[0] * red + GREY[1] * green + GREY[2] * blue)[:, None]


def turned(x: Tensor, by: Tensor) -> Tensor:
    """Colours moved along the colour circle by that part of a turn, (N,)."""
    red, green, blue = x.unbind(1)
    high, low = x.amax(1), x.amin(1)
    spread = high - low
    safe = torch.where(spread == 0, 1.0, spread)
    from_red, from_green, from_blue = ((high - part) / safe for part in (red, green, blue))
    sixth = torch.where(
        high == red,
        from_blue - from_green,
        torch.where(high == green, 2 + from_red - from_blue, 4 + from_green - from_red),
    )
    hue = (sixth / 6 + by[:, None, None]) % 1.0
    # Each colour of the circle is a fixed distance along it from red.
    parts = [(offset + hue * 6) % 6 for offset in (5, 3, 1)]
    return torch.stack([high - spread * torch.minimum(part, 4 - part).clamp(0, 1) for part in parts], 1)


def blur(x: Tensor, sigma: Tensor, rows: int, columns: int) -> Tensor:
    """A Gaussian of that width per sample, cut off to a kernel of rows x columns; edges are reflected."""
    return _separable(_blurring(sigma, rows, x.shape[-2]), x, _blurring(sigma, columns, x.shape[-1]))


def _separable(rows: Tensor, x: Tensor, columns: Tensor) -> Tensor:
    """rows (N, h, H), x (N, C, H, W), columns (N, w, W) -> (N, C, h, w), in the precision of x."""
    return (rows[:, None] @ x.float() @ columns.transpose(1, 2)[:, None]).to(x.dtype)


def _resampling(start: Tensor, length: Tensor, size: int, available: int) -> Tensor:
    """For each sample the matrix (N, size, available) that resizes `length` pixels from `start` on to `size`.

    A triangle of the width of an output pixel, or of an input pixel where that is larger, cut at the ends of the box.
    """
    step = (length / size)[:, None, None]
    centre = (torch.arange(size, device=start.device)[:, None] + 0.5) * step
    pixel = torch.arange(available, device=start.device) - start[:, None, None]
    weight = (1 - ((pixel + 0.5 - centre) / step.clamp(min=1)).abs()).clamp(min=0)
    weight = torch.where((pixel >= 0) & (pixel < length[:, None, None]), weight, 0.0)
    return weight / weight.sum(2, keepdim=True).clamp(min=1e-6)


def _blurring(sigma: Tensor, kernel: int, size: int) -> Tensor:
    """For each sample the matrix (N, size, size) that blurs along one axis; a kernel reaches no further than that."""
    reach = min(kernel // 2, size - 1)
    distance = torch.arange(-reach, reach + 1, device=sigma.device)
    weight = torch.softmax(-0.5 * (distance / sigma[:, None]) ** 2, 1)
    source = (torch.arange(size, device=sigma.device)[:, None] + distance).abs()
    source = (size - 1) - ((size - 1) - source).abs()
    matrix = torch.zeros(len(sigma), size, size, device=sigma.device, dtype=weight.dtype)
    return matrix.scatter_add_(2, source.expand(len(sigma), -1, -1), weight[:, None].expand(-1, size, -1))


def _between(low: float, high: float, drawn: Tensor) -> Tensor:
    return low + (high - low) * drawn


def _per_sample(x: Tensor) -> Tensor:
    return x.view(-1, 1, 1, 1)
