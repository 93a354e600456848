"""Views of clips, made on their device, a batch at a time, with one independent draw per sample.

The paper's steps, in its order, each with probability 1/2: louder or fainter; faster and higher or slower and lower; in
the spectrum stretched, shifted, and mixed with background noise that went through the same steps.
"""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from imix.batch import as_floats
from imix.data.mel import Clip, Spectrum, as_reals

AMPLITUDE = (0.7, 1.1)
SPEED = STRETCH = 0.2  # at most that much faster or slower
NOISE = 0.45  # share of the noise at most
PIECE = 32  # samples that a core takes at a time, at most


class Draw(NamedTuple):
    """What happens to each of N clips, (N,) each: 1, 1, 1 and 0 leave one as it is."""

    amplitude: Tensor
    step: Tensor  # through the waveform: above 1 is faster and higher
    rate: Tensor  # through the spectrum: above 1 is faster
    shift: Tensor  # frames by which it begins later


class SpeechViews(nn.Module):
    """Waveforms (N, 1, L) to views of them: complex spectra (N, frames, BINS), or what `then` makes of these.

    `noise` (M, 1, L) are clips of background noise, of which each view gets one; without it none is added.
    """

    noise: Tensor | None

    def __init__(self, clip: Clip, noise: Tensor | None = None, then: nn.Module | None = None, p: float = 0.5) -> None:
        super().__init__()
        self.clip, self.p = clip, p
        self.spectrum, self.then = Spectrum(), then or nn.Identity()
        self.register_buffer("noise", noise, persistent=False)

    def __repr__(self) -> str:
        heard = "" if self.noise is None else f", noise up to {NOISE:g}"
        return f"amplitude, speed ± {SPEED:g}, stretch ± {STRETCH:g}, shift ± {self.clip.frames // 4} frames{heard}"

    def forward(self, waves: Tensor) -> Tensor:
        """Views of a batch."""
        n, device = len(waves), waves.device
        drawn = [*self.draw(n, device)]
        if self.noise is not None:
            share = self.sometimes(NOISE * torch.rand(n, device=device), 0.0)
            drawn += [share, torch.randint(len(self.noise), (n,), device=device), *self.draw(n, device)]
        return apply(self.view, waves, *drawn)

    def view(self, waves: Tensor, *drawn: Tensor) -> Tensor:
        """Views to which that happens: to the clip, and to noise of which it gets a share."""
        spectra = self.changed(waves, *drawn[:4])
        if self.noise is not None:
            spectra = where(drawn[4] > 0, self.noisy, spectra, *drawn[4:])
        return self.then(spectra)

    def draw(self, n: int, device: torch.device) -> Draw:
        """What is to happen to n clips."""

        def uniform(low: float, high: float) -> Tensor:
            return low + (high - low) * torch.rand(n, device=device)

        reach = self.clip.frames // 4
        return Draw(
            self.sometimes(uniform(*AMPLITUDE), 1.0),
            self.sometimes(1 / (1 + uniform(-SPEED, SPEED)), 1.0),
            self.sometimes(1 + uniform(-STRETCH, STRETCH), 1.0),
            self.sometimes(torch.randint(-reach, reach + 1, (n,), device=device), 0),
        )

    def sometimes(self, drawn: Tensor, otherwise: float) -> Tensor:
        """What was drawn, with probability p each."""
        return torch.where(torch.rand(len(drawn), device=drawn.device) < self.p, drawn, otherwise)

    def changed(self, waves: Tensor, amplitude: Tensor, step: Tensor, rate: Tensor, shift: Tensor) -> Tensor:
        """Spectra of waveforms to which that happened."""
        waves = where(step != 1, resampled, amplitude.view(-1, 1, 1) * waves, step)
        z = self.spectrum(waves)
        if z.device.type != "cpu":
            return moved(z, rate, shift)
        z = where(rate != 1, moved, z, rate, shift)
        return where((rate == 1) & (shift != 0), shifted, z, shift)

    def noisy(self, z: Tensor, share: Tensor, which: Tensor, *draw: Tensor) -> Tensor:
        """Spectra with a share of noise, to which that happened."""
        assert self.noise is not None
        noise = self.changed(as_floats(self.noise.index_select(0, which)), *draw)
        mixed = torch.lerp(as_reals(z), as_reals(noise), share.view(-1, 1, 1))
        return torch.view_as_complex(mixed.unflatten(2, (-1, 2)))


def resampled(waves: Tensor, step: Tensor) -> Tensor:
    """Waveforms (N, 1, L) at every `step`-th place, (N,), with straight lines between samples; silence at their end."""
    length = waves.shape[2]
    silence = (0, math.ceil(2 * SPEED * length))  # more than the fastest reach
    here, after = (F.pad(each, silence) for each in (waves, torch.cat([waves[..., 1:], waves[..., -1:]], 2)))
    index = torch.arange(length, device=waves.device)
    ahead = index * (step - 1)[:, None, None]  # of the sample of that number, which is exact in float32
    whole = ahead.floor()
    left = index + whole.long()
    return here.gather(2, left).lerp_(after.gather(2, left), ahead - whole)


