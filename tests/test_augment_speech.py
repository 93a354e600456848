"""Clips: pictures against librosa's, steps of views against librosa and numpy clip by clip, and draws as asked."""

import itertools
import math
import warnings

import librosa
import numpy as np
import pytest
import torch
from torch.testing import assert_close

from imix.augment import speech
from imix.augment.speech import (
    Draw,
    SpeechViews,
    _neighbours,
    _vocoder,
    _vocoder_matrices,
    apply,
    moved,
    resampled,
    shifted,
    where,
)
from imix.data.mel import BINS, HOP, WINDOW, Clip, LogMel, Mel, Spectrum, as_reals, mel_filters

CLIP = Clip()
MANY = 20_000
UNCHANGED = Draw(*(torch.tensor([number]) for number in (1.0, 1.0, 1.0, 0)))


def waves(n=6, samples=CLIP.samples, seed=0):
    """Tones that glide and fade, with a little noise."""
    rng = np.random.default_rng(seed)
    t = np.arange(samples) / samples
    low, high = rng.uniform(80, 4000, (2, n, 1)) * samples / CLIP.rate
    tones = np.sin(2 * np.pi * (low * t + (high - low) * t**2 / 2)) * np.exp(-3 * t * rng.random((n, 1)))
    return torch.from_numpy(0.5 * tones + 0.02 * rng.standard_normal((n, samples))).float()[:, None]


def doubles(x):
    return x.squeeze(1).double().numpy()


def stft(wave, pad_mode="reflect"):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="n_fft=")
        return librosa.stft(wave, n_fft=WINDOW, hop_length=HOP, pad_mode=pad_mode)


def picture(z, clip=CLIP):
    power = librosa.feature.melspectrogram(S=np.abs(z) ** 2, sr=clip.rate, n_fft=WINDOW, n_mels=clip.mels)
    return librosa.power_to_db(power, ref=np.max)


def assert_spectra_close(ours, theirs, tolerance):
    """Ours (frames, BINS), theirs (BINS, frames), to a share of what is loudest in each frame."""
    ours = ours.numpy().T
    assert ours.shape == theirs.shape
    assert (np.abs(ours - theirs).max(0) <= tolerance * np.abs(theirs).max(0)).all()


def assert_pictures_close(ours, theirs, tolerance):
    """Ours (1, mels, frames) to so many decibels."""
    assert_close(ours[0].double(), torch.from_numpy(theirs), atol=tolerance, rtol=0)


# --- pictures, against librosa ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("samples", [1025, 1536, 2048, 5000, 16_000, 16_384, 22_050])
def test_a_spectrum_is_librosas(samples):
    x = waves(samples=samples)
    for ours, wave in zip(Spectrum()(x), doubles(x), strict=True):
        assert_spectra_close(ours, stft(wave), 1e-6)


@pytest.mark.parametrize("samples", [1, 511, 512, 1024])
def test_a_clip_too_short_to_be_reflected_is_surrounded_by_silence(samples):
    x = waves(samples=samples)
    for ours, wave in zip(Spectrum()(x), doubles(x), strict=True):
        assert_spectra_close(ours, stft(wave, "constant"), 1e-6)


