"""An encoder and an augmentation of your own: a small 1-D convolution on time series, with `imix.pretrain`.

    python examples/own_encoder.py

The series are made up: waves of three forms with two channels, each of random pitch, phase and loudness, in noise. The
encoder is any module from (N, ...) to (N, F), the augmentation any function from a batch to a view of it. Prints the
test accuracy of a linear classifier with five labels of each form, on the series as they are and on the features,
before and after pretraining without labels; and that the weights come back from the run folder as they were.
"""

import tempfile

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

import imix


class Series(nn.Module):
    """Features (N, 64) of series (N, channels, L)."""

    def __init__(self, channels: int = 2, width: int = 64) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs in ((channels, 32), (32, 64), (64, width)):
            layers += [nn.Conv1d(inputs, outputs, 7, stride=2, padding=3), nn.BatchNorm1d(outputs), nn.ReLU()]
        self.layers = nn.Sequential(*layers)
        self.width = width  # not needed by `pretrain`, which tries; methods in a loop of your own read it

    def forward(self, x: Tensor) -> Tensor:
        """The mean over time of what the convolutions find."""
        return self.layers(x).mean(2)


def view(x: Tensor) -> Tensor:
    """Begun at another moment, and louder or quieter: one draw per sample, all of them from torch, so it is seeded."""
    n, _, length = x.shape
    moment = (torch.randint(length, (n, 1), device=x.device) + torch.arange(length, device=x.device)) % length
    return x.gather(2, moment[:, None].expand_as(x)) * (0.7 + 0.6 * torch.rand(n, 1, 1, device=x.device))


def waves(n: int, seed: int, length: int = 128) -> tuple[np.ndarray, np.ndarray]:
    """Series (n, 2, length) and which form each has: a sine, a saw or a pulse; the second channel comes later."""
    rng = np.random.default_rng(seed)
    form = rng.integers(3, size=n)
    late = np.array([0, 0.25]) + rng.uniform(size=(n, 1))
    turns = (np.arange(length) / length * rng.integers(3, 9, size=(n, 1, 1)) + late[..., None]) % 1
    clean = np.choose(form[:, None, None], [np.sin(2 * np.pi * turns), 2 * turns - 1, np.sign(0.5 - turns)])
    clean *= rng.uniform(0.5, 1.5, size=(n, 1, 1))
    return (clean + rng.normal(scale=0.5, size=clean.shape)).astype(np.float32), form


def main() -> None:
    """Pretrain, compare, and load what was kept."""
    series, form = waves(1000, seed=0)
    test, test_form = waves(1000, seed=1)
    labelled = np.concatenate([np.flatnonzero(form == each)[:5] for each in range(3)])  # the others stay unlabelled

    def accuracy(name: str, x: np.ndarray, x_test: np.ndarray) -> None:
        classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
        right = classifier.fit(x[labelled], form[labelled]).score(x_test, test_form)
        print(f"{name:<28}{100 * right:.1f} %")

    torch.manual_seed(0)  # the weights of a module of your own are drawn by you
    encoder = Series()
    accuracy("series as they are", series.reshape(len(series), -1), test.reshape(len(test), -1))
    with torch.no_grad():
        before = [encoder.eval()(torch.from_numpy(x)).numpy() for x in (series, test)]
    accuracy("features before training", *before)

    with tempfile.TemporaryDirectory() as folder:
        settings = imix.Settings(method="npair", mix="mixup", epochs=20, batch_size=100, lr=0.5)
        run = imix.pretrain(series, settings, encoder=encoder, augment=view, out=folder, progress=False)
        accuracy("features after training", imix.embed(run, series), imix.embed(run, test))

        # A file holds weights and no code, so loading needs the module to fill; the rest comes from the folder.
        loaded = imix.load_encoder(folder, Series())
        again = imix.Run.load(folder, Series())
    with torch.no_grad():
        gone = (loaded(torch.from_numpy(test)) - run.encoder(torch.from_numpy(test))).abs().max()
    print(f"largest difference to the loaded encoder: {gone:.1g}; run of {again.settings.epochs} epochs")
    # `loaded` is Sequential(standardise, encoder). Elsewhere: Series().load_state_dict(loaded[-1].state_dict()), and
    # loaded[0], which brings each channel to mean 0 and deviation 1, before it.


if __name__ == "__main__":
    main()
