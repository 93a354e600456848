"""A custom encoder and augmentation with `imix.pretrain`: a small 1-D convolutional network on time series.

    python examples/custom_encoder.py

An encoder is any module from (N, ...) to (N, F); an augmentation is any function from a batch to a view of it. The data
is synthetic: noisy waves of three shapes with random frequency, phase and amplitude. Prints the test accuracy of a
linear classifier with ten labels per class on the raw series, and on the features before and after pretraining without
labels. i-Mix adds little here. Also prints how much the output of an encoder loaded from the run folder differs.
"""

import tempfile

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

import imix


class SeriesEncoder(nn.Module):
    """Three convolutions and a mean over time: (N, 1, L) to (N, 64)."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs in ((1, 32), (32, 64), (64, 64)):
            layers += [nn.Conv1d(inputs, outputs, 7, stride=2, padding=3), nn.BatchNorm1d(outputs), nn.ReLU()]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """Return the features of a batch."""
        return self.layers(x).mean(2)


def shift_and_scale(x: Tensor) -> Tensor:
    """Shift each series cyclically and scale its amplitude, with a draw per sample from torch, which imix seeds."""
    n, _, length = x.shape
    steps = (torch.randint(length, (n, 1, 1), device=x.device) + torch.arange(length, device=x.device)) % length
    return x.gather(2, steps) * (0.7 + 0.6 * torch.rand(n, 1, 1, device=x.device))


def make_waves(n: int, seed: int, length: int = 128) -> tuple[np.ndarray, np.ndarray]:
    """Return series (n, 1, length) and their shape (n,): sine, sawtooth or square."""
    rng = np.random.default_rng(seed)
    shape, frequency = rng.integers(3, size=n), rng.integers(3, 9, size=(n, 1))
    phase = (np.arange(length) / length * frequency + rng.uniform(size=(n, 1))) % 1
    clean = np.choose(shape[:, None], [np.sin(2 * np.pi * phase), 2 * phase - 1, np.sign(0.5 - phase)])
    noisy = clean * rng.uniform(0.5, 1.5, size=(n, 1)) + rng.normal(scale=0.4, size=clean.shape)
    return noisy[:, None].astype(np.float32), shape


def main() -> None:
    """Pretrain, compare features, and load the encoder from the run folder."""
    (series, y), (test_series, y_test) = make_waves(1000, seed=0), make_waves(1000, seed=1)
    labeled = np.concatenate([np.flatnonzero(y == shape)[:10] for shape in range(3)])  # all other labels are unused
    torch.manual_seed(0)  # imix does not seed the initial weights of your own module
    encoder = SeriesEncoder().eval()
    with torch.no_grad():
        before = [encoder(torch.from_numpy(x)).numpy() for x in (series, test_series)]

    settings = imix.Settings(epochs=15, batch_size=100, lr=0.5)
    with tempfile.TemporaryDirectory() as out:
        run = imix.pretrain(series, settings, encoder=encoder, augment=shift_and_scale, out=out, progress=False)
        # The folder contains weights but no code, so pass a module to load them into. The result is an nn.Sequential
        # of standardization and encoder.
        loaded = imix.load_encoder(out, SeriesEncoder())
    after = [imix.embed(run, x) for x in (series, test_series)]
    inputs = {"series": [series[:, 0], test_series[:, 0]], "features before": before, "features after": after}
    for name, (x, x_test) in inputs.items():
        classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
        accuracy = classifier.fit(x[labeled], y[labeled]).score(x_test, y_test)
        print(f"{name:<18}{100 * accuracy:.1f}%")
    with torch.no_grad():
        difference = (loaded(torch.from_numpy(test_series)) - torch.from_numpy(after[1])).abs().max()
    print("loaded differs by", float(difference))


if __name__ == "__main__":
    main()
