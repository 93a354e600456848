"""Tree ensembles: gradient boosting or extremely randomized trees, whichever is better in cross-validation."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from imix.errors import InputError
from imix.probes.linear import MAX_CV_ROWS, draw_folds

MAX_BOOSTED_COLUMNS = 500  # gradient boosting takes minutes for more columns
FOLDS = 3


@dataclass(frozen=True)
class Trees:
    """Hyperparameters of the trees protocol.

    Gradient boosting (scikit-learn's HistGradientBoosting, with its default settings) is compared with extremely
    randomized trees by cross-validation; above 500 columns only the latter are used.

    Parameters
    ----------
    n_estimators : int
        Number of extremely randomized trees.
    seed : int
        Seed of the trees and of the folds.

    Examples
    --------
    >>> imix.evaluation.Trees(n_estimators=100).n_estimators
    100
    """

    n_estimators: int = 300
    seed: int = 0

    def __post_init__(self) -> None:
        if not (isinstance(self.n_estimators, int) and self.n_estimators > 0):
            raise InputError(f"n_estimators must be an int above 0; got {self.n_estimators!r}")


def predict_by_trees(
    x: Tensor, y: Tensor, test: Tensor, n_classes: int, hyperparameters: Trees = Trees()
) -> tuple[Tensor, str]:
    """Fit trees to D training sets x (D, n, F) and y (D, n), and predict for test samples (m, F).

    Returns probabilities (D, m, C), or numeric predictions (D, m, 1) if ``n_classes=1``, and the name of the model that
    was better in cross-validation on the first training set.
    """
    samples, labels = x.cpu().numpy(), y.cpu().numpy()
    model = _choose(samples[0], y[0].cpu(), n_classes, hyperparameters)
    outputs = []
    for inputs, targets in zip(samples, labels, strict=True):
        model.fit(inputs, targets)
        if n_classes == 1:
            outputs.append(model.predict(test.cpu().numpy())[:, None])
        else:
            probabilities = np.zeros((len(test), n_classes))
            probabilities[:, model.classes_] = model.predict_proba(test.cpu().numpy())
            outputs.append(probabilities)
    return torch.from_numpy(np.stack(outputs)).to(x.device), type(model).__name__


def _choose(x: np.ndarray, y: Tensor, n_classes: int, hyperparameters: Trees) -> Any:
    """Return the model with the higher accuracy, or R², in cross-validation."""
    from sklearn import ensemble
    from sklearn.model_selection import PredefinedSplit, cross_val_score

    task, seed = "Regressor" if n_classes == 1 else "Classifier", hyperparameters.seed
    randomized = getattr(ensemble, f"ExtraTrees{task}")(
        hyperparameters.n_estimators, n_jobs=torch.get_num_threads(), random_state=seed
    )
    if x.shape[1] > MAX_BOOSTED_COLUMNS:
        return randomized
    boosted = getattr(ensemble, f"HistGradientBoosting{task}")(random_state=seed)
    folds = draw_folds(y, FOLDS, seed, MAX_CV_ROWS)
    used, split = (folds >= 0).numpy(), PredefinedSplit(folds[folds >= 0].numpy())
    scores = [cross_val_score(model, x[used], y.numpy()[used], cv=split).mean() for model in (boosted, randomized)]
    return boosted if scores[0] > scores[1] else randomized
