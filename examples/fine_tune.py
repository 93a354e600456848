"""Fine-tuning: pretrain without labels, then train with few labels; compared with training from scratch.

    python examples/fine_tune.py
    python examples/fine_tune.py --labels 10

On digits, with five labels per class. Both networks have the same layers, labels, optimizer and number of steps; one
starts from the weights of a run folder, the other from random weights. Prints the test accuracy of both, mean and
standard deviation over three seeds of weights and labels.
"""

import argparse
import copy
import tempfile

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

import imix


def train(model: nn.Module, x: Tensor, y: Tensor, steps: int = 60) -> nn.Module:
    """Train a classifier with full batches, starting from its current weights."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-2)
    model.train()  # imix returns encoders in eval mode
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()


def main() -> None:
    """For each seed, pretrain once, train both networks, and compare them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, default=5, help="labels per class")
    args = parser.parse_args()
    pixels, digits = load_digits(return_X_y=True)
    split = train_test_split(pixels, digits, test_size=500, stratify=digits, random_state=0)
    x, x_test = (torch.tensor(part, dtype=torch.float32) for part in split[:2])
    y, y_test = (torch.tensor(part) for part in split[2:])

    accuracies: dict[str, list[float]] = {"from scratch": [], "fine-tuned": []}
    for seed in range(3):
        rng = np.random.default_rng(seed)
        labeled = np.concatenate(
            [rng.choice(np.flatnonzero(y == digit), args.labels, replace=False) for digit in range(10)]
        )
        settings = imix.Settings(epochs=20, batch_size=128, temperature=0.5, masking=0.0, resampling=0.3, seed=seed)
        with tempfile.TemporaryDirectory() as folder:
            imix.pretrain(x, settings, out=folder, progress=False)
            pretrained = imix.load_encoder(folder)  # nn.Sequential: standardization, network
        torch.manual_seed(seed)
        scratch = nn.Sequential(copy.deepcopy(pretrained[0]), imix.encoders.build(settings.encoder, x.shape[1:]))
        for name, encoder in {"from scratch": scratch, "fine-tuned": pretrained}.items():
            model = train(nn.Sequential(encoder, nn.Linear(encoder(x[:2]).shape[1], 10)), x[labeled], y[labeled])
            with torch.no_grad():
                accuracy = float((model(x_test).argmax(1) == y_test).float().mean())
            accuracies[name].append(100 * accuracy)
    for name, values in accuracies.items():
        print(f"{name:<14}{np.mean(values):.1f} ± {np.std(values, ddof=1):.1f}%")


if __name__ == "__main__":
    main()
