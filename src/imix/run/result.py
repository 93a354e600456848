"""The result of an evaluation."""

from dataclasses import dataclass, field
from typing import Any

DISTANCES = ("fed",)  # protocols that measure a distance; all others measure an accuracy or average precision
PERCENT_SUFFIXES = ("accuracy", "ap50", "ap75")  # details whose names end like this are printed in percent
NOT_PRINTED = ("by_lr", "confusion", "per_class", "classes", "paper_lr")  # details that are too long for one line
DETAIL_LABELS = {
    "train_accuracy": "training accuracy:",
    "paper_accuracy": "with lr chosen on the test set, as in the paper:",
    "majority_accuracy": "most frequent class:",
}


@dataclass(frozen=True)
class Result:
    """The result of an evaluation, together with everything needed to interpret it.

    Parameters
    ----------
    protocol : str
        "linear", "knn", "pinv", "fed" or "detection".
    data : str
        Name or path of the data.
    value : float
        Accuracy or average precision in [0, 1], or a distance for "fed".
    hyperparameters : dict
        The hyperparameters of the protocol, the numbers of training and test samples, and the evaluation options.
    details : dict
        Further numbers, for example the confusion matrix.

    Examples
    --------
    >>> print(imix.evaluation.Result("knn", "digits", 0.962, {"k": 20}, {"majority_accuracy": 0.102}))
    knn on digits: 96.20 % (most frequent class: 10.20 %)
      k 20
    """

    protocol: str
    data: str
    value: float
    hyperparameters: dict[str, Any]
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def is_distance(self) -> bool:
        """Whether the value is a distance, so that lower is better."""
        return self.protocol in DISTANCES

    @property
    def accuracy(self) -> float:
        """The value, if it is an accuracy; AttributeError for a distance."""
        if self.is_distance:
            raise AttributeError(f"{self.protocol} measures a distance, not an accuracy; use `value`")
        return self.value

    @property
    def scaled(self) -> float:
        """The value in percent, or for a distance in units of 0.0001."""
        return (1e4 if self.is_distance else 100) * self.value

    @property
    def formatted(self) -> str:
        """The value with its unit, for printing."""
        return f"{self.scaled:.2f}{'e-4' if self.is_distance else ' %'}"

    def __str__(self) -> str:
        details = "; ".join(
            f"{DETAIL_LABELS.get(name, name)} {_format(name, value)}"
            for name, value in self.details.items()
            if name not in NOT_PRINTED
        )
        hyperparameters = ", ".join(f"{name} {value}" for name, value in self.hyperparameters.items())
        summary = f"{self.protocol} on {self.data}: {self.formatted}" + (f" ({details})" if details else "")
        return f"{summary}\n  {hyperparameters}" if hyperparameters else summary


def _format(name: str, value: Any) -> str:
    return f"{100 * value:.2f} %" if name.endswith(PERCENT_SUFFIXES) else str(value)
