"""An encoder and an augmentation of your own: a small 1-D convolution on time series, with `imix.pretrain`.

    python examples/own_encoder.py

The encoder is any module from (N, ...) to (N, F), the augmentation any function from a batch to a view of it. The
series are made up: waves of three forms in noise, each of random pitch, phase and loudness. Prints the test accuracy of
a linear classifier with ten labels a form, on the series and on the encoder's features before and after pretraining
without labels, to which i-Mix adds little here; and how far an encoder loaded from the run folder is from the trained.
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
    """Features (N, 64) of series (N, 1, L): the mean over time of what three convolutions find."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs in ((1, 32), (32, 64), (64, 64)):
            layers += [nn.Conv1d(inputs, outputs, 7, stride=2, padding=3), nn.BatchNorm1d(outputs), nn.ReLU()]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """Features of a batch."""
        return self.layers(x).mean(2)


def view(x: Tensor) -> Tensor:
    """Begun at another moment, and louder or quieter: one draw per sample, every draw from torch, which is seeded."""
    n, _, length = x.shape
    moment = (torch.randint(length, (n, 1, 1), device=x.device) + torch.arange(length, device=x.device)) % length
    return x.gather(2, moment) * (0.7 + 0.6 * torch.rand(n, 1, 1, device=x.device))


def waves(n: int, seed: int, length: int = 128) -> tuple[np.ndarray, np.ndarray]:
    """Series (n, 1, length) and the form of each, (n,): sine, saw or square."""
    rng = np.random.default_rng(seed)
    form, pitch = rng.integers(3, size=n), rng.integers(3, 9, size=(n, 1))
    turns = (np.arange(length) / length * pitch + rng.uniform(size=(n, 1))) % 1
    clean = np.choose(form[:, None], [np.sin(2 * np.pi * turns), 2 * turns - 1, np.sign(0.5 - turns)])
    noisy = clean * rng.uniform(0.5, 1.5, size=(n, 1)) + rng.normal(scale=0.4, size=clean.shape)
    return noisy[:, None].astype(np.float32), form


def main() -> None:
    """Pretrain, compare, and load what was kept."""
    (series, form), (test, test_form) = waves(1000, seed=0), waves(1000, seed=1)
    labelled = np.concatenate([np.flatnonzero(form == each)[:10] for each in range(3)])  # the others' stay unused
    torch.manual_seed(0)  # the weights of a module of your own are drawn by you, before imix seeds anything
    encoder = Series().eval()
    with torch.no_grad():
        before = [encoder(torch.from_numpy(x)).numpy() for x in (series, test)]

    settings = imix.Settings(epochs=15, batch_size=100, lr=0.5)
    with tempfile.TemporaryDirectory() as out:
        run = imix.pretrain(series, settings, encoder=encoder, augment=view, out=out, progress=False)
        loaded = imix.load_encoder(out, Series())  # the folder holds weights and no code: give a module to fill
    # `loaded` is Sequential(standardise, encoder); its parts have state dicts like any module's.
    after = [imix.embed(run, x) for x in (series, test)]
    seen = {"series": [series[:, 0], test[:, 0]], "features before": before, "features after": after}
    for name, (x, x_test) in seen.items():
        classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
        right = classifier.fit(x[labelled], form[labelled]).score(x_test, test_form)
        print(f"{name:<18}{100 * right:.1f} %")
    with torch.no_grad():
        print("loaded differs by", float((loaded(torch.from_numpy(test)) - torch.from_numpy(after[1])).abs().max()))


if __name__ == "__main__":
    main()
