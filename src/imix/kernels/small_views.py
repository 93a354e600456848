"""The paper's views of small images: a program takes an image from its pixels to its view.

What `image.CropAndColours` does in two hundred small operations happens between one read and one write.
"""

import math

import triton
import triton.language as tl
from torch import Tensor

from imix.augment.image import GREY, ColourJitter, Greyscale, RandomResizedCrop
from imix.kernels import on_device_of

DRAWS = tl.constexpr(33)  # of a sample: 23 for the crop, 9 for the colours, 1 for greyscale
RED, GREEN, BLUE = (tl.constexpr(part) for part in GREY)


@triton.jit
def _resampling(start, length, mirrored, SIZE: tl.constexpr, OUT: tl.constexpr, IN: tl.constexpr):
    """As `image._resampling`, for one image; rows after SIZE are not used."""
    step = length / SIZE
    at = tl.arange(0, OUT)
    centre = (tl.where(mirrored, SIZE - 1 - at, at)[:, None] + 0.5) * step
    pixel = tl.arange(0, IN)[None, :] - start
    weight = tl.maximum(1 - tl.abs((pixel + 0.5 - centre) / tl.maximum(step, 1.0)), 0.0)
    weight = tl.where((pixel >= 0) & (pixel < length), weight, 0.0)
    return weight / tl.maximum(tl.sum(weight, 1), 1e-6)[:, None]


@triton.jit
def _grey(red, green, blue):
    return red * RED + green * GREEN + blue * BLUE


@triton.jit
def _blended(red, green, blue, end, factor):
    red = tl.clamp(end + factor * (red - end), 0.0, 1.0)
    green = tl.clamp(end + factor * (green - end), 0.0, 1.0)
    blue = tl.clamp(end + factor * (blue - end), 0.0, 1.0)
    return red, green, blue


@triton.jit
def _on_circle(part):
    """How much of a colour is missing at that sixth of the circle, counted from where it begins to be."""
    part = part - 6 * tl.floor(part / 6)
    return tl.clamp(tl.minimum(part, 4 - part), 0.0, 1.0)


@triton.jit
def _turned(red, green, blue, by):
    """As `image.turned`."""
    high = tl.maximum(red, tl.maximum(green, blue))
    spread = high - tl.minimum(red, tl.minimum(green, blue))
    safe = tl.where(spread == 0, 1.0, spread)
    from_red, from_green, from_blue = (high - red) / safe, (high - green) / safe, (high - blue) / safe
    sixth = tl.where(
        high == red,
        from_blue - from_green,
        tl.where(high == green, 2 + from_red - from_blue, 4 + from_green - from_red),
    )
    hue = sixth / 6 + by
    hue = hue - tl.floor(hue)
    red = high - spread * _on_circle(5 + hue * 6)
    green = high - spread * _on_circle(3 + hue * 6)
    blue = high - spread * _on_circle(1 + hue * 6)
    return red, green, blue