@pytest.mark.parametrize("samples", [1, 511, 512, 1024, 16_000, 16_383, 16_384])
def test_a_clip_knows_its_picture(samples):
    clip = Clip(samples=samples, mels=20)
    assert LogMel(clip)(waves(2, samples)).shape == (2, *clip.shape) == (2, 1, 20, 1 + samples // 512)


@pytest.mark.parametrize("rate", [8000, 11_025, 16_000, 22_050, 44_100, 48_000])
@pytest.mark.parametrize("mels", [13, 32, 40, 64, 80])
def test_mel_filters_are_librosas(rate, mels):
    theirs = librosa.filters.mel(sr=rate, n_fft=WINDOW, n_mels=mels, dtype=np.float64)
    np.testing.assert_allclose(mel_filters(rate, mels), theirs, rtol=1e-7, atol=1e-12 * theirs.max())


@pytest.mark.parametrize("clip", [CLIP, Clip(8000, 12_345, 40), Clip(44_100, 44_100, 64)])
def test_a_picture_is_librosas(clip):
    x = waves(samples=clip.samples)
    for ours, wave in zip(LogMel(clip)(x), doubles(x), strict=True):
        power = librosa.feature.melspectrogram(
            y=wave, sr=clip.rate, n_fft=WINDOW, hop_length=HOP, n_mels=clip.mels, pad_mode="reflect"
        )
        assert_pictures_close(ours, librosa.power_to_db(power, ref=np.max), 1e-3)


def test_a_faint_part_is_at_the_floor_as_librosas():
    x = waves()
    x[:, :, 8000:] *= 1e-6
    for ours, wave in zip(LogMel(CLIP)(x), doubles(x), strict=True):
        assert ours.min() == -80
        assert_pictures_close(ours, picture(stft(wave)), 1e-3)


@pytest.mark.parametrize("loudness", [1e-7, 1e-5, 1e-3, 1, 32_768])
def test_a_picture_is_librosas_however_loud_the_clip(loudness):
    x = loudness * waves()
    for ours, wave in zip(LogMel(CLIP)(x), doubles(x), strict=True):
        assert_pictures_close(ours, picture(stft(wave)), 1e-3)


def test_a_silent_clip_is_0_decibels_everywhere():
    assert torch.equal(LogMel(CLIP)(torch.zeros(3, 1, CLIP.samples)), torch.zeros(3, *CLIP.shape))


def test_pictures_reach_from_their_maximum_0_down_to_80_below():
    x = torch.cat([waves(), waves() ** 15, 1e-9 * waves(), torch.zeros(1, 1, CLIP.samples)])
    pictures = LogMel(CLIP)(x)
    assert (pictures.amax((1, 2, 3)) == 0).all() and (pictures >= -80).all()


def test_a_picture_does_not_depend_on_its_batch():
    x = waves()
    x[1] *= 1000
    x[2] = 0
    whole = LogMel(CLIP)(x)
    for i in range(len(x)):
        assert_close(LogMel(CLIP)(x[i : i + 1])[0], whole[i], atol=1e-3, rtol=0)


def test_a_picture_is_the_same_of_a_complex_spectrum_and_of_its_parts():
    z, mel = Spectrum()(waves()), Mel(CLIP.rate, CLIP.mels)
    assert torch.equal(mel(z), mel(as_reals(z)))


def test_parts_of_a_spectrum_are_a_real_and_an_imaginary_one_side_by_side():
    z = Spectrum()(waves())
    parts = as_reals(z)
    assert torch.equal(torch.complex(parts[..., ::2], parts[..., 1::2]), z)


def test_a_picture_is_librosas_inside_autocast():
    x = waves()
    with torch.autocast("cpu", torch.bfloat16):
        pictures = LogMel(CLIP)(x)
    assert pictures.dtype == torch.float32
    for ours, wave in zip(pictures, doubles(x), strict=True):
        assert_pictures_close(ours, picture(stft(wave)), 1e-3)


@pytest.mark.parametrize("lam", [0.0, 0.3, 0.9, 1.0])
def test_to_mix_spectra_is_to_mix_waveforms(lam):
    a, b, spectrum = waves(seed=1), waves(seed=2), Spectrum()
    mixed = lam * as_reals(spectrum(a)) + (1 - lam) * as_reals(spectrum(b))
    assert_close(Mel(CLIP.rate, CLIP.mels)(mixed), LogMel(CLIP)(lam * a + (1 - lam) * b), atol=0.01, rtol=0)


def test_pictures_have_nothing_to_learn_or_store():
    assert not list(LogMel(CLIP).parameters()) and not LogMel(CLIP).state_dict()


# --- steps of views, against numpy and librosa -----------------------------------------------------------------------


def interpolated(wave, step):
    places = np.arange(0, len(wave), step)
    return librosa.util.fix_length(np.interp(places, np.arange(len(wave)), wave), size=len(wave))


@pytest.mark.parametrize("step", [0.8125, 0.84, 0.99, 1.0, 1.01, 1.2, 1.25])
def test_a_resampled_clip_is_numpys(step):
    x, steps = waves(2), torch.full((2,), step)
    expected = [interpolated(wave, float(steps[0])) for wave in doubles(x)]
    np.testing.assert_allclose(resampled(x, steps)[:, 0], expected, rtol=0, atol=2e-4)


def test_resampled_clips_have_steps_of_their_own():
    x, steps = waves(24), 1 / torch.linspace(0.8, 1.2, 24)
    expected = [interpolated(wave, float(step)) for wave, step in zip(doubles(x), steps, strict=True)]
    np.testing.assert_allclose(resampled(x, steps)[:, 0], expected, rtol=0, atol=2e-4)


def test_places_in_a_long_clip_are_right_to_a_five_hundredth_of_a_sample():
    x = torch.arange(160_000.0).expand(9, 1, -1)
    steps = 1 / torch.linspace(0.8, 1.2, 9)
    for ours, step in zip(resampled(x, steps)[:, 0].double().numpy(), steps.tolist(), strict=True):
        places = np.minimum(step * np.arange(160_000), 159_999)
        places[step * np.arange(160_000) >= 160_000] = 0
        within = np.abs(ours - places) - np.spacing(np.float32(places))  # what float32 can tell of so large a number
        assert within.max() < 1 / 500


def test_a_long_resampled_clip_is_numpys():
    x, steps = waves(6, 160_000), 1 / torch.linspace(0.8, 1.2, 6)
    expected = [interpolated(wave, float(step)) for wave, step in zip(doubles(x), steps, strict=True)]
    np.testing.assert_allclose(resampled(x, steps)[:, 0], expected, rtol=0, atol=1e-3)


def test_a_clip_resampled_at_every_sample_is_itself():
    assert torch.equal(resampled(waves(), torch.ones(6)), waves())


def vocoded(z, rate):
    return librosa.phase_vocoder(z.numpy().T.astype(np.complex128), rate=rate, hop_length=HOP)


def stretched(z, rate):
    """Spectra (N, T, BINS) played `rate` (N,) times as fast at the same pitch."""
    return _vocoder(z, *_vocoder_matrices(z.shape[1], rate))


@pytest.mark.parametrize("rate", [0.8, 0.8125, 0.9, 0.97, 1.0, 1.03, 1.1, 1.1875, 1.2])
def test_a_stretched_spectrum_is_librosas(rate):
    z = Spectrum()(waves())
    for ours, clip in zip(stretched(z, torch.full((6,), rate)), z, strict=True):
        theirs = vocoded(clip, rate)
        assert_spectra_close(ours[: theirs.shape[1]], theirs, 5e-5)


def test_stretched_spectra_have_rates_of_their_own():
    z, rates = Spectrum()(waves()), torch.linspace(0.81, 1.19, 6)
    for ours, clip, rate in zip(stretched(z, rates), z, rates.tolist(), strict=True):
        theirs = vocoded(clip, rate)
        assert_spectra_close(ours[: theirs.shape[1]], theirs, 5e-5)


def test_a_long_stretched_spectrum_is_librosas():
    z, rates = Spectrum()(waves(4, 160_000)), torch.tensor([0.8, 0.9731, 1.0371, 1.1713])
    for ours, clip, rate in zip(stretched(z, rates), z, rates.tolist(), strict=True):
        theirs = vocoded(clip, rate)
        assert_spectra_close(ours[: theirs.shape[1]], theirs, 2e-4)


@pytest.mark.parametrize("rate", [0.8, 0.9, 1.0, 1.1, 1.2])
def test_a_stretched_spectrum_ends_in_silence(rate):
    z = Spectrum()(waves())
    assert not stretched(z, torch.full((6,), rate))[:, math.ceil(CLIP.frames / rate) :].any()


@pytest.mark.parametrize("rate", [0.8, 1.0, 1.13])
def test_silence_in_a_stretched_clip_is_librosas(rate):
    x = waves()
    x[:3, :, 3000:9000] = 0
    x[3:5, :, 9000:] = 0
    x[5] = 0
    z = Spectrum()(x)
    ours = stretched(z, torch.full((6,), rate))
    assert ours.isfinite().all() and not ours[5].any()
    for each, clip in zip(ours, z, strict=True):
        theirs = vocoded(clip, rate)
        assert_spectra_close(each[: theirs.shape[1]], theirs, 5e-5)


def test_a_spectrum_stretched_by_nothing_is_itself():
    z = Spectrum()(waves())
    assert_close(stretched(z, torch.ones(6))[:, : CLIP.frames], z, atol=1e-5 * z.abs().max().item(), rtol=0)


@pytest.mark.parametrize(("length", "frames"), [(32, None), (32, 32), (40, 32), (40, 40), (27, 32)])
@pytest.mark.parametrize("by", range(-8, 9))
def test_a_shifted_spectrum_begins_so_many_frames_later(by, length, frames):
    z = torch.randn(2, length, BINS, dtype=torch.complex64, generator=torch.Generator().manual_seed(0))
    expected = torch.zeros(2, frames or length, BINS, dtype=torch.complex64)
    for frame in range(length):
        if 0 <= frame + by < expected.shape[1]:
            expected[:, frame + by] = z[:, frame]
    assert torch.equal(shifted(z, torch.full((2,), by), frames), expected)


def test_shifted_spectra_have_shifts_of_their_own():
    z = Spectrum()(waves(17))
    by = torch.arange(-8, 9)
    together = shifted(z, by)
    for i in range(17):
        assert torch.equal(shifted(z[i : i + 1], by[i : i + 1]), together[i : i + 1])


# --- whole views, against a clip at a time ---------------------------------------------------------------------------


def plain_spectrum(wave, amplitude, step, rate, shift):
    wave = interpolated(amplitude * wave, step)
    z = librosa.phase_vocoder(stft(wave).astype(np.complex128), rate=rate, hop_length=HOP)
    z = np.roll(z, shift, axis=1)
    if shift > 0:
        z[:, :shift] = 0
    elif shift < 0:
        z[:, shift:] = 0
    return librosa.util.fix_length(z, size=CLIP.frames, axis=1)


def plain_view(wave, noise, draw, share=0.0, which=0, noise_draw=None):
    z = plain_spectrum(wave, *draw)
    if share > 0:
        z = (1 - share) * z + share * plain_spectrum(noise[which], *noise_draw)
    return picture(z)


def drawn(n, seed=0, noises=3, faster=None, later=None):
    """n draws in which everything happens, of `view`; all clips faster or slower, later or earlier where asked."""
    rng = torch.Generator().manual_seed(seed)

    def uniform(low, high):
        return low + (high - low) * torch.rand(n, generator=rng)

    def draw():
        stretch, shift = uniform(0.01, 0.2), torch.randint(1, 9, (n,), generator=rng)
        up, on = (torch.rand(n, generator=rng) < (0.5 if asked is None else asked) for asked in (faster, later))
        rate, shift = torch.where(up, 1 + stretch, 1 - stretch), torch.where(on, shift, -shift)
        return Draw(uniform(0.7, 1.1), 1 / (1 + uniform(-0.2, 0.2)), rate, shift)

    return [*draw(), uniform(0.05, 0.45), torch.randint(noises, (n,), generator=rng), *draw()]


def one(draws, i):
    """Numbers that `plain_view` takes, of one sample of a batch's draws."""
    numbers = [each[i].item() for each in draws]
    return (numbers[:4], *numbers[4:6], numbers[6:]) if len(numbers) > 4 else (numbers,)


def assert_views_are_plain_ones(draws, n):
    x, noise = waves(n), waves(3, seed=7) + waves(3, seed=8)
    views = SpeechViews(CLIP, noise, Mel(CLIP.rate, CLIP.mels)).view(x, *draws)
    for i in range(n):
        assert_pictures_close(views[i], plain_view(doubles(x)[i], doubles(noise), *one(draws, i)), 0.05)


@pytest.mark.parametrize("later", [False, True], ids=["earlier", "later"])
@pytest.mark.parametrize("faster", [False, True], ids=["slower", "faster"])
def test_a_view_is_that_of_librosa_and_numpy(faster, later):
    assert_views_are_plain_ones(drawn(8, faster=faster, later=later), 8)


@pytest.mark.parametrize("happens", [*itertools.product([False, True], repeat=4)])
def test_a_view_is_that_of_librosa_and_numpy_whatever_happens(happens):
    draws = drawn(4, seed=1, faster=False)
    for place in (0, 6):
        for i, (each, neutral) in enumerate(zip(happens, UNCHANGED, strict=True)):
            if not each:
                draws[place + i] = neutral.expand(4)
    assert_views_are_plain_ones(draws, 4)


def test_a_view_without_noise_is_that_of_librosa_and_numpy():
    x, draws = waves(), drawn(6, seed=2, faster=False)[:4]
    views = SpeechViews(CLIP, then=Mel(CLIP.rate, CLIP.mels)).view(x, *draws)
    for i in range(6):
        assert_pictures_close(views[i], plain_view(doubles(x)[i], None, *one(draws, i)), 0.05)


def test_views_to_which_nothing_happens_are_the_spectra():
    x, noise = waves(20), waves(3, seed=7)
    assert torch.equal(SpeechViews(CLIP, noise, p=0.0)(x), Spectrum()(x))


def test_a_share_of_noise_is_taken_from_the_clip():
    x, noise, share = waves(), waves(6, seed=7), torch.linspace(0.05, 0.45, 6)
    unchanged = [each.expand(6) for each in UNCHANGED]
    views = SpeechViews(CLIP, noise).view(x, *unchanged, share, torch.arange(6), *unchanged)
    expected = Spectrum()(torch.lerp(x, noise, share.view(-1, 1, 1)))
    assert_close(views, expected, atol=1e-5 * expected.abs().max().item(), rtol=0)


def test_noise_in_16_bits_is_as_loud_as_in_floats():
    x, noise = waves(), (32_768 * waves(6, seed=7)).round()
    draws = drawn(6, noises=6)
    integers = SpeechViews(CLIP, noise.to(torch.int16)).view(x, *draws)
    floats = SpeechViews(CLIP, noise / 32_768).view(x, *draws)
    assert_close(integers, floats, atol=1e-4 * floats.abs().max().item(), rtol=0)


# --- draws -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def draws(monkeypatch):
    """What is drawn for MANY clips, a row each: the four of the clip, share of the noise, which it is, its four."""
    monkeypatch.setattr(speech, "apply", lambda _view, _waves, *drawn: torch.stack([each.double() for each in drawn]))
    torch.manual_seed(0)
    return SpeechViews(CLIP, torch.zeros(10, 1, 1))(torch.zeros(MANY, 1, 1)).numpy()


def assert_share(happens, share):
    assert abs(happens.mean() - share) <= 4 * math.sqrt(share * (1 - share) / happens.size)


def assert_uniform(x, low, high):
    assert low - 1e-6 <= x.min() and x.max() <= high + 1e-6
    gap = np.abs((np.sort(x) - low) / (high - low) - (np.arange(x.size) + 0.5) / x.size).max()
    assert gap < 2 / math.sqrt(x.size)


CLIPS, NOISES = 0, 6  # where the four draws of each begin


@pytest.mark.parametrize("place", [CLIPS, NOISES])
@pytest.mark.parametrize("step", [0, 1, 2])
def test_each_change_happens_to_half_of_the_clips(draws, place, step):
    assert_share(draws[place + step] != 1, 0.5)


@pytest.mark.parametrize("place", [CLIPS, NOISES])
def test_amplitudes_are_uniform(draws, place):
    amplitude = draws[place]
    assert_uniform(amplitude[amplitude != 1], 0.7, 1.1)


@pytest.mark.parametrize("place", [CLIPS, NOISES])
def test_speeds_are_uniform(draws, place):
    step = draws[place + 1]
    assert_uniform(1 / step[step != 1] - 1, -0.2, 0.2)


@pytest.mark.parametrize("place", [CLIPS, NOISES])
def test_rates_are_uniform(draws, place):
    rate = draws[place + 2]
    assert_uniform(rate[rate != 1] - 1, -0.2, 0.2)


@pytest.mark.parametrize("place", [CLIPS, NOISES])
def test_shifts_are_uniform(draws, place):
    shift = draws[place + 3]
    assert set(shift) == set(range(-8, 9))
    for by in range(-8, 9):
        assert_share(shift == by, 0.5 / 17 + 0.5 * (by == 0))


@pytest.mark.parametrize("samples", [8000, 160_000])
def test_shifts_reach_a_quarter_of_a_clip(samples):
    clip = Clip(samples=samples)
    shift = SpeechViews(clip).draw(MANY, torch.device("cpu")).shift
    assert shift.max() == clip.frames // 4 == -shift.min()


def test_noise_is_added_to_half_of_the_clips(draws):
    assert_share(draws[4] != 0, 0.5)


def test_shares_of_noise_are_uniform(draws):
    share = draws[4]
    assert_uniform(share[share != 0], 0, 0.45)


def test_noises_are_uniform(draws):
    for which in range(10):
        assert_share(draws[5] == which, 0.1)


def happening(draws):
    """Of all but which noise it is: whether it happens."""
    return np.delete(draws, 5, 0) != np.array([1, 1, 1, 0, 0, 1, 1, 1, 0])[:, None]


def test_draws_of_one_clip_are_independent(draws):
    for columns in (draws, np.abs(draws - draws.mean(1, keepdims=True)), happening(draws)):
        correlation = np.corrcoef(columns)
        assert np.abs(correlation[~np.eye(len(columns), dtype=bool)]).max() < 4 / math.sqrt(MANY)


@pytest.mark.parametrize("apart", [1, 2, 16, MANY // 2])
def test_draws_of_different_clips_are_independent(draws, apart):
    for column in (*draws, *happening(draws)):
        assert abs(np.corrcoef(column[:-apart], column[apart:])[0, 1]) < 4 / math.sqrt(MANY - apart)


@pytest.mark.parametrize("p", [0.0, 0.2, 0.9])
def test_changes_happen_as_often_as_asked(p):
    for each in SpeechViews(CLIP, p=p).draw(MANY, torch.device("cpu"))[:3]:
        assert_share(each.numpy() != 1, p)


# --- batches, threads and devices ------------------------------------------------------------------------------------


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def some_views(n=40, noise=True):
    torch.manual_seed(5)
    return SpeechViews(CLIP, waves(3, seed=7) if noise else None)(waves(n))


def test_the_same_seed_gives_the_same_views_with_any_threads(threads):
    threads(1)
    alone = some_views()
    threads(2)
    assert torch.equal(some_views(), alone)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_threads_are_as_many_after_a_call(threads, count):
    threads(count)
    some_views(17)
    assert torch.get_num_threads() == count


def test_threads_are_as_many_after_a_call_that_failed(threads):
    threads(2)
    with pytest.raises(RuntimeError, match="mat1"):
        SpeechViews(CLIP, then=torch.nn.Linear(3, 3))(waves())
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("n", [1, 15, 16, 17, 33])
def test_a_batch_in_pieces_is_the_batch_at_once(n):
    views, draws = SpeechViews(CLIP, waves(3, seed=7)), drawn(n)
    together = views.view(waves(n), *draws)
    assert_close(apply(views.view, waves(n), *draws), together, atol=1e-5 * together.abs().max().item(), rtol=0)


@pytest.mark.parametrize("n", [1, 33, 100])
@pytest.mark.parametrize("noise", [False, True])
def test_views_made_in_another_order_are_in_that_of_their_clips(n, noise):
    views, x, device = SpeechViews(CLIP, waves(3, seed=7) if noise else None), waves(n), torch.device("cpu")
    torch.manual_seed(0)
    draws = [*views.draw(n, device)]
    if noise:
        share = views.sometimes(0.05 + 0.4 * torch.rand(n), 0.0)
        draws += [share, torch.randint(3, (n,)), *views.draw(n, device)]
    made = apply(views.view, x, *draws)
    for i in range(n):
        alone = views.view(x[i : i + 1], *(each[i : i + 1] for each in draws))
        assert_close(made[i], alone[0], atol=1e-5 * alone.abs().max().item(), rtol=0)


@pytest.mark.parametrize("chosen", ["0000", "1111", "0110", "0011", "1011", "0001"])
def test_only_what_is_chosen_is_changed(chosen):
    chosen = torch.tensor([each == "1" for each in chosen])
    x, by = torch.rand(4, 3), torch.rand(4)
    expected = torch.where(chosen[:, None], x + by[:, None], x)
    assert torch.equal(where(chosen, lambda x, by: x + by[:, None], x.clone(), by), expected)


def test_clips_to_which_the_same_happens_are_neighbours(draws):
    order = _neighbours(tuple(torch.from_numpy(draws)))
    assert torch.equal(order.sort().values, torch.arange(MANY))
    noisy = draws[4] > 0
    for happens in (noisy, draws[2] != 1, noisy & (draws[8] != 1)):  # noise, stretched, noise stretched
        assert np.count_nonzero(np.diff(happens[order])) <= 2


@pytest.mark.parametrize("n", [1, 17])
@pytest.mark.parametrize("noise", [False, True])
def test_a_batch_of_any_size_has_as_many_views(n, noise):
    assert some_views(n, noise).shape == (n, CLIP.frames, BINS)


def test_views_are_what_follows_makes_of_them():
    pictures = SpeechViews(CLIP, then=Mel(CLIP.rate, CLIP.mels))
    torch.manual_seed(5)
    assert torch.equal(pictures(waves(10)), pictures.then(some_views(10, noise=False)))


def test_no_noise_is_added_where_there_is_none():
    silent = torch.zeros(40, 1, CLIP.samples)
    assert not SpeechViews(CLIP)(silent).any()
    assert SpeechViews(CLIP, waves(3))(silent).any()


def test_a_call_leaves_clips_and_noise_as_they_were():
    x, noise = waves(40), waves(3, seed=7)
    SpeechViews(CLIP, noise)(x)
    assert torch.equal(x, waves(40)) and torch.equal(noise, waves(3, seed=7))


def test_clips_of_one_batch_have_views_of_their_own():
    views = SpeechViews(CLIP)(waves(1).expand(40, 1, -1))
    assert len({view.abs().sum().item() for view in views}) > 30


def test_views_of_one_batch_differ():
    assert not torch.equal(SpeechViews(CLIP)(waves()), SpeechViews(CLIP)(waves()))


def partly_neutral(n):
    """Draws in which each thing happens to about half of the clips."""
    torch.manual_seed(3)
    found = drawn(n)
    for i, neutral in enumerate([*UNCHANGED, torch.zeros(1), None, *UNCHANGED]):
        if neutral is not None:
            found[i] = torch.where(torch.rand(n) < 0.5, found[i], neutral)
    return found


@pytest.mark.parametrize("noise", [False, True])
def test_a_gpu_that_changes_every_clip_gets_the_same_views(monkeypatch, noise):
    x, draws = waves(48), partly_neutral(48)
    views = SpeechViews(CLIP, waves(3, seed=7) if noise else None)
    here = views.view(x, *draws)

    def everywhere(_chosen, change, x, *drawn):
        return x if change is shifted else change(x, *drawn)  # `moved` has shifted them

    monkeypatch.setattr(speech, "where", everywhere)
    assert_close(views.view(x, *draws), here, atol=2e-5 * here.abs().max().item(), rtol=0)


def test_a_spectrum_moved_by_nothing_is_itself():
    z = Spectrum()(waves())
    unchanged = [each.expand(6) for each in UNCHANGED]
    assert_close(moved(z, *unchanged[2:]), z, atol=1e-5 * z.abs().max().item(), rtol=0)


def test_a_description_says_how_far_changes_reach():
    assert repr(SpeechViews(CLIP)) == "amplitude, speed ± 0.2, stretch ± 0.2, shift ± 8 frames"
    assert repr(SpeechViews(CLIP, waves())).endswith("8 frames, noise up to 0.45")
