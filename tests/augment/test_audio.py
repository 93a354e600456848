"""Augmentations of audio: each step against librosa and numpy, the distributions of draws, and threads."""

import itertools
import math

import librosa
import numpy as np
import pytest
import torch
from torch.testing import assert_close

from imix.augment import audio
from imix.augment.audio import (
    AudioViews,
    ClipChange,
    _group_by_change,
    _vocoder,
    _vocoder_matrices,
    apply_where,
    in_parallel_chunks,
    resample,
    shift_frames,
    stretch_and_shift,
)
from imix.encoders.mel import BINS, HOP, Clip, Mel, Spectrum
from tests.encoders.audio_helpers import (
    CLIP,
    assert_mel_close,
    assert_spectra_close,
    doubles,
    mel_spectrogram,
    stft,
    waves,
)

MANY = 20_000
CLIP_DRAWS, NOISE_DRAWS = 0, 6  # first index of the clip's and the noise's change in the draws
UNCHANGED = ClipChange(*(torch.tensor([number]) for number in (1.0, 1.0, 1.0, 0)))


# --- single steps, against numpy and librosa --------------------------------------------------------------------------


def resample_with_numpy(wave, step):
    positions = np.arange(0, len(wave), step)
    return librosa.util.fix_length(np.interp(positions, np.arange(len(wave)), wave), size=len(wave))


@pytest.mark.parametrize("step", [0.8125, 0.84, 0.99, 1.0, 1.01, 1.2, 1.25])
@pytest.mark.slow
def test_resample_matches_numpy(step):
    x, steps = waves(2), torch.full((2,), step)
    expected = [resample_with_numpy(wave, float(steps[0])) for wave in doubles(x)]
    np.testing.assert_allclose(resample(x, steps)[:, 0], expected, rtol=0, atol=2e-4)


@pytest.mark.slow
def test_resample_takes_a_step_per_clip():
    x, steps = waves(24), 1 / torch.linspace(0.8, 1.2, 24)
    expected = [resample_with_numpy(wave, float(step)) for wave, step in zip(doubles(x), steps, strict=True)]
    np.testing.assert_allclose(resample(x, steps)[:, 0], expected, rtol=0, atol=2e-4)


def test_positions_in_a_long_clip_are_exact_to_a_five_hundredth_of_a_sample():
    x = torch.arange(160_000.0).expand(9, 1, -1)
    steps = 1 / torch.linspace(0.8, 1.2, 9)
    for ours, step in zip(resample(x, steps)[:, 0].double().numpy(), steps.tolist(), strict=True):
        positions = np.minimum(step * np.arange(160_000), 159_999)
        positions[step * np.arange(160_000) >= 160_000] = 0
        error = np.abs(ours - positions) - np.spacing(np.float32(positions))  # minus the resolution of float32
        assert error.max() < 1 / 500


@pytest.mark.slow
def test_resample_matches_numpy_for_long_clips():
    x, steps = waves(6, 160_000), 1 / torch.linspace(0.8, 1.2, 6)
    expected = [resample_with_numpy(wave, float(step)) for wave, step in zip(doubles(x), steps, strict=True)]
    np.testing.assert_allclose(resample(x, steps)[:, 0], expected, rtol=0, atol=1e-3)


def test_resample_with_step_1_changes_nothing():
    assert torch.equal(resample(waves(), torch.ones(6)), waves())


def vocode_with_librosa(z, rate):
    return librosa.phase_vocoder(z.numpy().T.astype(np.complex128), rate=rate, hop_length=HOP)


def stretch(z, rate):
    """Stretch spectra (N, T, BINS) by `rate` (N,) without cutting them to T frames."""
    return _vocoder(z, *_vocoder_matrices(z.shape[1], rate))


@pytest.mark.parametrize("rate", [0.8, 0.8125, 0.9, 0.97, 1.0, 1.03, 1.1, 1.1875, 1.2])
@pytest.mark.slow
def test_stretch_matches_librosa(rate):
    z = Spectrum()(waves())
    for ours, clip in zip(stretch(z, torch.full((6,), rate)), z, strict=True):
        theirs = vocode_with_librosa(clip, rate)
        assert_spectra_close(ours[: theirs.shape[1]], theirs, 5e-5)


def test_stretch_takes_a_rate_per_clip():
    z, rates = Spectrum()(waves()), torch.linspace(0.81, 1.19, 6)
    for ours, clip, rate in zip(stretch(z, rates), z, rates.tolist(), strict=True):
        theirs = vocode_with_librosa(clip, rate)
        assert_spectra_close(ours[: theirs.shape[1]], theirs, 5e-5)


