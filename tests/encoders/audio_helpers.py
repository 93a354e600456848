"""Waveforms, and spectra and mel spectrograms computed by librosa, for the tests of audio."""

import warnings

import librosa
import numpy as np
import torch
from torch.testing import assert_close

from imix.encoders.mel import HOP, WINDOW, Clip

CLIP = Clip()


def waves(n=6, samples=CLIP.samples, seed=0):
    """Tones with changing pitch and volume, and a little noise."""
    rng = np.random.default_rng(seed)
    t = np.arange(samples) / samples
    low, high = rng.uniform(80, 4000, (2, n, 1)) * samples / CLIP.sample_rate
    tones = np.sin(2 * np.pi * (low * t + (high - low) * t**2 / 2)) * np.exp(-3 * t * rng.random((n, 1)))
    return torch.from_numpy(0.5 * tones + 0.02 * rng.standard_normal((n, samples))).float()[:, None]


def doubles(x):
    return x.squeeze(1).double().numpy()


def stft(wave, pad_mode="reflect"):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="n_fft=")
        return librosa.stft(wave, n_fft=WINDOW, hop_length=HOP, pad_mode=pad_mode)


def mel_spectrogram(z, clip=CLIP):
    power = librosa.feature.melspectrogram(S=np.abs(z) ** 2, sr=clip.sample_rate, n_fft=WINDOW, n_mels=clip.n_mels)
    return librosa.power_to_db(power, ref=np.max)


def assert_spectra_close(ours, theirs, tolerance):
    """Compare (frames, BINS) with (BINS, frames), with a tolerance relative to the maximum of each frame."""
    ours = ours.numpy().T
    assert ours.shape == theirs.shape
    assert (np.abs(ours - theirs).max(0) <= tolerance * np.abs(theirs).max(0)).all()


def assert_mel_close(ours, theirs, tolerance):
    """Compare (1, n_mels, frames) with (n_mels, frames), with a tolerance in decibels."""
    assert_close(ours[0].double(), torch.from_numpy(theirs), atol=tolerance, rtol=0)
