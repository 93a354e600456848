"""Time series with a custom encoder and a custom augmentation, in 20 lines; explained in docs/custom-components.md."""

import torch
from torch import Tensor, nn

import imix

# Synthetic data: 1,000 noisy waves of four shapes with random frequency and phase; 2 channels, 64 time steps.
torch.manual_seed(0)
phase = torch.linspace(0, 1, 64) * (2 + 2 * torch.rand(1000, 1)) + torch.rand(1000, 1)
saw = 2 * (phase % 1) - 1
shape = torch.arange(1000) % 4  # the labels, used for evaluation only
wave = torch.stack([torch.sin(2 * torch.pi * phase), saw.sign(), saw, -saw])[shape, torch.arange(1000)]
series = torch.stack([wave, wave.roll(8, 1)], 1) + 0.5 * torch.randn(1000, 2, 64)


class Encoder(nn.Module):
    """Two convolutions and a mean over time: (N, channels, L) to (N, 64)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv1d(channels, 32, 7, 2), nn.BatchNorm1d(32), nn.ReLU())
        self.second = nn.Sequential(nn.Conv1d(32, 64, 7, 2), nn.BatchNorm1d(64), nn.ReLU())
        self.width = 64

    def forward(self, x: Tensor) -> Tensor:
        """Return the features of a batch."""
        return self.second(self.first(x)).mean(2)


def random_shift(x: Tensor) -> Tensor:
    """Shift each series cyclically by a random number of steps."""
    n, _, length = x.shape
    start = torch.randint(length, (n, 1, 1), device=x.device)
    steps = (start + torch.arange(length, device=x.device)) % length
    return x.gather(2, steps.expand_as(x))


settings = imix.Settings(mix="cutmix", epochs=20)
run = imix.pretrain(series, settings, encoder=Encoder(2), augment=random_shift, progress=False)
print(imix.evaluate(run, series, "knn", labels=shape))
print("features:", imix.embed(run, series).shape)