@pytest.mark.slow
def test_stretch_matches_librosa_for_long_clips():
    z, rates = Spectrum()(waves(4, 160_000)), torch.tensor([0.8, 0.9731, 1.0371, 1.1713])
    for ours, clip, rate in zip(stretch(z, rates), z, rates.tolist(), strict=True):
        theirs = vocode_with_librosa(clip, rate)
        assert_spectra_close(ours[: theirs.shape[1]], theirs, 2e-4)


@pytest.mark.parametrize("rate", [0.8, 0.9, 1.0, 1.1, 1.2])
def test_stretched_spectra_end_in_silence(rate):
    z = Spectrum()(waves())
    assert not stretch(z, torch.full((6,), rate))[:, math.ceil(CLIP.frames / rate) :].any()


@pytest.mark.parametrize("rate", [0.8, 1.0, 1.13])
@pytest.mark.slow
def test_stretch_matches_librosa_for_silence(rate):
    x = waves()
    x[:3, :, 3000:9000] = 0
    x[3:5, :, 9000:] = 0
    x[5] = 0
    z = Spectrum()(x)
    ours = stretch(z, torch.full((6,), rate))
    assert ours.isfinite().all() and not ours[5].any()
    for spectrum, clip in zip(ours, z, strict=True):
        theirs = vocode_with_librosa(clip, rate)
        assert_spectra_close(spectrum[: theirs.shape[1]], theirs, 5e-5)


def test_stretch_with_rate_1_changes_nothing():
    z = Spectrum()(waves())
    assert_close(stretch(z, torch.ones(6))[:, : CLIP.frames], z, atol=1e-5 * z.abs().max().item(), rtol=0)


@pytest.mark.parametrize(("length", "frames"), [(32, None), (32, 32), (40, 32), (40, 40), (27, 32)])
@pytest.mark.parametrize("shift", range(-8, 9))
def test_shift_frames_matches_a_plain_loop(shift, length, frames):
    z = torch.randn(2, length, BINS, dtype=torch.complex64, generator=torch.Generator().manual_seed(0))
    expected = torch.zeros(2, frames or length, BINS, dtype=torch.complex64)
    for frame in range(length):
        if 0 <= frame + shift < expected.shape[1]:
            expected[:, frame + shift] = z[:, frame]
    assert torch.equal(shift_frames(z, torch.full((2,), shift), frames), expected)


def test_shift_frames_takes_a_shift_per_clip():
    z = Spectrum()(waves(17))
    shifts = torch.arange(-8, 9)
    together = shift_frames(z, shifts)
    for i in range(17):
        assert torch.equal(shift_frames(z[i : i + 1], shifts[i : i + 1]), together[i : i + 1])


# --- complete views, against librosa clip by clip ---------------------------------------------------------------------


def spectrum_with_librosa(wave, amplitude, step, rate, shift):
    wave = resample_with_numpy(amplitude * wave, step)
    z = librosa.phase_vocoder(stft(wave).astype(np.complex128), rate=rate, hop_length=HOP)
    z = np.roll(z, shift, axis=1)
    if shift > 0:
        z[:, :shift] = 0
    elif shift < 0:
        z[:, shift:] = 0
    return librosa.util.fix_length(z, size=CLIP.frames, axis=1)


def view_with_librosa(wave, noise, change, share=0.0, noise_index=0, noise_change=None):
    z = spectrum_with_librosa(wave, *change)
    if share > 0:
        z = (1 - share) * z + share * spectrum_with_librosa(noise[noise_index], *noise_change)
    return mel_spectrogram(z)


def random_draws(n, seed=0, n_noise=3, faster=None, later=None):
    """Draws for `transform` that change n clips in every way; `faster` and `later` fix the directions."""
    rng = torch.Generator().manual_seed(seed)

    def uniform(low, high):
        return low + (high - low) * torch.rand(n, generator=rng)

    def random_change():
        amount, shift = uniform(0.01, 0.2), torch.randint(1, 9, (n,), generator=rng)
        is_faster, is_later = (torch.rand(n, generator=rng) < (0.5 if p is None else p) for p in (faster, later))
        rate, shift = torch.where(is_faster, 1 + amount, 1 - amount), torch.where(is_later, shift, -shift)
        return ClipChange(uniform(0.7, 1.1), 1 / (1 + uniform(-0.2, 0.2)), rate, shift)

    return [*random_change(), uniform(0.05, 0.45), torch.randint(n_noise, (n,), generator=rng), *random_change()]


