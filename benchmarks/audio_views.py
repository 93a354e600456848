"""Views of one-second audio clips per second: imix on batches, against the same steps with librosa, clip by clip.

    python benchmarks/audio_views.py                 # on the GPU, if there is one
    python benchmarks/audio_views.py --device cpu

librosa runs on one core, like one worker of a data loader; multiply its number by your workers. It is skipped if it is
not installed.
"""

import argparse
from collections.abc import Callable

import numpy as np
import torch
from timing import print_throughputs

from imix.augment import audio
from imix.encoders.mel import HOP, WINDOW, Clip, Mel

CLIP = Clip()


def librosa_views(rng: np.random.Generator, waves: np.ndarray, noise: np.ndarray) -> Callable[[], int]:
    """Return the paper's augmentation, written with librosa."""
    import librosa
    from threadpoolctl import threadpool_limits  # a dependency of librosa

    def augmented_spectrum(wave: np.ndarray) -> np.ndarray:
        if rng.random() < 0.5:
            wave = wave * np.float32(rng.uniform(*audio.AMPLITUDE))
        if rng.random() < 0.5:
            step = 1 / (1 + rng.uniform(-audio.SPEED, audio.SPEED))
            wave = np.interp(np.arange(0, len(wave), step), np.arange(len(wave)), wave).astype(np.float32)
        wave = librosa.util.fix_length(wave, size=CLIP.samples)
        z = librosa.stft(wave, n_fft=WINDOW, hop_length=HOP)
        if rng.random() < 0.5:
            z = librosa.phase_vocoder(z, rate=1 + rng.uniform(-audio.STRETCH, audio.STRETCH), hop_length=HOP)
        if rng.random() < 0.5:
            shift = int(rng.integers(-8, 9))
            z = np.roll(z, shift, axis=1)
            z[:, slice(0, shift) if shift >= 0 else slice(shift, None)] = 0
        return librosa.util.fix_length(z, size=CLIP.frames, axis=1)

    filters = librosa.filters.mel(sr=CLIP.sample_rate, n_fft=WINDOW, n_mels=CLIP.n_mels)

    def view(wave: np.ndarray) -> np.ndarray:
        z = augmented_spectrum(wave)
        if rng.random() < 0.5:
            share = rng.uniform(0, audio.NOISE)
            z = z * (1 - share) + augmented_spectrum(noise[rng.integers(len(noise))]) * share
        return librosa.power_to_db(filters @ np.abs(z) ** 2, ref=np.max)

    def make_views() -> int:
        with threadpool_limits(1):  # otherwise numpy multiplies the filters on all cores, which is no faster
            return len([view(wave) for wave in waves])

    return make_views


def main() -> None:
    """Print a line of JSON for each variant, and a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch", type=int, default=512)
    args = parser.parse_args()
    device = torch.device(args.device)
    rng = np.random.default_rng(0)
    clips = (3000 * rng.standard_normal((args.batch, 1, CLIP.samples))).astype(np.int16)
    noise = (1000 * rng.standard_normal((100, 1, CLIP.samples))).astype(np.int16)
    waves = (torch.from_numpy(clips).float() / 32768).to(device)
    mel = Mel(CLIP.sample_rate, CLIP.n_mels)
    augment = audio.AudioViews(CLIP, torch.from_numpy(noise), output_transform=mel).to(device)  # as in training
    variants: dict[str, Callable[[], int]] = {"imix": lambda: len(augment(waves))}
    if device.type == "cuda":
        compiled = torch.compile(augment)
        variants["imix, compiled"] = lambda: len(compiled(waves))
    try:
        float_noise = noise[:, 0].astype(np.float32) / 32768
        variants["librosa, one core"] = librosa_views(rng, waves[:64, 0].cpu().numpy(), float_noise)
    except ImportError:
        print("skipped librosa, which is not installed")
    print_throughputs(variants, device)


if __name__ == "__main__":
    main()
