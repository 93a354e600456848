"""Your own domain in 20 lines: time series, with an encoder and an augmentation of one's own (docs/own-domain.md)."""

import torch
from torch import Tensor, nn

import imix

# Made up: 1,000 series of 2 channels and 64 steps; noisy waves of four forms, of random pitch and phase.
torch.manual_seed(0)
turns = torch.linspace(0, 1, 64) * (2 + 2 * torch.rand(1000, 1)) + torch.rand(1000, 1)
saw = 2 * (turns % 1) - 1
form = torch.arange(1000) % 4  # the labels, which serve to measure only
wave = torch.stack([torch.sin(2 * torch.pi * turns), saw.sign(), saw, -saw])[form, torch.arange(1000)]
series = torch.stack([wave, wave.roll(8, 1)], 1) + 0.5 * torch.randn(1000, 2, 64)


class Encoder(nn.Module):
    """Two convolutions and a mean over time: (N, channels, L) to (N, 64)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv1d(channels, 32, 7, 2), nn.BatchNorm1d(32), nn.ReLU())
        self.second = nn.Sequential(nn.Conv1d(32, 64, 7, 2), nn.BatchNorm1d(64), nn.ReLU())
        self.width = 64

    def forward(self, x: Tensor) -> Tensor:
        """Features of a batch."""
        return self.second(self.first(x)).mean(2)


def view(x: Tensor) -> Tensor:
    """Each series begun at a moment of its own."""
    n, _, length = x.shape
    start = torch.randint(length, (n, 1, 1), device=x.device)
    moments = (start + torch.arange(length, device=x.device)) % length
    return x.gather(2, moments.expand_as(x))


run = imix.pretrain(series, imix.Settings(mix="cutmix", epochs=20), encoder=Encoder(2), augment=view, progress=False)
print(imix.evaluate(run, series, "knn", labels=form), imix.embed(run, series).shape, sep="\n")