def moved(z: Tensor, rate: Tensor, shift: Tensor) -> Tensor:
    """Spectra (N, T, BINS), stretched and then shifted, T frames of them; what goes over their end is lost."""
    frames = z.shape[1]
    sounding = torch.arange(frames, device=z.device) * rate[:, None] < frames
    return _vocoder(z, *(shifted(matrix, shift, frames, sounding) for matrix in _vocoder_matrices(frames, rate)))


def _vocoder_matrices(frames: int, rate: Tensor) -> tuple[Tensor, Tensor]:
    """What makes magnitudes and phases of new frames of those of old ones, (N, new, old) each.

    Magnitudes are interpolated; from one frame to the next the phase moves as it does between the two frames that it
    lies between. (The usual expected advance is a whole number of turns away from that, and drops out.) What lies
    beyond the last frame is silent.
    """
    old = torch.arange(frames, device=rate.device)
    place = torch.arange(math.ceil(frames / (1 - STRETCH)), device=rate.device) * rate[:, None]
    left = place.long()
    from_left, from_right = ((at[..., None] == old).float() for at in (left, left + 1))
    weights = torch.lerp(from_left, from_right, (place - left)[..., None])
    moves = F.pad((from_right - from_left)[:, :-1].cumsum(1), (0, 0, 1, 0))
    return weights, moves + (old == 0)


def _vocoder(z: Tensor, weights: Tensor, turns: Tensor) -> Tensor:
    # Parts of their own, since few processors are quick with complex numbers; they are large, and changed in place.
    real, imaginary = z.real.contiguous(), z.imag.contiguous()
    size = weights @ torch.hypot(real, imaginary)
    phase = turns @ imaginary.atan2_(real)
    return torch.complex(phase.cos().mul_(size), phase.sin_().mul_(size))


def shifted(z: Tensor, by: Tensor, frames: int | None = None, sounding: Tensor | None = None) -> Tensor:
    """Spectra (N, T, BINS) that begin `by` (N,) frames later, silence where there is nothing; the first `frames`.

    All but `sounding` (N, frames) ones are silent.
    """
    source = torch.arange(frames or z.shape[1], device=z.device) - by[:, None]
    silent = (source < 0) | (source >= z.shape[1])
    if sounding is not None:
        silent = silent | ~sounding
    return _take(z, source.clamp(0, z.shape[1] - 1)).masked_fill_(silent[..., None], 0)


def _take(x: Tensor, frames: Tensor) -> Tensor:
    """Chosen frames (N, t) of (N, T, BINS)."""
    n, end, bins = x.shape
    rows = frames + end * torch.arange(n, device=x.device)[:, None]
    return x.reshape(n * end, bins).index_select(0, rows.flatten()).view(n, -1, bins)


def apply(function: Callable[..., Tensor], x: Tensor, *drawn: Tensor) -> Tensor:
    """`function(x, *drawn)` of a batch: at once, or on a CPU a few samples at a time, which stay in its cache."""
    if x.device.type != "cpu":
        return function(x, *drawn)
    threads = torch.get_num_threads()
    pieces = _neighbours(drawn).split(min(PIECE, math.ceil(len(x) / threads)))
    torch.set_num_threads(1)
    try:
        made = _pool(threads).map(lambda rows: function(*(each.index_select(0, rows) for each in (x, *drawn))), pieces)
        views = x.new_empty(0)
        for rows, piece in zip(pieces, made, strict=True):  # while others are made, so that few are held
            if not len(views):
                views = piece.new_empty(len(x), *piece.shape[1:])
            views.index_copy_(0, rows, piece)
        return views
    finally:
        torch.set_num_threads(threads)


def _neighbours(drawn: tuple[Tensor, ...]) -> Tensor:
    """An order of samples in which the same happens to neighbours: a Gray code of what does, the dearest first."""

    def steps(_amplitude: Tensor, step: Tensor, rate: Tensor, shift: Tensor) -> Tensor:
        return torch.stack([rate != 1, (rate == 1) & (shift != 0), step != 1])

    happens = steps(*drawn[:4])
    if len(drawn) > 4:
        noisy = drawn[4] > 0
        happens = torch.cat([noisy[None], torch.stack([happens, noisy & steps(*drawn[6:])], 1).flatten(0, 1)])
    return (2 ** torch.arange(len(happens)).flip(0) @ (happens.cumsum(0) % 2)).argsort(descending=True, stable=True)


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="views")


def where(chosen: Tensor, change: Callable[..., Tensor], x: Tensor, *drawn: Tensor) -> Tensor:
    """`change(x, *drawn)` where that is chosen; elsewhere x, which `drawn` would leave as it is. May change x itself.

    On a GPU all samples are changed, since the size of nothing there may depend on what was drawn.
    """
    if x.device.type != "cpu":
        return change(x, *drawn)
    rows = chosen.nonzero()[:, 0]
    if len(rows) == len(x):
        return change(x, *drawn)
    if len(rows) and rows[-1] - rows[0] < len(rows):  # neighbours, which need not be gathered
        part = slice(int(rows[0]), int(rows[-1]) + 1)
        x[part] = change(x[part], *(each[part] for each in drawn))
    elif len(rows):
        x.index_copy_(0, rows, change(x.index_select(0, rows), *(each[rows] for each in drawn)))
    return x