@triton.jit
def _view(
    x,
    drawn,
    out,
    least_area,
    areas,
    least_ratio,
    ratios,
    fallback_height,
    fallback_width,
    flip,
    brightness,
    contrast,
    saturation,
    hue,
    jitter,
    greyscale,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    IN_ROWS: tl.constexpr,
    IN_COLUMNS: tl.constexpr,
    OUT_ROWS: tl.constexpr,
    OUT_COLUMNS: tl.constexpr,
):
    """Images of ROWS x COLUMNS to views of HEIGHT x WIDTH, in tiles whose sides are powers of two."""
    sample = tl.program_id(0).to(tl.int64)
    drawn += sample * DRAWS

    # The box: the first of ten that fits, or the largest in the middle.
    tries = tl.arange(0, 16)
    area = least_area + areas * tl.load(drawn + tries, mask=tries < 10, other=0.0)
    ratio = tl.exp(least_ratio + ratios * tl.load(drawn + 10 + tries, mask=tries < 10, other=0.0))
    widths, heights = tl.floor(tl.sqrt(area * ratio) + 0.5), tl.floor(tl.sqrt(area / ratio) + 0.5)
    fits = (tries < 10) & (widths > 0) & (widths <= COLUMNS) & (heights > 0) & (heights <= ROWS)
    first = tl.min(tl.where(fits, tries, 16), 0)
    some = first < 16
    height = tl.where(some, tl.sum(tl.where(tries == first, heights, 0.0), 0), fallback_height)
    width = tl.where(some, tl.sum(tl.where(tries == first, widths, 0.0), 0), fallback_width)
    room = tl.where(some, 1.0, 0.0)
    top = tl.floor(tl.where(some, tl.load(drawn + 20), 0.5) * (ROWS - height + room))
    left = tl.floor(tl.where(some, tl.load(drawn + 21), 0.5) * (COLUMNS - width + room))

    # Cropped, resized, mirrored.
    rows = _resampling(top, height, False, HEIGHT, OUT_ROWS, IN_ROWS)
    columns = tl.trans(_resampling(left, width, tl.load(drawn + 22) < flip, WIDTH, OUT_COLUMNS, IN_COLUMNS))
    row, column = tl.arange(0, IN_ROWS)[:, None], tl.arange(0, IN_COLUMNS)[None, :]
    there = (row < ROWS) & (column < COLUMNS)
    pixels = x + sample * (3 * ROWS * COLUMNS) + row * COLUMNS + column
    red = tl.dot(rows, tl.load(pixels, mask=there, other=0.0), input_precision="ieee")
    green = tl.dot(rows, tl.load(pixels + ROWS * COLUMNS, mask=there, other=0.0), input_precision="ieee")
    blue = tl.dot(rows, tl.load(pixels + 2 * ROWS * COLUMNS, mask=there, other=0.0), input_precision="ieee")
    red = tl.dot(red, columns, input_precision="ieee")
    green = tl.dot(green, columns, input_precision="ieee")
    blue = tl.dot(blue, columns, input_precision="ieee")
    row, column = tl.arange(0, OUT_ROWS)[:, None], tl.arange(0, OUT_COLUMNS)[None, :]
    there = (row < HEIGHT) & (column < WIDTH)

    # Brightness, contrast, saturation and hue, each at its turn.
    if tl.load(drawn + 31) < jitter:
        of_brightness = 1 + brightness * (tl.load(drawn + 23) * 2 - 1)
        of_contrast = 1 + contrast * (tl.load(drawn + 24) * 2 - 1)
        of_saturation = 1 + saturation * (tl.load(drawn + 25) * 2 - 1)
        by = hue * (tl.load(drawn + 26) * 2 - 1)
        b, c, s, h = tl.load(drawn + 27), tl.load(drawn + 28), tl.load(drawn + 29), tl.load(drawn + 30)
        turn_of_brightness = (c < b).to(tl.int32) + (s < b).to(tl.int32) + (h < b).to(tl.int32)
        turn_of_contrast = (b <= c).to(tl.int32) + (s < c).to(tl.int32) + (h < c).to(tl.int32)
        turn_of_saturation = (b <= s).to(tl.int32) + (c <= s).to(tl.int32) + (h < s).to(tl.int32)
        for turn in range(4):
            if turn == turn_of_brightness:
                red, green, blue = _blended(red, green, blue, 0.0, of_brightness)
            elif turn == turn_of_contrast:
                mean = tl.sum(tl.where(there, _grey(red, green, blue), 0.0)) / (HEIGHT * WIDTH)
                red, green, blue = _blended(red, green, blue, mean, of_contrast)
            elif turn == turn_of_saturation:
                red, green, blue = _blended(red, green, blue, _grey(red, green, blue), of_saturation)
            else:
                red, green, blue = _turned(red, green, blue, by)
    if tl.load(drawn + 32) < greyscale:
        dull = _grey(red, green, blue)
        red, green, blue = dull, dull, dull
    places = out + sample * (3 * HEIGHT * WIDTH) + row * WIDTH + column
    tl.store(places, red, mask=there)
    tl.store(places + HEIGHT * WIDTH, green, mask=there)
    tl.store(places + 2 * HEIGHT * WIDTH, blue, mask=there)


def view(x: Tensor, drawn: Tensor, crop: RandomResizedCrop, colours: ColourJitter, greyscale: Greyscale) -> Tensor:
    """Views of images (N, 3, H, W), by what was drawn for each, (N, 33)."""
    rows, columns = x.shape[-2:]
    sides = (rows, columns, *crop.size)
    (least, most), (narrow, wide) = crop.scale, map(math.log, crop.ratio)
    box = (rows * columns * least, rows * columns * (most - least), narrow, wide - narrow, *crop.middle(rows, columns))
    tiles = [max(16, triton.next_power_of_2(side)) for side in sides]
    out = x.new_empty(len(x), 3, *crop.size)
    with on_device_of(x):
        _view[(len(x),)](
            x.contiguous(),
            drawn.contiguous(),
            out,
            *(float(number) for number in (*box, crop.flip, *colours.strengths, colours.hue, colours.p, greyscale.p)),
            *sides,
            *tiles,
            num_warps=4 if max(tiles) <= 32 else 8,
        )
    return out
