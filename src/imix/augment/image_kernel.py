"""Triton kernel for the paper's augmentation of small images: crop, flip, color jitter and grayscale.

Each program reads one image once and writes its view once, instead of the two hundred small operations that
`image.CropAndColorJitter` takes in plain torch.
"""

import math

import triton
import triton.language as tl
from torch import Tensor

from imix.augment.image import ColorJitter, Grayscale, RandomResizedCrop
from imix.augment.image_ops import GRAY_WEIGHTS
from imix.runtime.kernels import on_device_of

N_DRAWS = tl.constexpr(33)  # uniforms per sample: 23 for the crop, 9 for the colors, 1 for grayscale
RED, GREEN, BLUE = (tl.constexpr(weight) for weight in GRAY_WEIGHTS)


@triton.jit
def _resize_matrix(start, length, flip, SIZE: tl.constexpr, OUT: tl.constexpr, IN: tl.constexpr):
    """Like `image_ops._resize_matrix`, for one image; rows from SIZE on are unused."""
    step = length / SIZE
    row = tl.arange(0, OUT)
    center = (tl.where(flip, SIZE - 1 - row, row)[:, None] + 0.5) * step
    pixel = tl.arange(0, IN)[None, :] - start
    weight = tl.maximum(1 - tl.abs((pixel + 0.5 - center) / tl.maximum(step, 1.0)), 0.0)
    weight = tl.where((pixel >= 0) & (pixel < length), weight, 0.0)
    return weight / tl.maximum(tl.sum(weight, 1), 1e-6)[:, None]


@triton.jit
def _to_gray(red, green, blue):
    return red * RED + green * GREEN + blue * BLUE


@triton.jit
def _blend(red, green, blue, end, factor):
    red = tl.clamp(end + factor * (red - end), 0.0, 1.0)
    green = tl.clamp(end + factor * (green - end), 0.0, 1.0)
    blue = tl.clamp(end + factor * (blue - end), 0.0, 1.0)
    return red, green, blue


@triton.jit
def _channel_drop(position):
    """Return how far a channel is below its maximum, as a fraction, at a hue position in sixths of the color circle."""
    position = position - 6 * tl.floor(position / 6)
    return tl.clamp(tl.minimum(position, 4 - position), 0.0, 1.0)


@triton.jit
def _rotate_hue(red, green, blue, shift):
    """Like `image_ops.rotate_hue`."""
    high = tl.maximum(red, tl.maximum(green, blue))
    spread = high - tl.minimum(red, tl.minimum(green, blue))
    safe_spread = tl.where(spread == 0, 1.0, spread)
    from_red, from_green, from_blue = (
        (high - red) / safe_spread,
        (high - green) / safe_spread,
        (high - blue) / safe_spread,
    )
    sextant = tl.where(
        high == red,
        from_blue - from_green,
        tl.where(high == green, 2 + from_red - from_blue, 4 + from_green - from_red),
    )
    hue = sextant / 6 + shift
    hue = hue - tl.floor(hue)
    red = high - spread * _channel_drop(5 + hue * 6)
    green = high - spread * _channel_drop(3 + hue * 6)
    blue = high - spread * _channel_drop(1 + hue * 6)
    return red, green, blue