def draws_of_sample(draws, i):
    """The arguments of `view_with_librosa` for sample i."""
    numbers = [draw[i].item() for draw in draws]
    return (numbers[:4], *numbers[4:6], numbers[6:]) if len(numbers) > 4 else (numbers,)


def assert_views_match_librosa(draws, n):
    x, noise = waves(n), waves(3, seed=7) + waves(3, seed=8)
    views = AudioViews(CLIP, noise, Mel(CLIP.sample_rate, CLIP.n_mels)).transform(x, *draws)
    for i in range(n):
        assert_mel_close(views[i], view_with_librosa(doubles(x)[i], doubles(noise), *draws_of_sample(draws, i)), 0.05)


@pytest.mark.parametrize("later", [False, True], ids=["earlier", "later"])
@pytest.mark.parametrize("faster", [False, True], ids=["slower", "faster"])
@pytest.mark.slow
def test_views_match_librosa(faster, later):
    assert_views_match_librosa(random_draws(8, faster=faster, later=later), 8)


@pytest.mark.parametrize("applied", [*itertools.product([False, True], repeat=4)])
@pytest.mark.slow
def test_views_match_librosa_for_every_combination_of_changes(applied):
    draws = random_draws(4, seed=1, faster=False)
    for start in (CLIP_DRAWS, NOISE_DRAWS):
        for i, (is_applied, neutral) in enumerate(zip(applied, UNCHANGED, strict=True)):
            if not is_applied:
                draws[start + i] = neutral.expand(4)
    assert_views_match_librosa(draws, 4)


@pytest.mark.slow
def test_views_without_noise_match_librosa():
    x, draws = waves(), random_draws(6, seed=2, faster=False)[:4]
    views = AudioViews(CLIP, output_transform=Mel(CLIP.sample_rate, CLIP.n_mels)).transform(x, *draws)
    for i in range(6):
        assert_mel_close(views[i], view_with_librosa(doubles(x)[i], None, *draws_of_sample(draws, i)), 0.05)


def test_views_with_p_0_are_the_plain_spectra():
    x, noise = waves(20), waves(3, seed=7)
    assert torch.equal(AudioViews(CLIP, noise, p=0.0)(x), Spectrum()(x))


def test_noise_is_blended_with_the_clip_by_its_weight():
    x, noise, share = waves(), waves(6, seed=7), torch.linspace(0.05, 0.45, 6)
    unchanged = [draw.expand(6) for draw in UNCHANGED]
    views = AudioViews(CLIP, noise).transform(x, *unchanged, share, torch.arange(6), *unchanged)
    expected = Spectrum()(torch.lerp(x, noise, share.view(-1, 1, 1)))
    assert_close(views, expected, atol=1e-5 * expected.abs().max().item(), rtol=0)


def test_noise_in_int16_equals_noise_in_floats():
    x, noise = waves(), (32_768 * waves(6, seed=7)).round()
    draws = random_draws(6, n_noise=6)
    integers = AudioViews(CLIP, noise.to(torch.int16)).transform(x, *draws)
    floats = AudioViews(CLIP, noise / 32_768).transform(x, *draws)
    assert_close(integers, floats, atol=1e-4 * floats.abs().max().item(), rtol=0)


# --- draws -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def draws(monkeypatch):
    """The draws of MANY clips (10, MANY): the clip's change (4), noise share, noise index, the noise's change (4)."""
    monkeypatch.setattr(
        audio, "in_parallel_chunks", lambda _function, _waves, *draws: torch.stack([draw.double() for draw in draws])
    )
    torch.manual_seed(0)
    return AudioViews(CLIP, torch.zeros(10, 1, 1))(torch.zeros(MANY, 1, 1)).numpy()


def assert_share(mask, share):
    assert abs(mask.mean() - share) <= 4 * math.sqrt(share * (1 - share) / mask.size)


def assert_uniform(x, low, high):
    assert low - 1e-6 <= x.min() and x.max() <= high + 1e-6
    gap = np.abs((np.sort(x) - low) / (high - low) - (np.arange(x.size) + 0.5) / x.size).max()
    assert gap < 2 / math.sqrt(x.size)


@pytest.mark.parametrize("start", [CLIP_DRAWS, NOISE_DRAWS])
@pytest.mark.parametrize("step", [0, 1, 2])
def test_each_change_is_applied_to_half_of_the_clips(draws, start, step):
    assert_share(draws[start + step] != 1, 0.5)


