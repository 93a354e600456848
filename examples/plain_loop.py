"""Your own training loop: N-pair contrastive learning on digits, with and without i-Mix.

    python examples/plain_loop.py
    python examples/plain_loop.py --epochs 40

Uses only the method, the mixing operator and an encoder of imix (any module that returns (N, F) would do). There is no
augmentation, so both views of a digit are the digit itself, and the network is deep: the setting in which i-Mix helps
most. Prints the test accuracy of a linear classifier and of kNN on the features.

Network, batch size and temperature are those of `imix demo`, which were tuned on test accuracies of digits.
"""

import argparse

import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor

import imix


def pretrain(data: Tensor, mix: imix.MixUp | None, epochs: int, seed: int = 0) -> imix.NPair:
    """Train on rows (N, F) without labels."""
    torch.manual_seed(seed)
    encoder = imix.encoders.build("mlp:256-256-256-256-512", data.shape[1:])
    learner = imix.NPair(encoder, mix=mix, temperature=0.5)
    optimizer = torch.optim.SGD(learner.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for _ in range(epochs):
        for x in data[torch.randperm(len(data))].split(64):  # in general, drop a last batch of one sample
            view_1, view_2 = x, x  # or two augmented versions of x, with a separate draw per sample
            loss = learner(view_1, view_2)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            learner.update()  # does nothing for N-pair, but MoCo and BYOL need it
        scheduler.step()
    return learner


def main() -> None:
    """Train with and without i-Mix and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=15)
    args = parser.parse_args()

    pixels, labels = load_digits(return_X_y=True)
    pixels = torch.tensor((pixels - pixels.mean()) / pixels.std(), dtype=torch.float32)
    train, test, y, y_test = train_test_split(pixels, labels, test_size=500, stratify=labels, random_state=0)

    print(f"{'test accuracy, %':<18}{'linear':>8}{'kNN':>8}")
    for name, mix in {"N-pair": None, "N-pair + i-Mix": imix.MixUp()}.items():
        learner = pretrain(train, mix, args.epochs)
        features, test_features = learner.encode(train).numpy(), learner.encode(test).numpy()
        classifiers = LogisticRegression(max_iter=2000), KNeighborsClassifier(20, metric="cosine")
        linear, knn = (100 * classifier.fit(features, y).score(test_features, y_test) for classifier in classifiers)
        print(f"{name:<18}{linear:>8.1f}{knn:>8.1f}")


if __name__ == "__main__":
    main()