@triton.jit
def _crop_and_color_jitter(
    x,
    uniforms,
    out,
    min_area,
    area_range,
    min_log_ratio,
    log_ratio_range,
    central_height,
    central_width,
    flip_p,
    brightness,
    contrast,
    saturation,
    hue,
    jitter_p,
    grayscale_p,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    IN_ROWS: tl.constexpr,
    IN_COLUMNS: tl.constexpr,
    OUT_ROWS: tl.constexpr,
    OUT_COLUMNS: tl.constexpr,
):
    """Images of ROWS x COLUMNS to views of HEIGHT x WIDTH; the sides of the tiles IN_* and OUT_* are powers of two."""
    sample = tl.program_id(0).to(tl.int64)
    uniforms += sample * N_DRAWS

    # The box: the first of ten that fits, or the largest central one.
    trial = tl.arange(0, 16)
    area = min_area + area_range * tl.load(uniforms + trial, mask=trial < 10, other=0.0)
    ratio = tl.exp(min_log_ratio + log_ratio_range * tl.load(uniforms + 10 + trial, mask=trial < 10, other=0.0))
    widths, heights = tl.floor(tl.sqrt(area * ratio) + 0.5), tl.floor(tl.sqrt(area / ratio) + 0.5)
    fits = (trial < 10) & (widths > 0) & (widths <= COLUMNS) & (heights > 0) & (heights <= ROWS)
    first = tl.min(tl.where(fits, trial, 16), 0)
    any_fits = first < 16
    height = tl.where(any_fits, tl.sum(tl.where(trial == first, heights, 0.0), 0), central_height)
    width = tl.where(any_fits, tl.sum(tl.where(trial == first, widths, 0.0), 0), central_width)
    extra = tl.where(any_fits, 1.0, 0.0)
    top = tl.floor(tl.where(any_fits, tl.load(uniforms + 20), 0.5) * (ROWS - height + extra))
    left = tl.floor(tl.where(any_fits, tl.load(uniforms + 21), 0.5) * (COLUMNS - width + extra))

    # Crop, resize, flip.
    rows = _resize_matrix(top, height, False, HEIGHT, OUT_ROWS, IN_ROWS)
    columns = tl.trans(_resize_matrix(left, width, tl.load(uniforms + 22) < flip_p, WIDTH, OUT_COLUMNS, IN_COLUMNS))
    row, column = tl.arange(0, IN_ROWS)[:, None], tl.arange(0, IN_COLUMNS)[None, :]
    inside = (row < ROWS) & (column < COLUMNS)
    pixels = x + sample * (3 * ROWS * COLUMNS) + row * COLUMNS + column
    red = tl.dot(rows, tl.load(pixels, mask=inside, other=0.0), input_precision="ieee")
    green = tl.dot(rows, tl.load(pixels + ROWS * COLUMNS, mask=inside, other=0.0), input_precision="ieee")
    blue = tl.dot(rows, tl.load(pixels + 2 * ROWS * COLUMNS, mask=inside, other=0.0), input_precision="ieee")
    red = tl.dot(red, columns, input_precision="ieee")
    green = tl.dot(green, columns, input_precision="ieee")
    blue = tl.dot(blue, columns, input_precision="ieee")
    row, column = tl.arange(0, OUT_ROWS)[:, None], tl.arange(0, OUT_COLUMNS)[None, :]
    inside = (row < HEIGHT) & (column < WIDTH)

    # Brightness, contrast, saturation and hue, in the order of this sample.
    if tl.load(uniforms + 31) < jitter_p:
        brightness_factor = 1 + brightness * (tl.load(uniforms + 23) * 2 - 1)
        contrast_factor = 1 + contrast * (tl.load(uniforms + 24) * 2 - 1)
        saturation_factor = 1 + saturation * (tl.load(uniforms + 25) * 2 - 1)
        hue_shift = hue * (tl.load(uniforms + 26) * 2 - 1)
        b, c, s, h = tl.load(uniforms + 27), tl.load(uniforms + 28), tl.load(uniforms + 29), tl.load(uniforms + 30)
        brightness_step = (c < b).to(tl.int32) + (s < b).to(tl.int32) + (h < b).to(tl.int32)
        contrast_step = (b <= c).to(tl.int32) + (s < c).to(tl.int32) + (h < c).to(tl.int32)
        saturation_step = (b <= s).to(tl.int32) + (c <= s).to(tl.int32) + (h < s).to(tl.int32)
        for step in range(4):
            if step == brightness_step:
                red, green, blue = _blend(red, green, blue, 0.0, brightness_factor)
            elif step == contrast_step:
                mean = tl.sum(tl.where(inside, _to_gray(red, green, blue), 0.0)) / (HEIGHT * WIDTH)
                red, green, blue = _blend(red, green, blue, mean, contrast_factor)
            elif step == saturation_step:
                red, green, blue = _blend(red, green, blue, _to_gray(red, green, blue), saturation_factor)
            else:
                red, green, blue = _rotate_hue(red, green, blue, hue_shift)
    if tl.load(uniforms + 32) < grayscale_p:
        gray = _to_gray(red, green, blue)
        red, green, blue = gray, gray, gray
    pixels = out + sample * (3 * HEIGHT * WIDTH) + row * WIDTH + column
    tl.store(pixels, red, mask=inside)
    tl.store(pixels + HEIGHT * WIDTH, green, mask=inside)
    tl.store(pixels + 2 * HEIGHT * WIDTH, blue, mask=inside)


def crop_and_color_jitter(
    x: Tensor, uniforms: Tensor, crop: RandomResizedCrop, colors: ColorJitter, grayscale: Grayscale
) -> Tensor:
    """Return views (N, 3, *crop.size) of images (N, 3, H, W), determined by uniforms (N, 33)."""
    rows, columns = x.shape[-2:]
    sides = (rows, columns, *crop.size)
    (min_scale, max_scale), (min_log_ratio, max_log_ratio) = crop.scale, map(math.log, crop.ratio)
    pixels = rows * columns
    parameters = (
        *(pixels * min_scale, pixels * (max_scale - min_scale), min_log_ratio, max_log_ratio - min_log_ratio),
        *crop.central_box(rows, columns),
        *(crop.flip, *colors.strengths, colors.hue, colors.p, grayscale.p),
    )
    tiles = [max(16, triton.next_power_of_2(side)) for side in sides]
    out = x.new_empty(len(x), 3, *crop.size)
    with on_device_of(x):
        _crop_and_color_jitter[(len(x),)](
            x.contiguous(),
            uniforms.contiguous(),
            out,
            *map(float, parameters),
            *sides,
            *tiles,
            num_warps=4 if max(tiles) <= 32 else 8,
        )
    return out
