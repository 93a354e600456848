"""Linear evaluation: a linear classifier on frozen features, all learning rates in one pass over them."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from imix.errors import InputError
from imix.evaluation.features import Encoded, check_room, in_parts
from imix.evaluation.held_out import divided
from imix.progress import Told
from imix.train.randomness import own_randomness, seed_all
from imix.train.record import Recorded

SMALLEST = -60.0  # logarithm of a probability
MOST_CLASSES = 100  # of which a confusion matrix is kept
Chunks = Encoded | list[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Linear:
    """The paper's protocol (appendix C.1): SGD without decay; the rate is times 0.2 after 80, 90 and 95 epochs."""

    rates: tuple[float, ...] = (1, 3, 5, 10, 30, 50, 70)
    epochs: int = 100
    batch_size: int = 256
    milestones: tuple[int, ...] = (80, 90, 95)
    decay: float = 0.2
    momentum: float = 0.9
    held_out: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.rates or not all(rate > 0 for rate in self.rates):
            raise InputError(f"rates must be one or more numbers above 0; got {self.rates!r}")
        for name in ("epochs", "batch_size"):
            value = getattr(self, name)
            if not (isinstance(value, int) and value > 0):
                raise InputError(f"{name} must be an int above 0; got {value!r}")
        if not self.decay > 0:
            raise InputError(f"decay must be above 0; got {self.decay!r}")
        if not 0 <= self.momentum < 1:
            raise InputError(f"momentum must be at least 0 and less than 1; got {self.momentum!r}")
        if not 0 < self.held_out < 1:
            raise InputError(f"held_out must be above 0 and less than 1; got {self.held_out!r}")


@dataclass(frozen=True)
class LinearAccuracy:
    """Accuracy on the test set in two readings: with the rate chosen on held-out training data, and the paper's way.

    The paper's is the best test accuracy of all rates, which chooses on the test set.
    """

    accuracy: float
    lr: float
    train_accuracy: float
    paper_accuracy: float
    paper_lr: float
    by_lr: dict[float, float]
    confusion: list[list[int]]  # test samples by class (rows) and by what they were taken for; empty for many classes


def linear(train: Encoded, test: Encoded, classes: int, protocol: Linear = Linear()) -> LinearAccuracy:
    """Linear evaluation of an encoder; where `train` makes views, each epoch sees its samples anew."""
    labels = train.labels()
    kept, held_out = divided(labels, protocol.held_out, protocol.seed)
    on_kept, on_all = Classifiers(classes, protocol), Classifiers(classes, protocol)
    with own_randomness(train.device):
        told = Told("linear evaluation", protocol.epochs, "epochs")
        for epoch in range(protocol.epochs):
            told(epoch)
            if epoch == 0 or train.views is not None:
                seed_all(protocol.seed, epoch)
                features = train.features().float()
                features_kept = features[kept]
                if epoch == 0:
                    # Weights, their velocities, and the logits of a batch, twice.
                    numbers = len(protocol.rates) * classes * 4 * (features.shape[1] + protocol.batch_size)
                    check_room(4 * numbers, train.device, classes, "linear evaluation")
            on_kept.learn(features_kept, labels[kept], epoch)
            on_all.learn(features, labels, epoch)
    clean = features if train.views is None else train.without_views().features()
    chosen_on = on_kept.accuracies([(clean[held_out], labels[held_out])])
    best = int(chosen_on.argmax())
    on_test, confusion = on_all.tested(test, best)
    papers = int(on_test.argmax())
    return LinearAccuracy(
        float(on_test[best]),
        protocol.rates[best],
        float(on_all.accuracies([(clean, labels)])[best]),
        float(on_test[papers]),
        protocol.rates[papers],
        dict(zip(protocol.rates, on_test.tolist(), strict=True)),
        confusion.tolist(),
    )


class Classifiers:
    """A linear classifier for each of the R rates, trained side by side: weights (F, R, C) and biases (R, C)."""

    weight: Tensor
    bias: Tensor

    def __init__(self, classes: int, protocol: Linear) -> None:
        self.classes, self.protocol = classes, protocol
        self.generator = torch.Generator().manual_seed(protocol.seed)
        self.velocities: tuple[Tensor, Tensor] | None = None
        self.whole_batch: Callable[[Tensor, Tensor, Tensor], Tensor] = self._step

    def learn(self, features: Tensor, labels: Tensor, epoch: int) -> None:
        """One epoch over features (n, F) and labels (n,)."""
        protocol, rates = self.protocol, len(self.protocol.rates)
        if self.velocities is None:
            weight = 0.01 * torch.randn(features.shape[1], 1, self.classes, generator=self.generator)
            self.weight = weight.repeat(1, rates, 1).to(features.device)
            self.bias = torch.zeros(rates, self.classes, device=features.device)
            self.velocities = torch.zeros_like(self.weight), torch.zeros_like(self.bias)
            if features.is_cuda:
                self.whole_batch = Recorded(self._step, features.device)
        decayed = protocol.decay ** sum(epoch >= milestone for milestone in protocol.milestones)
        lr = decayed * torch.tensor(protocol.rates, device=features.device)[:, None]
        order = torch.randperm(len(features), generator=self.generator).to(features.device)
        for rows in order.split(protocol.batch_size):
            step = self.whole_batch if len(rows) == protocol.batch_size else self._step
            step(features[rows], labels[rows], lr)

    def _step(self, x: Tensor, labels: Tensor, lr: Tensor) -> Tensor:
        """Of SGD, on a batch; gives the logits that it was taken from."""
        assert self.velocities is not None
        logits = self.logits(x)
        # Of the cross-entropy: softmax minus one-hot. What is too small to matter would be slow to compute with.
        residual = (logits - logits.amax(2, keepdim=True)).clamp_(min=SMALLEST).softmax(2)
        right = labels[:, None, None].expand(-1, len(lr), 1)
        residual.scatter_add_(2, right, residual.new_full(right.shape, -1.0))
        residual /= len(x)
        weight_velocity, bias_velocity = self.velocities
        weight_velocity.mul_(self.protocol.momentum).add_((x.T @ residual.flatten(1)).view_as(self.weight))
        bias_velocity.mul_(self.protocol.momentum).add_(residual.sum(0))
        self.weight -= lr * weight_velocity
        self.bias -= lr * bias_velocity
        return logits

    def logits(self, x: Tensor) -> Tensor:
        """(n, F) -> (n, R, C)."""
        return (x @ self.weight.flatten(1)).view(len(x), *self.bias.shape) + self.bias

    def accuracies(self, chunks: Chunks) -> Tensor:
        """Accuracy of each rate's classifier, (R,); one that diverged counts as always wrong."""
        return self.tested(chunks, 0)[0]

    def tested(self, chunks: Chunks, rate: int) -> tuple[Tensor, Tensor]:
        """Those, and how often samples of each class are taken for each by the classifier of that rate, (C, C).

        Of many classes no such table is kept.
        """
        right, n = torch.zeros(len(self.bias), device=self.bias.device, dtype=torch.float64), 0
        kept = self.classes if self.classes <= MOST_CLASSES else 0
        confusion = torch.zeros(kept**2, device=self.bias.device, dtype=torch.long)
        for features, labels in in_parts(chunks, self.bias.numel()):
            logits = self.logits(features.float())
            taken_for = logits.argmax(2)
            right += ((taken_for == labels[:, None]) & logits.isfinite().all(2)).sum(0)
            if kept:
                confusion += torch.bincount(labels * kept + taken_for[:, rate], minlength=kept**2)
            n += len(labels)
        return right / n, confusion.view(kept, kept)
