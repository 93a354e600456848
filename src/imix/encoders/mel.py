"""Mel spectrograms as an input layer, batched and on any device.

The results agree with librosa: `stft` with reflection padding, `melspectrogram`, and `power_to_db` relative to the
clip's maximum, clipped at -80 dB.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from imix.errors import InputError

WINDOW, HOP = 2048, 512  # STFT window length and hop length, in samples
BINS = WINDOW // 2 + 1  # frequency bins of the STFT
FLOOR = 80.0  # decibels below the clip's maximum at which the mel spectrogram is clipped
MAX_CHUNK_SAMPLES = 1 << 24  # LogMel holds the spectra of at most this many audio samples, about 300 MB
CLIP_LIMITS = {"sample_rate": 1_000_000, "samples": 1 << 28, "n_mels": BINS}  # more bands than bins would be empty


@dataclass(frozen=True)
class Clip:
    """Format that all audio clips of a data set share.

    Parameters
    ----------
    sample_rate : int
        Samples per second.
    samples : int
        Length of a clip, in samples.
    n_mels : int
        Number of mel bands.
    """

    sample_rate: int = 16_000
    samples: int = 16_000
    n_mels: int = 32

    @property
    def frames(self) -> int:
        """Number of STFT frames of a clip."""
        return 1 + self.samples // HOP

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of a clip's mel spectrogram: (1, n_mels, frames)."""
        return (1, self.n_mels, self.frames)


class Spectrum(nn.Module):
    """STFT: waveforms (N, 1, L) to complex spectra (N, frames, BINS)."""

    window: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(WINDOW), persistent=False)

    def forward(self, waves: Tensor) -> Tensor:
        """Return the spectra of a batch."""
        padding = WINDOW // 2
        waves = waves[:, 0].float()  # (N, L)
        if waves.shape[1] > padding:
            before, after = waves[:, 1 : padding + 1].flip(1), waves[:, -padding - 1 : -1].flip(1)
        else:  # too short for reflection
            before = after = waves.new_zeros(len(waves), padding)
        padded = torch.cat([before, waves, after], 1)  # faster than F.pad
        return torch.stft(padded, WINDOW, HOP, window=self.window, center=False, return_complex=True).transpose(1, 2)


class Mel(nn.Module):
    """Mel spectrogram in decibels: spectra (N, frames, BINS) to (N, 1, n_mels, frames).

    Values are between -80 and 0 dB; 0 is the maximum of each clip. The input is complex, or real of shape
    (N, frames, 2 * BINS) as returned by `as_reals`.

    Parameters
    ----------
    sample_rate : int
        Samples per second of the waveforms.
    n_mels : int
        Number of mel bands.
    """

    filters: Tensor  # (2 * BINS, n_mels)

    def __init__(self, sample_rate: int, n_mels: int) -> None:
        super().__init__()
        filters = torch.from_numpy(mel_filters(sample_rate, n_mels).T).float()
        # Each row twice, for the real and the imaginary part: power is the sum of their squares.
        self.register_buffer("filters", filters.repeat_interleave(2, 0), persistent=False)

    def forward(self, spectra: Tensor) -> Tensor:
        """Return the mel spectrograms of a batch."""
        with torch.autocast(spectra.device.type, enabled=False):  # power spans ten orders of magnitude
            power = as_reals(spectra).float().square() @ self.filters  # (N, frames, n_mels)
            decibels = 10 * power.clamp(min=1e-10).log10()
            return (decibels - decibels.amax((1, 2), keepdim=True)).clamp(min=-FLOOR).transpose(1, 2)[:, None]


def as_reals(spectra: Tensor) -> Tensor:
    """Return complex spectra (N, frames, BINS) as real (N, frames, 2 * BINS), parts interleaved; keep real input."""
    return torch.view_as_real(spectra).flatten(2) if spectra.is_complex() else spectra


class AsReals(nn.Module):
    """`as_reals` as a module: the form in which spectra are mixed."""

    def forward(self, spectra: Tensor) -> Tensor:
        """Return the spectra of a batch as real numbers."""
        return as_reals(spectra)


class LogMel(nn.Sequential):
    """Input layer of audio encoders: waveforms (N, 1, L) to mel spectrograms (N, 1, n_mels, frames).

    Parameters
    ----------
    clip : Clip
        Format of the clips.

    Examples
    --------
    >>> from imix.encoders.mel import Clip, LogMel
    >>> LogMel(Clip(n_mels=20))(torch.randn(2, 1, 16_000)).shape
    torch.Size([2, 1, 20, 32])
    """

    def __init__(self, clip: Clip) -> None:
        for name, limit in CLIP_LIMITS.items():
            if not 1 <= getattr(clip, name) <= limit:
                raise InputError(f"`{name}` of audio must be between 1 and {limit:,}; got {getattr(clip, name):.3g}")
        super().__init__(Spectrum(), Mel(clip.sample_rate, clip.n_mels))
        self.chunk_size = max(1, MAX_CHUNK_SAMPLES // clip.samples)

    def forward(self, waves: Tensor) -> Tensor:
        """Return the mel spectrograms of a batch, computed in chunks because spectra need much memory."""
        spectrum, mel = self
        return torch.cat([mel(spectrum(chunk)) for chunk in waves.split(self.chunk_size)])


@cache
def mel_filters(sample_rate: int, n_mels: int) -> np.ndarray:
    """Return triangular filters of equal area on Slaney's mel scale, (n_mels, BINS), in float64."""
    edges = _mel_to_hertz(np.linspace(0, _hertz_to_mel(sample_rate / 2), n_mels + 2))
    frequencies = np.linspace(0, sample_rate / 2, BINS)
    rising = (frequencies - edges[:-2, None]) / np.diff(edges)[:-1, None]
    falling = (edges[2:, None] - frequencies) / np.diff(edges)[1:, None]
    return np.maximum(0, np.minimum(rising, falling)) * (2 / (edges[2:] - edges[:-2]))[:, None]


# Slaney's scale is linear up to 1000 Hz (15 mel) and logarithmic above (27 mel per factor of 6.4).
def _hertz_to_mel(hertz: float) -> float:
    return 3 * hertz / 200 if hertz < 1000 else 15 + 27 * float(np.log(hertz / 1000) / np.log(6.4))


def _mel_to_hertz(mel: np.ndarray) -> np.ndarray:
    return np.where(mel < 15, 200 * mel / 3, 1000 * 6.4 ** ((mel - 15) / 27))
