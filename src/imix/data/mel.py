"""Clips as pictures: from waveform to spectrum to decibels by mel band, a batch at a time, on any device.

What librosa gives with the same numbers: `stft` (reflected at the ends), `melspectrogram`, `power_to_db` with the
clip's maximum as 0 and a floor of -80.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

WINDOW, HOP = 2048, 512  # samples of an STFT's window, and between windows
BINS = WINDOW // 2 + 1  # frequencies of a spectrum
AT_ONCE = 1 << 24  # samples of which spectra are held, some 300 MB
FLOOR = 80.0  # decibels below a clip's maximum


@dataclass(frozen=True)
class Clip:
    """What all clips of a data set have in common: samples a second, samples, and mel bands to see them in."""

    rate: int = 16_000
    samples: int = 16_000
    mels: int = 32

    @property
    def frames(self) -> int:
        """Windows that fit into a clip."""
        return 1 + self.samples // HOP

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of the picture of a clip."""
        return (1, self.mels, self.frames)


class Spectrum(nn.Module):
    """The STFT: waveforms (N, 1, L) to complex spectra (N, frames, BINS)."""

    window: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(WINDOW), persistent=False)

    def forward(self, waves: Tensor) -> Tensor:
        """Spectra of a batch."""
        reach = WINDOW // 2
        waves = waves[:, 0].float()
        if waves.shape[1] > reach:
            before, after = waves[:, 1 : reach + 1].flip(1), waves[:, -reach - 1 : -1].flip(1)
        else:  # too short to be reflected
            before = after = waves.new_zeros(len(waves), reach)
        padded = torch.cat([before, waves, after], 1)  # sooner done than F.pad
        return torch.stft(padded, WINDOW, HOP, window=self.window, center=False, return_complex=True).transpose(1, 2)


class Mel(nn.Module):
    """Spectra (N, frames, BINS) to decibels (N, 1, mels, frames) in -80..0, each clip's maximum being 0.

    A spectrum is complex, or (N, frames, 2 BINS) with real and imaginary parts side by side, as it is mixed.
    """

    filters: Tensor

    def __init__(self, rate: int, mels: int) -> None:
        super().__init__()
        filters = torch.from_numpy(mel_filters(rate, mels).T).float()
        self.register_buffer("filters", filters.repeat_interleave(2, 0), persistent=False)  # for both parts

    def forward(self, spectra: Tensor) -> Tensor:
        """Pictures of a batch."""
        with torch.autocast(spectra.device.type, enabled=False):  # loud and faint are ten powers of ten apart
            power = as_reals(spectra).float().square() @ self.filters
            level = 10 * power.clamp(min=1e-10).log10()
            return (level - level.amax((1, 2), keepdim=True)).clamp(min=-FLOOR).transpose(1, 2)[:, None]


def as_reals(spectra: Tensor) -> Tensor:
    """Complex (N, frames, BINS) as (N, frames, 2 BINS), real and imaginary parts side by side."""
    return torch.view_as_real(spectra).flatten(2) if spectra.is_complex() else spectra


class Reals(nn.Module):
    """Spectra as they are mixed: `as_reals`."""

    def forward(self, spectra: Tensor) -> Tensor:
        """Fields of a batch."""
        return as_reals(spectra)


class LogMel(nn.Sequential):
    """Waveforms (N, 1, L) to pictures (N, 1, mels, frames): what an encoder of clips begins with."""

    def __init__(self, clip: Clip) -> None:
        super().__init__(Spectrum(), Mel(clip.rate, clip.mels))
        self.piece = max(1, AT_ONCE // clip.samples)

    def forward(self, waves: Tensor) -> Tensor:
        """Pictures of a batch; spectra are large, so only some are held at a time."""
        spectrum, mel = self
        return torch.cat([mel(spectrum(piece)) for piece in waves.split(self.piece)])


@cache
def mel_filters(rate: int, mels: int) -> np.ndarray:
    """Triangles of equal area on Slaney's mel scale, (mels, BINS), in float64."""
    top = _to_mel(rate / 2)
    edges = _to_hertz(np.linspace(0, top, mels + 2))
    frequencies = np.linspace(0, rate / 2, BINS)
    rising = (frequencies - edges[:-2, None]) / np.diff(edges)[:-1, None]
    falling = (edges[2:, None] - frequencies) / np.diff(edges)[1:, None]
    return np.maximum(0, np.minimum(rising, falling)) * (2 / (edges[2:] - edges[:-2]))[:, None]


# Slaney's scale: linear to 1000 Hz, where 15 mel are reached; above it 27 mel for a factor of 6.4.
def _to_mel(hertz: float) -> float:
    return 3 * hertz / 200 if hertz < 1000 else 15 + 27 * float(np.log(hertz / 1000) / np.log(6.4))


def _to_hertz(mel: np.ndarray) -> np.ndarray:
    return np.where(mel < 15, 200 * mel / 3, 1000 * 6.4 ** ((mel - 15) / 27))