@pytest.mark.parametrize("start", [CLIP_DRAWS, NOISE_DRAWS])
def test_amplitudes_are_uniform(draws, start):
    amplitude = draws[start]
    assert_uniform(amplitude[amplitude != 1], 0.7, 1.1)


@pytest.mark.parametrize("start", [CLIP_DRAWS, NOISE_DRAWS])
def test_speeds_are_uniform(draws, start):
    step = draws[start + 1]
    assert_uniform(1 / step[step != 1] - 1, -0.2, 0.2)


@pytest.mark.parametrize("start", [CLIP_DRAWS, NOISE_DRAWS])
def test_stretch_rates_are_uniform(draws, start):
    rate = draws[start + 2]
    assert_uniform(rate[rate != 1] - 1, -0.2, 0.2)


@pytest.mark.parametrize("start", [CLIP_DRAWS, NOISE_DRAWS])
def test_shifts_are_uniform(draws, start):
    shift = draws[start + 3]
    assert set(shift) == set(range(-8, 9))
    for frames in range(-8, 9):
        assert_share(shift == frames, 0.5 / 17 + 0.5 * (frames == 0))


@pytest.mark.parametrize("samples", [8000, 160_000])
def test_shifts_are_up_to_a_quarter_of_a_clip(samples):
    clip = Clip(samples=samples)
    shift = AudioViews(clip).draw_change(MANY, torch.device("cpu")).shift
    assert shift.max() == clip.frames // 4 == -shift.min()


def test_noise_is_added_to_half_of_the_clips(draws):
    assert_share(draws[4] != 0, 0.5)


def test_noise_weights_are_uniform(draws):
    share = draws[4]
    assert_uniform(share[share != 0], 0, 0.45)


def test_noise_clips_are_chosen_uniformly(draws):
    for index in range(10):
        assert_share(draws[5] == index, 0.1)


def applied_changes(draws):
    """Whether each change is applied, for all draws except the noise index."""
    return np.delete(draws, 5, 0) != np.array([1, 1, 1, 0, 0, 1, 1, 1, 0])[:, None]


def test_draws_of_one_clip_are_independent(draws):
    for columns in (draws, np.abs(draws - draws.mean(1, keepdims=True)), applied_changes(draws)):
        correlation = np.corrcoef(columns)
        assert np.abs(correlation[~np.eye(len(columns), dtype=bool)]).max() < 4 / math.sqrt(MANY)


