"""Points the paper leaves open."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Ambiguities:
    """Points the paper leaves open, or on which it differs from the authors' code.

    The defaults follow the authors' code, because it produced the paper's numbers.
    """

    per_sample: bool = True
    """One lam per sample, as in the authors' code; --no-per-sample: one per batch, as in the paper's appendix."""
    fold: bool = True
    """lam <- max(lam, 1 - lam), as in the authors' code; --no-fold: lam as drawn, as in the paper's algorithm."""
    standardize: Literal["train", "all"] = "all"
    """Standardize tables with statistics of training and test rows (all), as in the authors' code, or of the training
    rows only (train)."""
    choose_on: Literal["test", "held-out"] = "test"
    """Samples on which the linear classifier's learning rate is chosen: the test samples, as the authors did, or
    held-out training samples. The number for the other choice is shown in parentheses."""
