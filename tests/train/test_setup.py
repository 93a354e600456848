"""Building a training setup: batch size, user-supplied components, streamed sources."""

import functools
from dataclasses import replace

import pytest
import torch
from torch import nn

import imix
from imix import InputError, Settings
from imix.methods.method import ProjectionMethod
from imix.train.setup import global_batch_size
from tests.train.helpers import SMALL, Streaming, assert_same_weights, weights


def halves(batch):
    """A user-supplied operator: averages each sample with the next one."""
    partner = torch.arange(len(batch)).roll(1)
    return (batch + batch[partner]) / 2, imix.Mix(partner, torch.full((len(batch),), 0.5))


class Decorrelated(ProjectionMethod):
    """A user-supplied method: makes views similar and dimensions uncorrelated."""

    def forward(self, view_1, view_2):
        a, b = (nn.functional.normalize(z - z.mean(0), dim=0) for z in self.project(self.apply_mix(view_1)[0], view_2))
        return (a.T @ b - torch.eye(a.shape[1])).square().mean()


def test_a_user_supplied_method_and_mix_are_trained_resumed_and_named(table, tmp_path, capsys):
    custom = {"method": functools.partial(Decorrelated, dim=32), "mix": halves}
    settings = replace(SMALL, resampling=0.0)  # learns more in the few steps of a test
    whole = imix.pretrain(table[0], settings, **custom)
    assert "Decorrelated + i-Mix (halves) on in-memory data" in capsys.readouterr().err
    assert whole.metrics[-1]["loss"] < whole.metrics[0]["loss"]

    def stopping(batch):
        stopping.left -= 1
        if not stopping.left:
            raise KeyboardInterrupt
        return halves(batch)

    stopping.left, stopping.__name__ = 9, "halves"
    with pytest.raises(KeyboardInterrupt):
        imix.pretrain(table[0], settings, out=tmp_path, method=custom["method"], mix=stopping, progress=False)
    resumed = imix.pretrain(table[0], settings, out=tmp_path, resume=True, progress=False, **custom)
    assert_same_weights(weights(whole), weights(resumed))
    assert repr(imix.load_run(tmp_path)).count("Decorrelated + halves")
    with pytest.raises(InputError, match="its custom mix was 'halves', now it is None"):
        imix.pretrain(table[0], settings, out=tmp_path, resume=True, progress=False, method=Decorrelated)


def test_invalid_methods_and_mixing_operators_are_rejected(table):
    with pytest.raises(InputError, match="`method` must return an imix"):
        imix.pretrain(table[0], SMALL, method=lambda encoder, mix, width: encoder, progress=False)
    with pytest.raises(InputError, match="mix must return a pair"):
        imix.pretrain(table[0], SMALL, mix=lambda batch: batch, progress=False)
    with pytest.raises(InputError, match="with as many samples as its input"):
        imix.pretrain(table[0], SMALL, mix=lambda batch: (batch[::2], None), progress=False)


def test_streamed_rows_are_standardized(table):
    rows = table[0] * torch.tensor([1.0, 1000, 1, 1, 1, 1]) + 5
    held, streamed = (imix.pretrain(source, SMALL, progress=False) for source in (rows, Streaming(rows)))
    assert_same_weights(weights(held), weights(streamed))
    assert type(streamed.encoder[0]).__name__ == "Standardize"


def test_a_data_set_smaller_than_the_batch_is_one_batch():
    assert global_batch_size(Settings(batch_size=256), 100) == 100


@pytest.mark.parametrize(("batch_size", "n"), [(1, 100), (256, 1)])
def test_a_batch_of_one_is_rejected(batch_size, n):
    with pytest.raises(InputError, match="at least 2"):
        global_batch_size(Settings(batch_size=batch_size), n)


def test_samples_with_several_fields_train_with_a_user_supplied_encoder():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.left, self.right = nn.Linear(3, 8), nn.Conv1d(2, 8, 3, padding=1)

        def forward(self, batch):
            return torch.cat([self.left(batch["row"]), self.right(batch["series"]).mean(2)], 1)

    data = {"row": torch.randn(40, 3), "series": torch.randn(40, 2, 9)}
    for method in ("npair", "moco", "byol"):
        run = imix.pretrain(data, replace(SMALL, method=method), encoder=Both(), progress=False)
        assert run.encoder(data).shape == (40, 16)


def test_the_width_of_a_user_supplied_encoder_is_measured(table):
    class Says(nn.Linear):
        num_features = 6  # of what it takes

    run = imix.pretrain(table[0], SMALL, encoder=Says(6, 4), progress=False)
    assert run.encoder(torch.randn(3, 6)).shape == (3, 4)


# User-supplied augmentations


def flip_batch(x):
    return x.flip(1) if torch.rand(()) < 0.5 else x


class Noise:
    """Noise from a generator of its own."""

    def __init__(self):
        self.generator = torch.Generator().manual_seed(0)

    def __call__(self, x):
        return x + 0.1 * torch.randn(x.shape, generator=self.generator)


@pytest.mark.parametrize("kind", ["in memory", "streamed"])
def test_an_augmentation_that_draws_once_per_batch_is_refused(kind):
    rows = torch.randn(32, 5)
    data = rows if kind == "in memory" else Streaming(rows)
    options = {"encoder": nn.Linear(5, 4), "epochs": 1, "device": "cpu", "progress": False}
    fix = r"`augment` must draw for each sample, but flip_batch draws once .* augment=imix\.per_sample\(flip_batch\)$"
    with pytest.raises(imix.InputError, match=fix):
        imix.pretrain(data, augment=flip_batch, **options)
    run = imix.pretrain(data, augment=imix.per_sample(lambda x: x * torch.rand(())), **options)
    assert run.user_supplied == {"augment": "per_sample(<lambda>)"}


def test_the_check_does_not_change_a_run(monkeypatch):
    def train():
        torch.manual_seed(0)
        options = {"encoder": nn.Linear(5, 4), "epochs": 2, "device": "cpu", "progress": False}
        return imix.pretrain(torch.randn(32, 5), augment=Noise(), **options).encoder.state_dict()

    checked = train()
    monkeypatch.setattr("imix.train.setup.draws_once_per_batch", lambda *args: False)
    assert_same_weights(checked, train())
