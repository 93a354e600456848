"""Fixtures for the tests of data."""

import numpy as np
import pytest

from tests.data.media.helpers import SAMPLE_RATE, tone, write_audio


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache folder for this test."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("IMIX_CACHE", str(folder))
    return folder


@pytest.fixture
def tones(tmp_path):
    """A folder of twelve clips of 0.25 seconds in two classes, low and high tones."""
    for i in range(6):
        write_audio(tmp_path / "tones" / "low" / f"{i}.wav", tone(200 + 10 * i))
        write_audio(tmp_path / "tones" / "high" / "more" / f"{i}.flac", tone(3000 + 50 * i))
    return tmp_path / "tones"


@pytest.fixture
def tones_with_noise(tones):
    """The folder `tones` with half a second of background noise."""
    write_audio(tones / "_background_noise_" / "hiss.wav", np.random.default_rng(0).normal(0, 0.1, SAMPLE_RATE // 2))
    return tones
