"""L2-regularized linear classification and regression, with the strength of the penalty chosen by cross-validation."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from imix.errors import InputError
from imix.probes.features import check_memory

MAX_CV_VALUES = 10_000_000  # cross-validation uses at most this many numbers: rows times features
MAX_CV_ROWS = 10_000
MAX_ITERATIONS = 300
HISTORY = 10  # gradients that L-BFGS keeps
INPUT_SCALES = (1.0, 16.0)  # scales of inputs next to features; 16 makes their penalty 256 times smaller


@dataclass(frozen=True)
class Linear:
    """Hyperparameters of the linear protocol: logistic regression, or ridge regression for numeric targets.

    Parameters
    ----------
    strengths : tuple of float
        Values of scikit-learn's C to choose from: the loss is ``C * sum(cross-entropy) + ||W||² / 2``. Larger values
        regularize less.
    folds : int
        Number of folds of the cross-validation by which the strength is chosen.
    seed : int
        Seed of the folds.

    Examples
    --------
    >>> imix.evaluation.Linear(strengths=(0.01, 1.0)).folds
    5
    """

    strengths: tuple[float, ...] = (1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0)
    folds: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.strengths or not all(value > 0 for value in self.strengths):
            raise InputError(f"strengths must be one or more numbers above 0; got {self.strengths!r}")
        if not (isinstance(self.folds, int) and self.folds > 1):
            raise InputError(f"folds must be an int above 1; got {self.folds!r}")


class LinearModel:
    """Linear models of D training sets: weight (D, F, C) and bias (D, C), with C = 1 for numeric targets."""

    def __init__(self, weight: Tensor, bias: Tensor, strengths: list[float]) -> None:
        self.weight, self.bias, self.strengths = weight, bias, strengths

    def __call__(self, x: Tensor) -> Tensor:
        """(n, F) -> logits or predictions (D, n, C)."""
        return x @ self.weight + self.bias[:, None]


def fit_linear(
    x: Tensor, y: Tensor, n_classes: int, hyperparameters: Linear = Linear(), n_inputs: int = 0
) -> LinearModel:
    """Fit a linear model to each of D training sets.

    If x contains inputs and features side by side, cross-validation also chooses whether the inputs are penalized like
    the features or 256 times less. With the same penalty, a few good columns can be lost among hundreds of features.

    Parameters
    ----------
    x : Tensor of shape (D, n, F)
        Standardized features.
    y : Tensor of shape (D, n)
        Classes (long), or numeric targets (float) with ``n_classes=1``.
    n_classes : int
        Number of classes C; 1 for numeric targets.
    hyperparameters : Linear
        Strengths and folds.
    n_inputs : int
        Number of leading columns of x that are inputs, if features follow them; otherwise 0.
    """
    if not n_inputs:
        return _fit(x, y, n_classes, hyperparameters)[0]
    scale = torch.ones(len(INPUT_SCALES), x.shape[2], device=x.device, dtype=x.dtype)
    scale[:, :n_inputs] = torch.tensor(INPUT_SCALES, device=x.device, dtype=x.dtype)[:, None]
    fits = [_fit(x * each, y, n_classes, hyperparameters) for each in scale]
    chosen = torch.stack([loss for _, loss in fits]).argmin(0)  # (D,)
    weight = torch.stack([fits[i][0].weight[d] * scale[i, :, None] for d, i in enumerate(chosen.tolist())])
    bias = torch.stack([fits[i][0].bias[d] for d, i in enumerate(chosen.tolist())])
    return LinearModel(weight, bias, [fits[i][0].strengths[d] for d, i in enumerate(chosen.tolist())])


def _fit(x: Tensor, y: Tensor, n_classes: int, hyperparameters: Linear) -> tuple[LinearModel, Tensor]:
    """Return the linear models of D training sets and their cross-validation losses, (D,)."""
    n_values = n_classes * (4 * y.numel() + 3 * HISTORY * hyperparameters.folds * len(x) * x.shape[2])
    check_memory(x.element_size() * n_values, x.device, n_classes, "linear evaluation")
    strengths = sorted(hyperparameters.strengths)
    x, rotation, eigenvalues = _rotate(x)
    losses = _cross_validate(x, y, eigenvalues, n_classes, strengths, hyperparameters)
    loss, chosen = losses.min(0)
    strength = torch.tensor(strengths, device=x.device, dtype=x.dtype)[chosen.to(x.device)]
    all_rows = torch.ones_like(y, dtype=x.dtype)[:, None]
    parameters = _minimize(x, y, eigenvalues, all_rows, strength[:, None], n_classes, None)[:, :, 0]
    model = LinearModel(rotation @ parameters[:, :-1], parameters[:, -1], [strengths[i] for i in chosen.tolist()])
    return model, loss


def _rotate(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rotate x (D, n, F) onto its principal axes: x @ rotation (D, n, R), rotation (D, F, R), eigenvalues (D, R).

    The penalty does not change under rotation, and weights outside the span of the samples are 0, so the solution is
    the same. There are at most n axes, and each can be scaled on its own, which makes L-BFGS converge quickly.
    """
    n = x.shape[1]
    if n >= x.shape[2]:
        eigenvalues, rotation = torch.linalg.eigh((x.mT @ x / n).double())
    else:
        eigenvalues, left = torch.linalg.eigh((x @ x.mT / n).double())
        rotation = x.mT.double() @ left / (n * eigenvalues.clamp(min=1e-12)).sqrt()[:, None]
    kept = (eigenvalues > 1e-7 * eigenvalues[:, -1:]).any(0)
    rotation = rotation[:, :, kept].to(x.dtype)
    return x @ rotation, rotation, eigenvalues[:, kept].clamp(min=0).to(x.dtype)


