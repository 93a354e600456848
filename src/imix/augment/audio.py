"""Augmentations of audio clips, batched on the device, with independent random draws for every sample.

The paper's steps, in its order, each with probability 1/2: change the amplitude; change speed and pitch; stretch the
spectrum in time; shift it; mix it with background noise that went through the same steps.
"""

import math
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from imix.batch import to_float
from imix.encoders.mel import Clip, Spectrum, as_reals

AMPLITUDE = (0.7, 1.1)  # range of the amplitude factor
SPEED = STRETCH = 0.2  # largest relative change
NOISE = 0.45  # maximum weight of the noise in a view
CHUNK = 32  # maximum number of samples per chunk on a CPU core
THREAD_COUNT_LOCK = threading.Lock()  # torch has one thread count per process


class ClipChange(NamedTuple):
    """Augmentation parameters of N clips, (N,) each. The values 1, 1, 1 and 0 leave a clip unchanged."""

    amplitude: Tensor
    step: Tensor  # resampling step of the waveform: above 1 is faster and higher-pitched
    rate: Tensor  # stretch rate of the spectrum: above 1 is faster, at the same pitch
    shift: Tensor  # frames by which the spectrum is delayed


class AudioViews(nn.Module):
    """Random views of waveforms (N, 1, L): complex spectra (N, frames, BINS), or the output of `output_transform`.

    Parameters
    ----------
    clip : Clip
        Format of the clips.
    noise : Tensor of shape (M, 1, L), optional
        Background noise, one clip of which is mixed into a view. By default no noise is added.
    output_transform : nn.Module, optional
        Applied to the spectra, for example `imix.encoders.mel.Mel`.
    p : float
        Probability of each step.

    Examples
    --------
    >>> from imix.encoders.mel import Clip
    >>> imix.augment.audio.AudioViews(Clip())(torch.randn(4, 1, 16_000)).shape
    torch.Size([4, 32, 1025])
    """

    noise: Tensor | None

    def __init__(
        self, clip: Clip, noise: Tensor | None = None, output_transform: nn.Module | None = None, p: float = 0.5
    ) -> None:
        super().__init__()
        self.clip, self.p = clip, p
        self.spectrum, self.output_transform = Spectrum(), output_transform or nn.Identity()
        self.register_buffer("noise", noise, persistent=False)

    def __repr__(self) -> str:
        noise = "" if self.noise is None else f", noise up to {NOISE:g}"
        return f"amplitude, speed ± {SPEED:g}, stretch ± {STRETCH:g}, shift ± {self.clip.frames // 4} frames{noise}"

    def forward(self, waves: Tensor) -> Tensor:
        """Return a random view of each clip."""
        n, device = len(waves), waves.device
        draws = [*self.draw_change(n, device)]
        if self.noise is not None:
            noise_weight = self.with_probability_p(NOISE * torch.rand(n, device=device), 0.0)
            draws += [noise_weight, torch.randint(len(self.noise), (n,), device=device), *self.draw_change(n, device)]
        return in_parallel_chunks(self.transform, waves, *draws)

    def transform(self, waves: Tensor, *draws: Tensor) -> Tensor:
        """Return the views that the draws (N,) determine.

        The draws are the clip's `ClipChange` and, with noise, its weight, the index of the noise clip, and the noise's
        `ClipChange`.
        """
        spectra = self.apply_change(waves, *draws[:4])
        if self.noise is not None:
            spectra = apply_where(draws[4] > 0, self.add_noise, spectra, *draws[4:])
        return self.output_transform(spectra)

    def draw_change(self, n: int, device: torch.device) -> ClipChange:
        """Draw the changes of n clips."""

        def uniform(low: float, high: float) -> Tensor:
            return low + (high - low) * torch.rand(n, device=device)

        max_shift = self.clip.frames // 4
        return ClipChange(
            self.with_probability_p(uniform(*AMPLITUDE), 1.0),
            self.with_probability_p(1 / (1 + uniform(-SPEED, SPEED)), 1.0),
            self.with_probability_p(1 + uniform(-STRETCH, STRETCH), 1.0),
            self.with_probability_p(torch.randint(-max_shift, max_shift + 1, (n,), device=device), 0),
        )

    def with_probability_p(self, values: Tensor, neutral: float) -> Tensor:
        """Keep each value with probability p and replace the others by `neutral`."""
        return torch.where(torch.rand(len(values), device=values.device) < self.p, values, neutral)

    def apply_change(self, waves: Tensor, amplitude: Tensor, step: Tensor, rate: Tensor, shift: Tensor) -> Tensor:
        """Return the spectra (N, frames, BINS) of the changed clips."""
        waves = apply_where(step != 1, resample, amplitude.view(-1, 1, 1) * waves, step)
        z = self.spectrum(waves)
        if z.device.type != "cpu":
            return stretch_and_shift(z, rate, shift)
        z = apply_where(rate != 1, stretch_and_shift, z, rate, shift)
        return apply_where((rate == 1) & (shift != 0), shift_frames, z, shift)

    def add_noise(self, z: Tensor, noise_weight: Tensor, noise_index: Tensor, *noise_change: Tensor) -> Tensor:
        """Mix spectra with augmented noise of weight `noise_weight` (N,)."""
        assert self.noise is not None
        noise = self.apply_change(to_float(self.noise.index_select(0, noise_index)), *noise_change)
        mixed = torch.lerp(as_reals(z), as_reals(noise), noise_weight.view(-1, 1, 1))
        return torch.view_as_complex(mixed.unflatten(2, (-1, 2)))


