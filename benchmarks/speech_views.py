"""Views of one-second clips per second: imix on a batch, against the same steps with librosa, clip by clip.

    python benchmarks/speech_views.py                 # on the GPU where there is one
    python benchmarks/speech_views.py --device cpu

librosa runs on one core, as one worker of a loader does; multiply by the workers you have. Where librosa is not
installed, imix is measured alone.
"""

import argparse
from collections.abc import Callable

import numpy as np
import torch
from clock import tell_rates

from imix.augment import speech
from imix.augment.speech import SpeechViews
from imix.data.mel import HOP, WINDOW, Clip, Mel

CLIP = Clip()


def with_librosa(rng: np.random.Generator, waves: np.ndarray, noises: np.ndarray) -> Callable[[], int]:
    """The paper's views as one would write them with librosa."""
    import librosa
    from threadpoolctl import threadpool_limits  # comes with librosa

    def spectrum(wave: np.ndarray) -> np.ndarray:
        if rng.random() < 0.5:
            wave = wave * np.float32(rng.uniform(*speech.AMPLITUDE))
        if rng.random() < 0.5:
            step = 1 / (1 + rng.uniform(-speech.SPEED, speech.SPEED))
            wave = np.interp(np.arange(0, len(wave), step), np.arange(len(wave)), wave).astype(np.float32)
        wave = librosa.util.fix_length(wave, size=CLIP.samples)
        z = librosa.stft(wave, n_fft=WINDOW, hop_length=HOP)
        if rng.random() < 0.5:
            z = librosa.phase_vocoder(z, rate=1 + rng.uniform(-speech.STRETCH, speech.STRETCH), hop_length=HOP)
        if rng.random() < 0.5:
            shift = int(rng.integers(-8, 9))
            z = np.roll(z, shift, axis=1)
            z[:, slice(0, shift) if shift >= 0 else slice(shift, None)] = 0
        return librosa.util.fix_length(z, size=CLIP.frames, axis=1)

    filters = librosa.filters.mel(sr=CLIP.rate, n_fft=WINDOW, n_mels=CLIP.mels)

    def view(wave: np.ndarray) -> np.ndarray:
        z = spectrum(wave)
        if rng.random() < 0.5:
            share = rng.uniform(0, speech.NOISE)
            z = z * (1 - share) + spectrum(noises[rng.integers(len(noises))]) * share
        return librosa.power_to_db(filters @ np.abs(z) ** 2, ref=np.max)

    def views() -> int:
        with threadpool_limits(1):  # or numpy's product with the filters keeps every core busy, to no gain
            return len([view(wave) for wave in waves])

    return views


def main() -> None:
    """One line of JSON for each way, and a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch", type=int, default=512)
    given = parser.parse_args()
    device = torch.device(given.device)
    rng = np.random.default_rng(0)
    clips = (3000 * rng.standard_normal((given.batch, 1, CLIP.samples))).astype(np.int16)
    noise = (1000 * rng.standard_normal((100, 1, CLIP.samples))).astype(np.int16)
    waves = (torch.from_numpy(clips).float() / 32768).to(device)
    views = SpeechViews(CLIP, torch.from_numpy(noise), then=Mel(CLIP.rate, CLIP.mels)).to(device)  # as in training
    ways: dict[str, Callable[[], int]] = {"imix": lambda: len(views(waves))}
    if device.type == "cuda":
        compiled = torch.compile(views)
        ways["imix, compiled"] = lambda: len(compiled(waves))
    try:
        plain = with_librosa(rng, waves[:64, 0].cpu().numpy(), noise[:, 0].astype(np.float32) / 32768)
        ways["librosa, one core"] = plain
    except ImportError:
        print("librosa is not installed: left out")
    tell_rates(ways, device)


if __name__ == "__main__":
    main()
