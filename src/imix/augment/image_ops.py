"""Image operations with parameters per sample: crop, resize, flip, color changes, blur.

Images (N, C, H, W) are floats in [0, 1]. Crops, flips and blurs are separable, so each is two matrix products (rows and
columns) with one matrix per sample: exact, and the same on every device. Every operation agrees with torchvision's.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

GRAY_WEIGHTS = (0.2989, 0.587, 0.114)  # of red, green and blue
CONTRAST, SATURATION, HUE = 1, 2, 3  # codes of the color changes in `order`; 0 is brightness


def resized_crop(
    x: Tensor, top: Tensor, left: Tensor, height: Tensor, width: Tensor, size: Sequence[int], flip: Tensor
) -> Tensor:
    """Crop a box (top, left, height and width are (N,)) of each image and resize it to `size` with antialiasing.

    Pixels outside the image are 0. `flip` (N,) selects the samples that are flipped horizontally.
    """
    rows = _resize_matrix(top, height, size[0], x.shape[-2])
    columns = _resize_matrix(left, width, size[1], x.shape[-1])
    return _transform_axes(rows, x, torch.where(flip[:, None, None], columns.flip(1), columns))


def jitter(x: Tensor, brightness: Tensor, contrast: Tensor, saturation: Tensor, hue: Tensor, order: Tensor) -> Tensor:
    """Apply four color changes, with factors (N,) per sample, in the order (N, 4) of each sample.

    Hue is the expensive step, so apply it once, to all samples together. Three steps before it and three after it
    apply whatever precedes or follows hue in a sample's order; the remaining ones do nothing.
    """
    factors, order = torch.stack([brightness, contrast, saturation, torch.ones_like(hue)]), order.T
    step, hue_step = torch.arange(4, device=x.device)[:, None], (order == HUE).int().argmax(0)
    before = torch.where(step < hue_step, order, HUE)[:3]  # (3, N); HUE has factor 1: no change
    after = torch.where(step > hue_step, order, HUE)[1:]
    for change, factor in zip(before, factors.gather(0, before), strict=True):
        x = _blend(x, change, factor)
    x = rotate_hue(x, hue)
    for change, factor in zip(after, factors.gather(0, after), strict=True):
        x = _blend(x, change, factor)
    return x


def _blend(x: Tensor, change: Tensor, factor: Tensor) -> Tensor:
    """Blend each image with black (brightness), its mean gray (contrast) or its gray version (saturation)."""
    gray, change = to_gray(x), per_sample(change)
    mean_gray = gray.mean((2, 3), keepdim=True)
    end = torch.where(change == CONTRAST, mean_gray, torch.where(change == SATURATION, gray, 0.0))
    return torch.lerp(end, x, per_sample(factor)).clamp(0, 1)


def to_gray(x: Tensor) -> Tensor:
    """Return the luminance of color images, (N, 1, H, W)."""
    red, green, blue = x.unbind(1)
    return (GRAY_WEIGHTS[0] * red + GRAY_WEIGHTS[1] * green + GRAY_WEIGHTS[2] * blue)[:, None]


def rotate_hue(x: Tensor, shift: Tensor) -> Tensor:
    """Rotate the hue of color images by `shift` (N,), as a fraction of the color circle."""
    red, green, blue = x.unbind(1)
    high, low = x.amax(1), x.amin(1)
    spread = high - low
    safe_spread = torch.where(spread == 0, 1.0, spread)
    from_red, from_green, from_blue = ((high - channel) / safe_spread for channel in (red, green, blue))
    sextant = torch.where(
        high == red,
        from_blue - from_green,
        torch.where(high == green, 2 + from_red - from_blue, 4 + from_green - from_red),
    )
    hue = (sextant / 6 + shift[:, None, None]) % 1.0
    # Red, green and blue are the same function of hue, at different offsets on the color circle.
    positions = [(offset + hue * 6) % 6 for offset in (5, 3, 1)]
    return torch.stack([high - spread * torch.minimum(p, 4 - p).clamp(0, 1) for p in positions], 1)


def blur(x: Tensor, sigma: Tensor, rows: int, columns: int) -> Tensor:
    """Blur images with a Gaussian of `sigma` (N,), truncated to rows x columns pixels; edges are reflected."""
    return _transform_axes(_blur_matrix(sigma, rows, x.shape[-2]), x, _blur_matrix(sigma, columns, x.shape[-1]))


def _transform_axes(rows: Tensor, x: Tensor, columns: Tensor) -> Tensor:
    """rows (N, h, H), x (N, C, H, W), columns (N, w, W) -> (N, C, h, w), in the dtype of x."""
    return (rows[:, None] @ x.float() @ columns.transpose(1, 2)[:, None]).to(x.dtype)


def _resize_matrix(start: Tensor, length: Tensor, size: int, available: int) -> Tensor:
    """Return the matrix (N, size, available) that resizes the `length` pixels from `start` to `size` pixels.

    The filter is a triangle as wide as an output pixel, or as an input pixel if that is wider, cut at the box's edges.
    """
    step = (length / size)[:, None, None]
    center = (torch.arange(size, device=start.device)[:, None] + 0.5) * step
    pixel = torch.arange(available, device=start.device) - start[:, None, None]
    weight = (1 - ((pixel + 0.5 - center) / step.clamp(min=1)).abs()).clamp(min=0)
    weight = torch.where((pixel >= 0) & (pixel < length[:, None, None]), weight, 0.0)
    return weight / weight.sum(2, keepdim=True).clamp(min=1e-6)


def _blur_matrix(sigma: Tensor, kernel: int, size: int) -> Tensor:
    """Return the matrix (N, size, size) that blurs along one axis, with a kernel no wider than the image."""
    radius = min(kernel // 2, size - 1)
    distance = torch.arange(-radius, radius + 1, device=sigma.device)
    weight = torch.softmax(-0.5 * (distance / sigma[:, None]) ** 2, 1)
    source = (torch.arange(size, device=sigma.device)[:, None] + distance).abs()
    source = (size - 1) - ((size - 1) - source).abs()
    matrix = torch.zeros(len(sigma), size, size, device=sigma.device, dtype=weight.dtype)
    return matrix.scatter_add_(2, source.expand(len(sigma), -1, -1), weight[:, None].expand(-1, size, -1))


def per_sample(x: Tensor) -> Tensor:
    """Reshape values (N,) so that they broadcast over images."""
    return x.view(-1, 1, 1, 1)