def resample(waves: Tensor, step: Tensor) -> Tensor:
    """Resample waveforms (N, 1, L) at multiples of `step` (N,) by linear interpolation, padded with silence."""
    length = waves.shape[2]
    silence = (0, math.ceil(2 * SPEED * length))  # longer than the largest step needs
    here, after = (F.pad(x, silence) for x in (waves, torch.cat([waves[..., 1:], waves[..., -1:]], 2)))
    index = torch.arange(length, device=waves.device)
    offset = index * (step - 1)[:, None, None]  # relative to `index`, as float32 would be too imprecise
    offset_floor = offset.floor()
    left = index + offset_floor.long()
    return here.gather(2, left).lerp_(after.gather(2, left), offset - offset_floor)


def stretch_and_shift(z: Tensor, rate: Tensor, shift: Tensor) -> Tensor:
    """Stretch spectra (N, T, BINS) by `rate` (N,), then delay them by `shift` (N,) frames; the length stays T."""
    frames = z.shape[1]
    audible = torch.arange(frames, device=z.device) * rate[:, None] < frames
    return _vocoder(z, *(shift_frames(matrix, shift, frames, audible) for matrix in _vocoder_matrices(frames, rate)))


def _vocoder_matrices(frames: int, rate: Tensor) -> tuple[Tensor, Tensor]:
    """Return the matrices (N, new, old) that compute magnitudes and phases of new frames from those of the old.

    Magnitudes are interpolated. From one new frame to the next, the phase advances as between the two old frames
    around it. (The usual expected phase advance differs from that by whole turns and cancels.) After the last old
    frame there is silence.
    """
    old = torch.arange(frames, device=rate.device)
    position = torch.arange(math.ceil(frames / (1 - STRETCH)), device=rate.device) * rate[:, None]
    left = position.long()
    from_left, from_right = ((index[..., None] == old).float() for index in (left, left + 1))
    weights = torch.lerp(from_left, from_right, (position - left)[..., None])
    advances = F.pad((from_right - from_left)[:, :-1].cumsum(1), (0, 0, 1, 0))
    return weights, advances + (old == 0)