def _cross_validate(
    x: Tensor, y: Tensor, eigenvalues: Tensor, n_classes: int, strengths: list[float], hyperparameters: Linear
) -> Tensor:
    """Return the loss of each strength and training set, (S, D). All folds and sets are fitted at once.

    Stops when the loss of every training set has increased twice in a row, so S may be less than the number given.
    """
    rows = min(MAX_CV_ROWS, max(500, MAX_CV_VALUES // x.shape[2]))
    fold = torch.stack([draw_folds(labels, hyperparameters.folds, hyperparameters.seed, rows) for labels in y])
    if x.shape[1] > rows:
        used = (fold >= 0).nonzero()[:, 1].view(len(x), -1)  # the same number of rows in each set
        y, fold = y.gather(1, used), fold.gather(1, used)
        x = x.gather(1, used[..., None].expand(-1, -1, x.shape[2]))
    in_fold = fold[:, None] == torch.arange(hyperparameters.folds, device=x.device)[:, None]  # (D, K, n)
    parameters: Tensor | None = None
    losses: list[Tensor] = []
    for strength in strengths:  # from strong to weak regularization, each starting at the previous solution
        weights, strength_by_fold = (~in_fold).to(x.dtype), x.new_full(in_fold.shape[:2], strength)
        parameters = _minimize(x, y, eigenvalues, weights, strength_by_fold, n_classes, parameters)
        losses.append((_losses(x, y, parameters) * in_fold).sum((1, 2)) / fold.shape[1])
        if len(losses) > 2 and bool((losses[-1] > losses[-2]).all() and (losses[-2] > losses[-3]).all()):
            break
    return torch.stack(losses).cpu()


def draw_folds(labels: Tensor, folds: int, seed: int, max_rows: int) -> Tensor:
    """Return the fold of each row, (n,), spread evenly over the classes; -1 for rows beyond `max_rows`."""
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed)).to(labels.device)
    order = order[:max_rows]
    by_class = order if labels.is_floating_point() else order[labels[order].argsort(stable=True)]
    fold = torch.full_like(labels, -1, dtype=torch.long)
    fold[by_class] = torch.arange(len(by_class), device=labels.device) % folds
    return fold


def _minimize(
    x: Tensor,
    y: Tensor,
    eigenvalues: Tensor,
    weights: Tensor,
    strength: Tensor,
    n_classes: int,
    start: Tensor | None,
) -> Tensor:
    """Minimize the regularized loss of D x K problems at once by L-BFGS.

    Rotated samples x (D, n, R) with their eigenvalues (D, R), y (D, n), sample weights (D, K, n) and strength (D, K)
    give parameters (D, R + 1, K, C), whose last row is the bias, which is not regularized.
    """
    total = weights.sum(2).clamp(min=1)  # (D, K); with a single sample, a fold has no training samples
    penalty = 1 / (strength * total)[:, None]  # (D, 1, K)
    # Along each axis the curvature is about eigenvalue / 4 + penalty; divide by its root, so that all are alike.
    unit = torch.cat([(eigenvalues[..., None] / 4 + penalty).rsqrt(), torch.full_like(penalty, 2)], 1)[..., None]
    scaled = x.new_zeros(*unit.shape[:3], n_classes) if start is None else start / unit
    scaled.requires_grad_()
    optimizer = torch.optim.LBFGS(
        [scaled],
        max_iter=MAX_ITERATIONS,
        tolerance_grad=1e-6,
        tolerance_change=1e-9,
        history_size=HISTORY,
        line_search_fn="strong_wolfe",
    )

    def objective() -> Tensor:
        optimizer.zero_grad()
        parameters = scaled * unit
        squares = parameters[:, :-1].square().sum((1, 3)) * penalty[:, 0] / 2
        loss = ((_losses(x, y, parameters) * weights).sum(2) / total + squares).sum()
        loss.backward()
        return loss

    with torch.enable_grad():
        optimizer.step(objective)
    return (scaled * unit).detach()


def _losses(x: Tensor, y: Tensor, parameters: Tensor) -> Tensor:
    """Return the cross-entropy, or half the squared error, of each sample and problem, (D, K, n)."""
    sets, _, problems, n_classes = parameters.shape
    outputs = x @ parameters[:, :-1].flatten(2) + parameters[:, -1].reshape(sets, 1, -1)
    outputs = outputs.view(sets, -1, problems, n_classes)
    if n_classes == 1:
        return ((outputs[..., 0] - y[..., None]).square() / 2).mT
    repeated = y[..., None].expand(-1, -1, problems)
    return F.cross_entropy(outputs.movedim(3, 1), repeated, reduction="none").mT
