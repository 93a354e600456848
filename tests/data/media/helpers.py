"""Audio and image files for the tests of data."""

import os

import numpy as np
import soundfile
from PIL import Image

from imix import DataSettings, Settings

SAMPLE_RATE = 16_000
SHORT_CLIPS = DataSettings(seconds=0.25, sample_rate=8000)  # 2000 samples, four frames
QUICK = Settings(epochs=2, batch_size=4, device="cpu")
BROKEN_KINDS = ["text", "zero bytes", "no samples", "cut within its header", "nan", "inf"]


def tone(hertz=440.0, seconds=0.25, rate=SAMPLE_RATE, amplitude=0.5):
    """A sine wave."""
    return amplitude * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)


def write_audio(path, wave=None, rate=SAMPLE_RATE, subtype=None, format=None):
    """Write an audio file; by default a tone whose pitch depends on the file name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    wave = tone(200 + sum(os.fsencode(path.name)) % 50 * 40, rate=rate) if wave is None else wave
    with open(path, "wb") as file:  # soundfile cannot open every file name
        soundfile.write(file, wave, rate, subtype, format=format or path.suffix[1:].upper())
    return path


def fit_tone(wave, hertz, rate=SAMPLE_RATE):
    """Amplitude of a tone in a wave, and the standard deviation of the residual."""
    t = np.arange(len(wave)) / rate
    basis = np.stack([np.sin(2 * np.pi * hertz * t), np.cos(2 * np.pi * hertz * t)], 1)
    coefficients, *_ = np.linalg.lstsq(basis, wave, rcond=None)
    return np.hypot(*coefficients), np.std(wave - basis @ coefficients)


def write_broken(path, kind):
    """Write an audio file that cannot be decoded; `kind` is one of BROKEN_KINDS."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "text":
        path.write_bytes(b"not an audio file\n" * 100)
    elif kind == "zero bytes":
        path.write_bytes(b"")
    elif kind == "no samples":
        write_audio(path, np.zeros(0))
    elif kind == "cut within its header":
        path.write_bytes(write_audio(path).read_bytes()[:20])
    else:
        write_audio(path, np.array([0.1, float(kind), 0.2] * 100), subtype="FLOAT")
    return path


def write_image(path, size=(40, 40), color=(200, 100, 50), mode="RGB", **options):
    """Write an image of one color with noise that depends on the file name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(sum(map(ord, path.name))).integers(0, 40, (size[1], size[0], 3))
    image = Image.fromarray(np.uint8(np.clip(np.array(color) + noise - 20, 0, 255)))
    image.convert(mode).save(path, **options)
    return path