def _vocoder(z: Tensor, weights: Tensor, advances: Tensor) -> Tensor:
    # Real and imaginary parts separately, because complex arithmetic is slow; in place, because they are large.
    real, imaginary = z.real.contiguous(), z.imag.contiguous()
    magnitude = weights @ torch.hypot(real, imaginary)
    phase = advances @ imaginary.atan2_(real)
    return torch.complex(phase.cos().mul_(magnitude), phase.sin_().mul_(magnitude))


def shift_frames(z: Tensor, shift: Tensor, frames: int | None = None, audible: Tensor | None = None) -> Tensor:
    """Delay spectra (N, T, BINS) by `shift` (N,) frames, fill with silence, and keep the first `frames` (default T).

    Only the `audible` (N, frames) ones are kept; the others become silent.
    """
    source = torch.arange(frames or z.shape[1], device=z.device) - shift[:, None]
    silent = (source < 0) | (source >= z.shape[1])
    if audible is not None:
        silent = silent | ~audible
    sample = torch.arange(len(z), device=z.device)[:, None]
    return z[sample, source.clamp(0, z.shape[1] - 1)].masked_fill_(silent[..., None], 0)


def in_parallel_chunks(function: Callable[..., Tensor], x: Tensor, *draws: Tensor) -> Tensor:
    """Return `function(x, *draws)`; on a CPU, computed in parallel in chunks that fit into the cache."""
    if x.device.type != "cpu":
        return function(x, *draws)
    with _one_torch_thread() as threads:
        chunks = _group_by_change(draws).split(min(CHUNK, math.ceil(len(x) / threads)))
        results = _thread_pool(threads).map(
            lambda rows: function(*(tensor.index_select(0, rows) for tensor in (x, *draws))), chunks
        )
        views = x.new_empty(0)
        for rows, result in zip(chunks, results, strict=True):  # copy results as they arrive, to keep few in memory
            if not len(views):
                views = result.new_empty(len(x), *result.shape[1:])
            views.index_copy_(0, rows, result)
        return views


@contextmanager
def _one_torch_thread() -> Iterator[int]:
    """Limit torch to one thread per operation, and yield the previous number; other callers wait meanwhile."""
    with THREAD_COUNT_LOCK:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield threads
        finally:
            torch.set_num_threads(threads)


def _group_by_change(draws: tuple[Tensor, ...]) -> Tensor:
    """Return an order (N,) that puts samples with the same changes next to each other.

    It sorts by a Gray code of which changes a sample gets, the most expensive change first.
    """

    def changes(_amplitude: Tensor, step: Tensor, rate: Tensor, shift: Tensor) -> Tensor:
        return torch.stack([rate != 1, (rate == 1) & (shift != 0), step != 1])

    applied = changes(*draws[:4])  # (changes, N) bool
    if len(draws) > 4:
        noisy = draws[4] > 0
        applied = torch.cat([noisy[None], torch.stack([applied, noisy & changes(*draws[6:])], 1).flatten(0, 1)])
    return (2 ** torch.arange(len(applied)).flip(0) @ (applied.cumsum(0) % 2)).argsort(descending=True, stable=True)


@cache
def _thread_pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="views")


def apply_where(mask: Tensor, function: Callable[..., Tensor], x: Tensor, *draws: Tensor) -> Tensor:
    """Apply `function(x, *draws)` to the samples that the mask (N,) selects. May change x in place.

    The draws of the other samples have no effect. On a GPU the function is applied to all samples, because no shape
    may depend on random draws in a CUDA graph.
    """
    if x.device.type != "cpu":
        return function(x, *draws)
    rows = mask.nonzero()[:, 0]
    if len(rows) == len(x):
        return function(x, *draws)
    if len(rows) and rows[-1] - rows[0] < len(rows):  # contiguous: a slice needs no copy
        span = slice(int(rows[0]), int(rows[-1]) + 1)
        x[span] = function(x[span], *(draw[span] for draw in draws))
    elif len(rows):
        x.index_copy_(0, rows, function(x.index_select(0, rows), *(draw[rows] for draw in draws)))
    return x
