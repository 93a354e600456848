"""The paper's linear evaluation: linear classifiers trained by SGD, for all learning rates at the same time."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from imix.errors import InputError
from imix.probes.features import EncodedSource, check_memory, in_chunks
from imix.probes.held_out import stratified_split
from imix.progress import ProgressLine
from imix.runtime.cuda_graph import CudaGraph
from imix.runtime.rng import isolated_rng, seed_all

MIN_LOG_PROBABILITY = -60.0  # smaller probabilities do not change the gradient, but denormal numbers are slow
MAX_CONFUSION_CLASSES = 100  # no confusion matrix for more classes
Batches = EncodedSource | list[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class LinearPaper:
    """Hyperparameters of the protocol "linear-paper": SGD without weight decay. The defaults are the paper's (C.1).

    Parameters
    ----------
    lrs : tuple of float
        Learning rates to try. One classifier is trained for each.
    epochs, batch_size : int
        Number of epochs and batch size.
    milestones : tuple of int
        Epochs after which the learning rate is multiplied by `decay`.
    decay, momentum : float
        Learning rate decay and momentum of SGD.
    held_out : float
        Fraction of the training samples on which the learning rate is chosen.
    seed : int
        Seed of the initial weights, the batches and the held-out samples.

    Examples
    --------
    >>> imix.evaluation.LinearPaper(lrs=(1, 10), epochs=20, milestones=()).lrs
    (1, 10)
    """

    lrs: tuple[float, ...] = (1, 3, 5, 10, 30, 50, 70)
    epochs: int = 100
    batch_size: int = 256
    milestones: tuple[int, ...] = (80, 90, 95)
    decay: float = 0.2
    momentum: float = 0.9
    held_out: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.lrs or not all(lr > 0 for lr in self.lrs):
            raise InputError(f"lrs must be one or more numbers above 0; got {self.lrs!r}")
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
    """Test accuracies of a linear evaluation.

    `accuracy` uses the learning rate `lr` that was best on held-out training samples. `paper_accuracy` is the best test
    accuracy over all learning rates, which chooses `paper_lr` on the test set; the paper reports this number.
    """

    accuracy: float
    lr: float
    train_accuracy: float
    paper_accuracy: float
    paper_lr: float
    by_lr: dict[float, float]
    confusion: list[list[int]]  # counts by true class (rows) and predicted class; empty if there are too many classes


def linear_paper(
    train: EncodedSource, test: EncodedSource, n_classes: int, hyperparameters: LinearPaper = LinearPaper()
) -> LinearAccuracy:
    """Train linear classifiers on features of `train` and evaluate them on `test`.

    If `train` has an augmentation, every epoch sees a new view of each sample.
    """
    labels = train.labels()
    kept, held_out = stratified_split(labels, hyperparameters.held_out, hyperparameters.seed)
    # The first classifiers, trained without the held-out samples, choose the learning rate; the second are final.
    on_kept, on_all = LinearClassifiers(n_classes, hyperparameters), LinearClassifiers(n_classes, hyperparameters)
    with isolated_rng(train.device):
        progress = ProgressLine("linear evaluation", hyperparameters.epochs, "epochs")
        for epoch in range(hyperparameters.epochs):
            progress(epoch)
            if epoch == 0 or train.augment is not None:
                seed_all(hyperparameters.seed, epoch)
                features = train.features().float()
                features_kept = features[kept]
                if epoch == 0:
                    # Weights, velocities and the logits of a batch, for both sets of classifiers.
                    n_inputs = features.shape[1] + hyperparameters.batch_size
                    n_values = len(hyperparameters.lrs) * n_classes * 4 * n_inputs
                    check_memory(4 * n_values, train.device, n_classes, "linear evaluation")
            on_kept.train_epoch(features_kept, labels[kept], epoch)
            on_all.train_epoch(features, labels, epoch)
    plain_features = features if train.augment is None else train.without_augment().features()
    best = int(on_kept.accuracies([(plain_features[held_out], labels[held_out])]).argmax())
    test_accuracies, confusion = on_all.evaluate(test, best)
    best_on_test = int(test_accuracies.argmax())
    return LinearAccuracy(
        float(test_accuracies[best]),
        hyperparameters.lrs[best],
        float(on_all.accuracies([(plain_features, labels)])[best]),
        float(test_accuracies[best_on_test]),
        hyperparameters.lrs[best_on_test],
        dict(zip(hyperparameters.lrs, test_accuracies.tolist(), strict=True)),
        confusion.tolist(),
    )


class LinearClassifiers:
    """One linear classifier for each of R learning rates, trained together: weight (F, R, C) and bias (R, C)."""

    weight: Tensor
    bias: Tensor

    def __init__(self, n_classes: int, hyperparameters: LinearPaper) -> None:
        self.n_classes, self.hyperparameters = n_classes, hyperparameters
        self.generator = torch.Generator().manual_seed(hyperparameters.seed)
        self.velocities: tuple[Tensor, Tensor] | None = None
        self.full_batch_step: Callable[[Tensor, Tensor, Tensor], Tensor] = self._step  # on a GPU a CUDA graph

    def train_epoch(self, features: Tensor, labels: Tensor, epoch: int) -> None:
        """Train for one epoch on features (n, F) and labels (n,)."""
        hyperparameters, n_lrs = self.hyperparameters, len(self.hyperparameters.lrs)
        if self.velocities is None:
            weight = 0.01 * torch.randn(features.shape[1], 1, self.n_classes, generator=self.generator)
            self.weight = weight.repeat(1, n_lrs, 1).to(features.device)
            self.bias = torch.zeros(n_lrs, self.n_classes, device=features.device)
            self.velocities = torch.zeros_like(self.weight), torch.zeros_like(self.bias)
            if features.is_cuda:
                self.full_batch_step = CudaGraph(self._step, features.device)
        decay = hyperparameters.decay ** sum(epoch >= milestone for milestone in hyperparameters.milestones)
        lr = decay * torch.tensor(hyperparameters.lrs, device=features.device)[:, None]
        order = torch.randperm(len(features), generator=self.generator).to(features.device)
        for rows in order.split(hyperparameters.batch_size):
            step = self.full_batch_step if len(rows) == hyperparameters.batch_size else self._step
            step(features[rows], labels[rows], lr)

    def _step(self, x: Tensor, labels: Tensor, lr: Tensor) -> Tensor:
        """Take one SGD step on x (n, F) and return the logits before it."""
        assert self.velocities is not None
        logits = self.logits(x)
        # Gradient of the cross-entropy with respect to the logits: softmax minus one-hot labels.
        gradient = (logits - logits.amax(2, keepdim=True)).clamp_(min=MIN_LOG_PROBABILITY).softmax(2)
        index = labels[:, None, None].expand(-1, len(lr), 1)
        gradient.scatter_add_(2, index, gradient.new_full(index.shape, -1.0))
        gradient /= len(x)
        weight_velocity, bias_velocity = self.velocities
        weight_velocity.mul_(self.hyperparameters.momentum).add_((x.T @ gradient.flatten(1)).view_as(self.weight))
        bias_velocity.mul_(self.hyperparameters.momentum).add_(gradient.sum(0))
        self.weight -= lr * weight_velocity
        self.bias -= lr * bias_velocity
        return logits

    def logits(self, x: Tensor) -> Tensor:
        """(n, F) -> (n, R, C)."""
        return (x @ self.weight.flatten(1)).view(len(x), *self.bias.shape) + self.bias

    def accuracies(self, batches: Batches) -> Tensor:
        """Return the accuracy of each classifier, (R,). Predictions of a diverged classifier count as wrong."""
        return self.evaluate(batches, 0)[0]

    def evaluate(self, batches: Batches, lr_index: int) -> tuple[Tensor, Tensor]:
        """Return the accuracies (R,) and the confusion matrix (C, C) of the classifier at `lr_index`.

        The confusion matrix is empty, (0, 0), if there are more than MAX_CONFUSION_CLASSES classes.
        """
        correct, n = torch.zeros(len(self.bias), device=self.bias.device, dtype=torch.float64), 0
        size = self.n_classes if self.n_classes <= MAX_CONFUSION_CLASSES else 0
        confusion = torch.zeros(size**2, device=self.bias.device, dtype=torch.long)
        for features, labels in in_chunks(batches, self.bias.numel()):
            logits = self.logits(features.float())
            predicted = logits.argmax(2)
            correct += ((predicted == labels[:, None]) & logits.isfinite().all(2)).sum(0)
            if size:
                confusion += torch.bincount(labels * size + predicted[:, lr_index], minlength=size**2)
            n += len(labels)
        return correct / n, confusion.view(size, size)
