"""Mel spectrograms against librosa."""

import librosa
import numpy as np
import pytest
import torch
from torch.testing import assert_close

from imix.encoders.mel import HOP, WINDOW, Clip, LogMel, Mel, Spectrum, as_reals, mel_filters
from tests.encoders.audio_helpers import (
    CLIP,
    assert_mel_close,
    assert_spectra_close,
    doubles,
    mel_spectrogram,
    stft,
    waves,
)


@pytest.mark.parametrize("samples", [1025, 1536, 2048, 5000, 16_000, 16_384, 22_050])
@pytest.mark.slow
def test_spectrum_matches_librosa(samples):
    x = waves(samples=samples)
    for ours, wave in zip(Spectrum()(x), doubles(x), strict=True):
        assert_spectra_close(ours, stft(wave), 1e-6)


@pytest.mark.parametrize("samples", [1, 511, 512, 1024])
def test_a_clip_too_short_for_reflection_is_padded_with_silence(samples):
    x = waves(samples=samples)
    for ours, wave in zip(Spectrum()(x), doubles(x), strict=True):
        assert_spectra_close(ours, stft(wave, "constant"), 1e-6)


@pytest.mark.parametrize("samples", [1, 511, 512, 1024, 16_000, 16_383, 16_384])
def test_clip_shape_is_the_shape_of_its_mel_spectrogram(samples):
    clip = Clip(samples=samples, n_mels=20)
    assert LogMel(clip)(waves(2, samples)).shape == (2, *clip.shape) == (2, 1, 20, 1 + samples // 512)


@pytest.mark.parametrize("sample_rate", [8000, 11_025, 16_000, 22_050, 44_100, 48_000])
@pytest.mark.parametrize("n_mels", [13, 32, 40, 64, 80])
@pytest.mark.slow
def test_mel_filters_match_librosa(sample_rate, n_mels):
    theirs = librosa.filters.mel(sr=sample_rate, n_fft=WINDOW, n_mels=n_mels, dtype=np.float64)
    np.testing.assert_allclose(mel_filters(sample_rate, n_mels), theirs, rtol=1e-7, atol=1e-12 * theirs.max())


@pytest.mark.parametrize("clip", [CLIP, Clip(8000, 12_345, 40), Clip(44_100, 44_100, 64)])
@pytest.mark.slow
def test_mel_spectrogram_matches_librosa(clip):
    x = waves(samples=clip.samples)
    for ours, wave in zip(LogMel(clip)(x), doubles(x), strict=True):
        power = librosa.feature.melspectrogram(
            y=wave, sr=clip.sample_rate, n_fft=WINDOW, hop_length=HOP, n_mels=clip.n_mels, pad_mode="reflect"
        )
        assert_mel_close(ours, librosa.power_to_db(power, ref=np.max), 1e-3)


@pytest.mark.slow
def test_quiet_parts_are_clipped_at_the_floor_as_in_librosa():
    x = waves()
    x[:, :, 8000:] *= 1e-6
    for ours, wave in zip(LogMel(CLIP)(x), doubles(x), strict=True):
        assert ours.min() == -80
        assert_mel_close(ours, mel_spectrogram(stft(wave)), 1e-3)


@pytest.mark.parametrize("volume", [1e-7, 1e-5, 1e-3, 1, 32_768])
@pytest.mark.slow
def test_mel_spectrogram_matches_librosa_at_any_volume(volume):
    x = volume * waves()
    for ours, wave in zip(LogMel(CLIP)(x), doubles(x), strict=True):
        assert_mel_close(ours, mel_spectrogram(stft(wave)), 1e-3)


def test_a_silent_clip_has_0_decibels_everywhere():
    assert torch.equal(LogMel(CLIP)(torch.zeros(3, 1, CLIP.samples)), torch.zeros(3, *CLIP.shape))


def test_mel_spectrograms_are_between_minus_80_and_0_decibels():
    x = torch.cat([waves(), waves() ** 15, 1e-9 * waves(), torch.zeros(1, 1, CLIP.samples)])
    spectrograms = LogMel(CLIP)(x)
    assert (spectrograms.amax((1, 2, 3)) == 0).all() and (spectrograms >= -80).all()


def test_mel_spectrogram_does_not_depend_on_the_other_clips_of_the_batch():
    x = waves()
    x[1] *= 1000
    x[2] = 0
    together = LogMel(CLIP)(x)
    for i in range(len(x)):
        assert_close(LogMel(CLIP)(x[i : i + 1])[0], together[i], atol=1e-3, rtol=0)


def test_mel_accepts_complex_spectra_and_their_real_form():
    z, mel = Spectrum()(waves()), Mel(CLIP.sample_rate, CLIP.n_mels)
    assert torch.equal(mel(z), mel(as_reals(z)))


def test_as_reals_interleaves_real_and_imaginary_parts():
    z = Spectrum()(waves())
    parts = as_reals(z)
    assert torch.equal(torch.complex(parts[..., ::2], parts[..., 1::2]), z)


@pytest.mark.slow
def test_mel_spectrogram_matches_librosa_under_autocast():
    x = waves()
    with torch.autocast("cpu", torch.bfloat16):
        spectrograms = LogMel(CLIP)(x)
    assert spectrograms.dtype == torch.float32
    for ours, wave in zip(spectrograms, doubles(x), strict=True):
        assert_mel_close(ours, mel_spectrogram(stft(wave)), 1e-3)


@pytest.mark.parametrize("lam", [0.0, 0.3, 0.9, 1.0])
def test_mixing_spectra_equals_mixing_waveforms(lam):
    a, b, spectrum = waves(seed=1), waves(seed=2), Spectrum()
    mixed = lam * as_reals(spectrum(a)) + (1 - lam) * as_reals(spectrum(b))
    assert_close(Mel(CLIP.sample_rate, CLIP.n_mels)(mixed), LogMel(CLIP)(lam * a + (1 - lam) * b), atol=0.01, rtol=0)


def test_log_mel_has_no_parameters_and_no_state():
    assert not list(LogMel(CLIP).parameters()) and not LogMel(CLIP).state_dict()
