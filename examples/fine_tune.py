"""Fine-tuning: pretrain without labels, then train encoder and classifier with few, against training from scratch.

    python examples/fine_tune.py
    python examples/fine_tune.py --labels 10

On digits, with five labels of each class. Both networks have the same layers, labels, optimiser and number of steps;
one begins with the weights of a run folder, the other with random ones. Prints the test accuracy of both, mean and
deviation over three draws of weights and labels.
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
    """A classifier, from its beginning or from another's, on all labelled samples at a time."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-2)
    model.train()  # what imix gives back is in evaluation mode
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()


def main() -> None:
    """Pretrain once a seed, train twice, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, default=5, help="of each class")
    given = parser.parse_args()
    pixels, digits = load_digits(return_X_y=True)
    split = train_test_split(pixels, digits, test_size=500, stratify=digits, random_state=0)
    x, x_test = (torch.tensor(part, dtype=torch.float32) for part in split[:2])
    y, y_test = (torch.tensor(part) for part in split[2:])

    found: dict[str, list[float]] = {"from scratch": [], "fine-tuned": []}
    for seed in range(3):
        rng = np.random.default_rng(seed)
        rows = np.concatenate(
            [rng.choice(np.flatnonzero(y == digit), given.labels, replace=False) for digit in range(10)]
        )
        settings = imix.Settings(epochs=20, batch_size=128, temperature=0.5, masking=0.0, resampling=0.3, seed=seed)
        with tempfile.TemporaryDirectory() as folder:
            imix.pretrain(x, settings, out=folder, progress=False)
            pretrained = imix.load_encoder(folder)  # Sequential(standardise, encoder), from raw inputs to features
        torch.manual_seed(seed)
        scratch = nn.Sequential(copy.deepcopy(pretrained[0]), imix.encoders.build(settings.encoder, x.shape[1:]))
        for name, encoder in {"from scratch": scratch, "fine-tuned": pretrained}.items():
            model = train(nn.Sequential(encoder, nn.Linear(encoder(x[:2]).shape[1], 10)), x[rows], y[rows])
            with torch.no_grad():
                found[name].append(100 * float((model(x_test).argmax(1) == y_test).float().mean()))
    for name, accuracies in found.items():
        print(f"{name:<14}{np.mean(accuracies):.1f} ± {np.std(accuracies, ddof=1):.1f} %")


if __name__ == "__main__":
    main()
