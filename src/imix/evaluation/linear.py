"""Linear evaluation: a linear classifier on frozen features, all learning rates in one pass over them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from imix.evaluation.features import Encoded


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


@dataclass(frozen=True)
class LinearAccuracy:
    """Accuracy on the test set in two readings: with the rate chosen on held-out training data, and the paper's way.

    The paper's is the best test accuracy of all rates, which chooses on the test set.
    """

    accuracy: float
    lr: float
    paper_accuracy: float
    paper_lr: float
    by_lr: dict[float, float]


def linear(train: Encoded, test: Encoded, classes: int, protocol: Linear = Linear()) -> LinearAccuracy:
    """Linear evaluation of an encoder."""
    features, labels = train.features(), train.labels()
    kept, held_out = _split(labels, protocol)
    chosen_on = _accuracies(
        [(features[held_out], labels[held_out])], _fit(features[kept], labels[kept], classes, protocol)
    )
    on_test = _accuracies(test, _fit(features, labels, classes, protocol))
    best, papers = int(chosen_on.argmax()), int(on_test.argmax())
    return LinearAccuracy(
        float(on_test[best]),
        protocol.rates[best],
        float(on_test[papers]),
        protocol.rates[papers],
        dict(zip(protocol.rates, on_test.tolist(), strict=True)),
    )


def _split(labels: Tensor, protocol: Linear) -> tuple[Tensor, Tensor]:
    """Rows to train on and rows held out: a share of each class, at random."""
    generator = torch.Generator().manual_seed(protocol.seed)
    order = torch.randperm(len(labels), generator=generator).to(labels.device)
    by_class = order[labels[order].argsort(stable=True)]
    every = round(1 / protocol.held_out)
    held_out = torch.zeros(len(labels), dtype=torch.bool, device=labels.device)
    held_out[by_class[every - 1 :: every]] = True
    held_out[order[0]] |= not held_out.any()
    return (~held_out).nonzero()[:, 0], held_out.nonzero()[:, 0]


def _fit(features: Tensor, labels: Tensor, classes: int, protocol: Linear) -> tuple[Tensor, Tensor]:
    """Weights (F, R, C) and biases (R, C) of one classifier for each of the R rates, trained side by side."""
    n, width, rates = len(features), features.shape[1], len(protocol.rates)
    generator = torch.Generator().manual_seed(protocol.seed)
    features = features.float()
    weight = (0.01 * torch.randn(width, 1, classes, generator=generator)).repeat(1, rates, 1).to(features.device)
    bias = torch.zeros(rates, classes, device=features.device)
    weight_velocity, bias_velocity = torch.zeros_like(weight), torch.zeros_like(bias)
    for epoch in range(protocol.epochs):
        decayed = protocol.decay ** sum(epoch >= milestone for milestone in protocol.milestones)
        lr = decayed * torch.tensor(protocol.rates, device=features.device)[:, None]
        for rows in torch.randperm(n, generator=generator).to(features.device).split(protocol.batch_size):
            x = features[rows]
            residual = _logits(x, weight, bias).softmax(2)  # of the cross-entropy: softmax minus one-hot
            residual.scatter_add_(
                2,
                labels[rows, None, None].expand(-1, rates, 1),
                residual.new_full((len(rows), rates, 1), -1.0),
            )
            residual /= len(rows)
            weight_velocity.mul_(protocol.momentum).add_((x.T @ residual.flatten(1)).view_as(weight))
            bias_velocity.mul_(protocol.momentum).add_(residual.sum(0))
            weight -= lr * weight_velocity
            bias -= lr * bias_velocity
    return weight, bias


def _logits(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """(n, F) -> (n, R, C)."""
    return (x @ weight.flatten(1)).view(len(x), *bias.shape) + bias


def _accuracies(chunks: "Encoded | list[tuple[Tensor, Tensor]]", classifiers: tuple[Tensor, Tensor]) -> Tensor:
    """Accuracy of each rate's classifier, (R,); one that diverged counts as always wrong."""
    weight, bias = classifiers
    right, n = torch.zeros(len(bias), device=bias.device, dtype=torch.float64), 0
    for features, labels in chunks:
        assert labels is not None
        logits = _logits(features.float(), weight, bias)
        right += ((logits.argmax(2) == labels[:, None]) & logits.isfinite().all(2)).sum(0)
        n += len(labels)
    return right / n