@pytest.mark.parametrize("distance", [1, 2, 16, MANY // 2])
def test_draws_of_different_clips_are_independent(draws, distance):
    for column in (*draws, *applied_changes(draws)):
        assert abs(np.corrcoef(column[:-distance], column[distance:])[0, 1]) < 4 / math.sqrt(MANY - distance)


@pytest.mark.parametrize("p", [0.0, 0.2, 0.9])
def test_changes_are_applied_with_probability_p(p):
    for draw in AudioViews(CLIP, p=p).draw_change(MANY, torch.device("cpu"))[:3]:
        assert_share(draw.numpy() != 1, p)


# --- batches, threads and devices ------------------------------------------------------------------------------------


@pytest.fixture
def set_threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def seeded_views(n=40, noise=True):
    torch.manual_seed(5)
    return AudioViews(CLIP, waves(3, seed=7) if noise else None)(waves(n))


def test_the_same_seed_gives_the_same_views_with_any_number_of_threads(set_threads):
    set_threads(1)
    expected = seeded_views()
    set_threads(2)
    assert torch.equal(seeded_views(), expected)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_number_of_threads_is_restored(set_threads, count):
    set_threads(count)
    seeded_views(17)
    assert torch.get_num_threads() == count


def test_the_number_of_threads_is_restored_after_an_error(set_threads):
    set_threads(2)
    with pytest.raises(RuntimeError, match="mat1"):
        AudioViews(CLIP, output_transform=torch.nn.Linear(3, 3))(waves())
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("n", [1, 15, 16, 17, 33])
def test_a_batch_in_chunks_equals_the_batch_at_once(n):
    views, draws = AudioViews(CLIP, waves(3, seed=7)), random_draws(n)
    together = views.transform(waves(n), *draws)
    assert_close(
        in_parallel_chunks(views.transform, waves(n), *draws), together, atol=1e-5 * together.abs().max().item(), rtol=0
    )


@pytest.mark.parametrize("n", [1, 33, 100])
@pytest.mark.parametrize("noise", [False, True])
def test_views_are_in_the_order_of_their_clips(n, noise):
    views, x, device = AudioViews(CLIP, waves(3, seed=7) if noise else None), waves(n), torch.device("cpu")
    torch.manual_seed(0)
    draws = [*views.draw_change(n, device)]
    if noise:
        share = views.with_probability_p(0.05 + 0.4 * torch.rand(n), 0.0)
        draws += [share, torch.randint(3, (n,)), *views.draw_change(n, device)]
    together = in_parallel_chunks(views.transform, x, *draws)
    for i in range(n):
        alone = views.transform(x[i : i + 1], *(draw[i : i + 1] for draw in draws))
        assert_close(together[i], alone[0], atol=1e-5 * alone.abs().max().item(), rtol=0)


@pytest.mark.parametrize("bits", ["0000", "1111", "0110", "0011", "1011", "0001"])
def test_apply_where_changes_only_the_selected_samples(bits):
    mask = torch.tensor([bit == "1" for bit in bits])
    x, offset = torch.rand(4, 3), torch.rand(4)
    expected = torch.where(mask[:, None], x + offset[:, None], x)
    assert torch.equal(apply_where(mask, lambda x, offset: x + offset[:, None], x.clone(), offset), expected)


def test_clips_with_the_same_changes_are_grouped(draws):
    order = _group_by_change(tuple(torch.from_numpy(draws)))
    assert torch.equal(order.sort().values, torch.arange(MANY))
    noisy = draws[4] > 0
    for mask in (noisy, draws[2] != 1, noisy & (draws[8] != 1)):  # noise, stretch, stretched noise
        assert np.count_nonzero(np.diff(mask[order])) <= 2


@pytest.mark.parametrize("n", [1, 17])
@pytest.mark.parametrize("noise", [False, True])
def test_views_of_batches_of_any_size(n, noise):
    assert seeded_views(n, noise).shape == (n, CLIP.frames, BINS)


def test_output_transform_is_applied_to_the_spectra():
    views = AudioViews(CLIP, output_transform=Mel(CLIP.sample_rate, CLIP.n_mels))
    torch.manual_seed(5)
    assert torch.equal(views(waves(10)), views.output_transform(seeded_views(10, noise=False)))


def test_noise_is_added_only_if_given():
    silent = torch.zeros(40, 1, CLIP.samples)
    assert not AudioViews(CLIP)(silent).any()
    assert AudioViews(CLIP, waves(3))(silent).any()


def test_clips_and_noise_are_not_modified():
    x, noise = waves(40), waves(3, seed=7)
    AudioViews(CLIP, noise)(x)
    assert torch.equal(x, waves(40)) and torch.equal(noise, waves(3, seed=7))


def test_clips_of_one_batch_are_augmented_independently():
    views = AudioViews(CLIP)(waves(1).expand(40, 1, -1))
    assert len({view.abs().sum().item() for view in views}) > 30


def test_two_views_of_one_batch_differ():
    assert not torch.equal(AudioViews(CLIP)(waves()), AudioViews(CLIP)(waves()))


def partly_neutral(n):
    """Draws that apply each change to about half of the clips."""
    torch.manual_seed(3)
    draws = random_draws(n)
    for i, neutral in enumerate([*UNCHANGED, torch.zeros(1), None, *UNCHANGED]):
        if neutral is not None:
            draws[i] = torch.where(torch.rand(n) < 0.5, draws[i], neutral)
    return draws


@pytest.mark.parametrize("noise", [False, True])
def test_changing_every_clip_as_on_a_gpu_gives_the_same_views(monkeypatch, noise):
    x, draws = waves(48), partly_neutral(48)
    views = AudioViews(CLIP, waves(3, seed=7) if noise else None)
    expected = views.transform(x, *draws)

    def apply_to_all(_mask, function, x, *draws):
        return x if function is shift_frames else function(x, *draws)  # stretch_and_shift has shifted them already

    monkeypatch.setattr(audio, "apply_where", apply_to_all)
    assert_close(views.transform(x, *draws), expected, atol=2e-5 * expected.abs().max().item(), rtol=0)


def test_stretch_and_shift_with_neutral_draws_changes_nothing():
    z = Spectrum()(waves())
    unchanged = [draw.expand(6) for draw in UNCHANGED]
    assert_close(stretch_and_shift(z, *unchanged[2:]), z, atol=1e-5 * z.abs().max().item(), rtol=0)


def test_repr_lists_the_changes_and_their_ranges():
    assert repr(AudioViews(CLIP)) == "amplitude, speed ± 0.2, stretch ± 0.2, shift ± 8 frames"
    assert repr(AudioViews(CLIP, waves())).endswith("8 frames, noise up to 0.45")
