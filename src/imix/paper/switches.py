"""What the paper leaves open."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Switches:
    """What the paper leaves open or says otherwise than its authors' code, which is followed unless said here."""

    per_sample: bool = True
    """One lam per sample, as in the code; --no-per-sample: one per batch, as the paper's appendix says."""
    fold: bool = True
    """lam <- max(lam, 1 - lam), as in the code; --no-fold: lam as drawn, as the paper's algorithm says."""
    standardise: Literal["train", "all"] = "all"
    """Tables standardised by training and test rows (all), as in the code, or by training rows alone."""
    choose_on: Literal["test", "held-out"] = "test"
    """On what the linear classifier's rate is chosen for the numbers that stand first: on the test samples, as the
    authors did, or on held-out training samples; the other stands in brackets."""
